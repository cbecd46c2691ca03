"""The lines of an ``nvidia-smi topo`` matrix: its header and rows.

Lines that a terminal or an email wrapped are joined.
"""

from __future__ import annotations

import re
from functools import lru_cache

from preflight.textprep.lines import Lines

DEVICE = (
    r"GPU\d{1,3}|NIC\d{1,3}|[a-z][a-z0-9]{1,10}_[a-z]*\d{1,3}|mlx5_bond_\d{1,3}|rdmap\d+s\d+\w*|bnxt_re\d+"
    r"|(?:roce|ib)p\d+s\d+\w*|(?:irdma|roceo|ibo|rxe|siw|qedr|mthca)\d{1,3}\w{0,8}|mlx[45]_[a-z][a-z0-9_]{1,15}"
)
PHRASES = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
RANGES = re.compile(r"\d{1,5}(?:[-,]\d{1,5})*")
ROW = re.compile(rf"\s*({DEVICE})\s+(\S.*)")
#: Codes of the path between two devices, and codes of peer access.
CODE = re.compile(r"X|NV\d{1,3}|PIX|PXB|PHB|NODE|SYS|SOC|PSB|PIX/PIX")
PEER = re.compile(r"X|OK|CNS|GNS|TNS|NS|DR|U")

LEGEND_LINE = re.compile(
    r"\s*(?:Legend:|NIC Legend:|(?:X|SYS|NODE|PHB|PXB|PIX|NV#|SOC|OK|CNS|GNS|TNS|NS|DR|U)\s+=\s.*)"
)

_CELLS = r"X|PIX|PXB|PHB|NODE|SYS|SOC"
#: A row that lost the spaces between its cells. If a number follows ``NV4`` directly, the end of the code is unknown.
_TIGHT_NAME = re.compile(rf"(\s*(?:GPU|NIC)\d{{1,2}})(?=\s*(?:{_CELLS}|NV\d))")
#: Prefix of a number that directly followed a code; the next number may be joined to it in turn.
GLUED = "="
_TIGHT_END = re.compile(rf"({_CELLS})(?=\d|N/A)")
_DEVICE = re.compile(DEVICE)
_GLUED = re.compile(rf"(?:{DEVICE}){{2,8}}")
_CODES_GLUED = r"(?:NV\d{1,2}|PIX|PXB|PHB|NODE|SYS|SOC|X)+"
_COMPLETE_CELL = re.compile(rf"(?:{CODE.pattern})|{_CODES_GLUED}|(?:{PEER.pattern})|(?:{RANGES.pattern})|N/A")
_LONGEST_GLUED = 80
#: A fragment of a word that a line break split.
_CODES = ("NODE", "PIX", "PXB", "PHB", "SYS", "SOC", "CNS", "GNS", "TNS", "OK", "DR", "N/A")
_PIECES = "|".join(sorted({re.escape(code[a:b]) for code in _CODES for a in range(4) for b in range(a + 1, 5)}))
_FRAGMENT = re.compile(rf"(?:{_PIECES}|N?V?\d{{0,3}}|(?=.*\d)[\d,-]{{1,60}})")
#: Text that environment reports print before the matrix: ``GPU topology: GPU0 GPU1 …``.
_TITLE = re.compile(r"\s*[A-Za-z][\w -]{2,40}:\s+(?=GPU0\b)")
#: The abbreviated name of the column ``NUMA Affinity``.
_SHORT_NUMA = re.compile(r"(?<!GPU )\bNUMA(?! ?(?:ID|Affinity))\b")
#: Fragments of a column name at the end of a truncated header.
_STUMPS = frozenset(("G", "GP", "GPU", "N", "NI", "NIC", "C", "CP", "CPU", "NU", "NUM", "NUMA", "A", "Aff", "Affin"))
#: Maximum lines of a wrapped header: 32 columns on a terminal 80 characters wide.
_MOST_PIECES = 8
#: The start of a header; such a line never continues another header.
_FIRST_COLUMN = re.compile(r"GPU0\b")
#: Maximum characters of a joined header.
_LONGEST_HEADER = 4000


def cleaned(text: str) -> str:
    """Return a line without Markdown bars, and with spaces restored between cells."""
    if match := _TIGHT_NAME.match(text):
        text = match[1] + " " + _TIGHT_END.sub(rf"\1 {GLUED}", text[match.end() :])
    return text.replace("|", " ") if text.count("|") > 2 else text


def names_of(text: str) -> list[str]:
    """Return the device columns of a header; empty for any other line."""
    for phrase in PHRASES:
        text = text.split(phrase)[0]
    words = [name for word in _TITLE.sub("", text).split() for name in _apart(word)]
    while words and words[-1] in _STUMPS:
        words.pop()
    if not words or (words[0] != "GPU0" and not (words[0].startswith("GPU") and len(words) > 1)):
        return []
    return words if all(_DEVICE.fullmatch(word) for word in words) else []


def _apart(word: str) -> list[str]:
    """Split a word into the device names that a paste joined."""
    return re.findall(DEVICE, word) if len(word) <= _LONGEST_GLUED and _GLUED.fullmatch(word) else [word]


def header(lines: Lines, at: int) -> tuple[list[str], list[str], int]:
    """Return a header's device columns, further columns, and the index after it.

    Without a header at the line, both lists are empty.
    """
    if "GPU" not in lines[at].text:
        return [], [], at
    names, phrases, taken = _joined_header(tuple(line.text for line in lines[at : at + _MOST_PIECES + 1]))
    return list(names), list(phrases), at + taken


@lru_cache(maxsize=32)  # each format that looks like a matrix reads the same lines
def _joined_header(lines: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...], int]:
    """Return a header's device columns, further columns and number of lines."""
    text, end = cleaned(lines[0]), 1
    if is_row(text) or not _TITLE.sub("", text[:_LONGEST_HEADER]).lstrip().startswith("GPU"):
        return (), (), 0
    for end, line in enumerate(lines[1:_MOST_PIECES], 1):
        more = cleaned(line).lstrip()
        if not more or len(text) >= _LONGEST_HEADER or is_row(more) or _FIRST_COLUMN.match(more):
            break
        better = min((f"{text} {more}", f"{text}{more}"), key=_unknown)
        if _unknown(better) > (end + 1 < len(lines)):
            break
        text = better
    else:
        end = min(len(lines), _MOST_PIECES)
    names = names_of(text)
    expanded = _SHORT_NUMA.sub("NUMA Affinity", text)
    return tuple(names), tuple(phrase for phrase in PHRASES if phrase in expanded), end if names else 0


def _unknown(text: str) -> int:
    """Return how many words of a header are not names of columns."""
    for phrase in PHRASES:
        text = text.replace(phrase, " ")
    return sum(not _DEVICE.fullmatch(name) for word in text.split() for name in _apart(word))


def is_row(text: str) -> bool:
    """Return whether a line is the row of a device, with a code after its name."""
    match = ROW.fullmatch(text)
    return bool(match) and bool(_COMPLETE_CELL.fullmatch(match[2].split()[0])) if match else False


def continues(text: str) -> bool:
    """Return whether a line can be the rest of a wrapped row."""
    words = text.split()
    ends = all(_FRAGMENT.fullmatch(word) for word in (words[0], words[-1]) if not _COMPLETE_CELL.fullmatch(word))
    return ends and all(_COMPLETE_CELL.fullmatch(word) for word in words[1:-1])


def joined(pieces: list[str]) -> list[str]:
    """Return the words of a row that was wrapped between or within words."""
    words: list[str] = []
    for piece in pieces:
        more = piece.split()
        if words and not piece[:1].isspace() and _one_word(words[-1], more[0]):
            words[-1] += more.pop(0)
        words += more
    return words


def _one_word(before: str, after: str) -> bool:
    if _COMPLETE_CELL.fullmatch(before) and _COMPLETE_CELL.fullmatch(after):
        # 0-47,9 and 6-143 are one list; 0-47 and 0 are not
        return bool(RANGES.fullmatch(before) and RANGES.fullmatch(after) and not after.isdigit())
    return bool(_COMPLETE_CELL.fullmatch(before + after))


def first_row(lines: Lines, end: int) -> list[str]:
    """Return the cells of the first row below a header; empty without one."""
    for line in lines[end : end + 3]:
        if match := ROW.fullmatch(cleaned(line.text)):
            return match[2].split()
    return []


def is_p2p(cells: list[str]) -> bool:
    """Return whether a row's cells are codes of peer access."""
    return bool(cells) and all(PEER.fullmatch(cell) for cell in cells) and any(cell != "X" for cell in cells)
