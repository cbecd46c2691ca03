"""What a text may be packed in: strings of JSON or Python, records of a log's store, a page's source, a frame.

Each of these is opened by itself and may hold another. What is inside is a text as any other, of which each line
knows on which line of the source it stands.
"""

from __future__ import annotations

import csv
import html
import json
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Opened:
    """What an envelope held; ``numbers`` has for each line the number of the source's line that it stands on."""

    text: str
    numbers: list[int]
    sure: bool  # whether what tells the envelope can be nothing else


_Lines = list[tuple[int, str]]

#: How deep envelopes lie in each other: a page that shows an answer of an interface that holds a string.
_DEPTH = 3
#: Lines that must be alike before they are records, numbered or framed; and of how many of all.
_LEAST, _SHARE = 3, 0.8


def opened(text: str) -> Opened | None:
    """Return what a text is packed in; None if it is packed in nothing that is known here."""
    lines: _Lines = list(enumerate(text.split("\n"), 1))
    by = set()
    for _ in range(_DEPTH):
        opens, inner = next(
            ((opens, inner) for opens in _ENVELOPES if (inner := opens(lines)) is not None), (None, lines)
        )
        if opens is None:
            break
        lines = inner
        by.add(opens)
    if not by:
        return None
    return Opened("\n".join(line for _, line in lines), [number for number, _ in lines], not by.isdisjoint(_SURE))


# --- strings -----------------------------------------------------------------------------------------

#: Line ends that a string must hold.
_LEAST_ENDS = 3
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[0-7]{3}|.)")
_ENDS = {"n": "\n", "t": "\t", "r": "", "b": "", "f": "", "a": "", "0": ""}
#: Where a string begins in its first line: behind a name, which may be one of several; or at a bracket.
_STRING_BEGINS = (
    re.compile(r".*[\w\"']\s*:\s+[bru]{0,2}(\\?[\"'])"),
    re.compile(r"(?:|.*?[=(\[{,])\s*[bru]{0,2}(\\?[\"'])"),
)
_STRING_ENDS = re.compile(r"\\?[\"']\s*(?:[,}\])].{0,200})?$")


def _strings(lines: _Lines) -> _Lines | None:
    """Open strings that hold line ends as ``\\n``; also one of which the end or the beginning is cut off."""
    found: _Lines = []
    any_ = False
    for number, line in lines:
        if line.count("\\n") < _LEAST_ENDS:
            found.append((number, line))
            continue
        any_ = True
        pieces = _unescaped(line).split("\n")
        head, quote, rest = _apart(pieces[0])
        pieces[0] = rest
        if quote or _STRING_ENDS.search(pieces[-1]):
            pieces[-1] = _STRING_ENDS.sub("", pieces[-1])
        if head:
            found.append((number, head))
        found += [(number, piece) for piece in pieces]
    return found if any_ else None


def _apart(piece: str) -> tuple[str, str, str]:
    """Return what stands before a string, its quotation mark, and its first line, of which it is the last."""
    match = next((match for pattern in _STRING_BEGINS if (match := pattern.match(piece))), None)
    if not match:
        return "", "", piece
    return piece[: match.start(1)].strip(" \"',:{[(=bru"), match[1], piece[match.end() :]


def _unescaped(line: str) -> str:
    def plain(match: re.Match[str]) -> str:
        told = match[1]
        if told[0] in "ux" and len(told) > 1:
            return chr(int(told[1:], 16)) if not 0xD800 <= int(told[1:], 16) < 0xE000 else ""
        return chr(int(told, 8) & 0x7F) if len(told) == 3 else _ENDS.get(told, told)

    return _ESCAPE.sub(plain, line)


# --- records -----------------------------------------------------------------------------------------

#: Names under which collectors of logs keep a line: Docker, Kubernetes, journald, Fluentd, Loki, Google's and AWS's.
_MESSAGE = ("log", "message", "msg", "MESSAGE", "line", "textPayload", "@message", "text", "_raw", "body", "content")
_LOGFMT = re.compile(r'(?:^|\s)(?:msg|message|log|line)="((?:[^"\\]|\\.)*)"')
_ELEMENT = re.compile(r'\s*("(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'),?\s*')


def _records(lines: _Lines) -> _Lines | None:
    """Take the lines of a job out of records, each of which holds one."""
    for take in (_of_json, _of_logfmt):
        inside = [(number, line, take(line)) for number, line in lines]
        count = sum(inner is not None for _, _, inner in inside)
        if count >= max(_LEAST, _SHARE * sum(bool(line.strip()) for _, line in lines)):
            return [
                (number, piece)
                for number, line, inner in inside
                for piece in (line if inner is None else inner.rstrip("\r\n")).split("\n")
                if inner is not None or line.strip()
            ]
    return None


def _of_json(line: str) -> str | None:
    """Return the message in an object, or the text in an event of a recorded terminal."""
    text = line.strip().rstrip(",")
    if text[:1] not in ("{", "[") or text[-1:] not in ("}", "]"):
        return None
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, list):
        is_event = len(value) == 3 and value[1] == "o" and isinstance(value[2], str)
        return str(value[2]) if is_event else None
    for holder in (value, value.get("jsonPayload"), value.get("fields")):
        if isinstance(holder, dict):
            for name in _MESSAGE:
                if isinstance(holder.get(name), str):
                    return str(holder[name])
    return None


def _of_logfmt(line: str) -> str | None:
    match = _LOGFMT.search(line) if '="' in line else None
    return _unescaped(match[1]) if match else None


def _elements(lines: _Lines) -> _Lines | None:
    """Open a list of lines, as Ansible shows output."""
    found: _Lines = []
    stretch: _Lines = []
    any_ = False

    def close() -> None:
        nonlocal any_
        if len(stretch) >= _LEAST:
            any_ = True
            found.extend(
                (number, _unescaped(line.strip().rstrip(",")[1:-1]).replace("\n", " ")) for number, line in stretch
            )
        else:
            found.extend(stretch)
        stretch.clear()

    for number, line in lines:
        if line.lstrip()[:1] in ('"', "'") and _ELEMENT.fullmatch(line):
            stretch.append((number, line))
        else:
            close()
            found.append((number, line))
    close()
    return found if any_ else None


def _table(lines: _Lines) -> _Lines | None:
    """Take the messages out of a table with commas, as a store of logs gives it away."""
    said = [(number, line) for number, line in lines if line.strip()]
    if len(said) < _LEAST or sum(line.lstrip().startswith('"') and '","' in line for _, line in said) < len(said) - 1:
        return None
    try:
        rows = list(csv.reader(line for _, line in said))
    except csv.Error:
        return None
    width = min(map(len, rows))
    if len(rows) != len(said) or not 2 <= width == max(map(len, rows)):
        return None
    longest = max(range(width), key=lambda column: sum(len(row[column]) for row in rows))
    return [(number, row[longest]) for (number, _), row in zip(said, rows, strict=True)]


# --- pages and frames --------------------------------------------------------------------------------

_BREAK = re.compile(r"<br\s?/?>|</(?:p|div|li|tr|pre|h[1-6])>", re.IGNORECASE)
#: Elements that put text into shape; those of ``nvidia-smi -q -x`` have other names.
_ELEMENTS = re.compile(
    r"</?(?:p|br|pre|code|div|span|li|ul|ol|tr|td|th|table|tbody|thead|details|summary|b|strong|em|i|u|font|a|tt|kbd|samp"
    r"|mark|blockquote|h[1-6]|hr)(?:\s[^<>]{0,300})?/?>",
    re.IGNORECASE,
)
_CELL_END = re.compile(r"</t[dh]>", re.IGNORECASE)
_ENTITY = re.compile(r"&(?:lt|gt|amp|quot|apos|nbsp|#\d{1,5}|#x[0-9a-fA-F]{1,4});")


def _page(lines: _Lines) -> _Lines | None:
    """Take the text out of a page's source."""
    if not any(_ELEMENTS.search(line) or _ENTITY.search(line) for _, line in lines if "<" in line or "&" in line):
        return None
    found: _Lines = []
    for number, line in lines:
        if "<" not in line and "&" not in line:
            found.append((number, line))
            continue
        pieces = _BREAK.split(line)
        if len(pieces) > 1 and not _ELEMENTS.sub("", pieces[-1]).strip():
            pieces.pop()
        for piece in pieces:
            inner = html.unescape(_ELEMENTS.sub("", _CELL_END.sub("\t", piece))).replace("\xa0", " ")
            found += [(number, one) for one in inner.split("\n")]
    return found


_FRAMED = re.compile(r"\s*([|│┃║])(.*)\1\s*")
#: A cell with nothing in it, which a page that numbers lines leaves behind each.
_EMPTY_CELL = re.compile(r"(?<=[^\s|])\s+\|\s*$")
_FRAME_RULE = re.compile(r"\s*[+┌┐└┘├┤╭╮╰╯╔╗╚╝═─━=-]{3,}\s*")


def _framed(lines: _Lines) -> _Lines | None:
    """Take the text out of a frame that closes every line."""
    said = [line for _, line in lines if line.strip()]
    inside = sum(bool(_FRAMED.fullmatch(line)) for line in said)
    if inside < max(_LEAST, _SHARE * len(said)):
        return None
    found: _Lines = []
    for number, line in lines:
        if match := _FRAMED.fullmatch(line):
            inner = match[2].removeprefix(" ").rstrip()
            found.append((number, inner if inner.startswith("|") else _EMPTY_CELL.sub("", inner)))
        elif not _FRAME_RULE.fullmatch(line):
            found.append((number, line))
    return found


def _fenced(lines: _Lines) -> _Lines | None:
    """Take a fence off the line that it was glued to."""
    found: _Lines = []
    any_ = False
    for number, line in lines:
        bare = _without_fence(line)
        any_ |= bare != line
        found.append((number, bare))
    return found if any_ else None


_GLUED_FENCE = re.compile(
    r"^\s{0,3}(?:```|~~~|\[code\]|\{code\}|\{noformat\})(?=.*\s\S|\s*[{\[<].*)"
    r"|(?<=\S)\s?(?:```|~~~|\[/code\]|\{code\}|\{noformat\})\s*$"
)
#: A line, or the first or the last of several, that was marked as code.
_TICKED = re.compile(r"\s{0,3}`([^`]+)`?\s*|([^`]*\S)`\s*")


def _without_fence(line: str) -> str:
    if "`" in line and (match := _TICKED.fullmatch(line)):
        return match[1] or match[2]
    return _GLUED_FENCE.sub("", line) if "`" in line or "~" in line or "code" in line or "{nof" in line else line


_QUOTED = re.compile(r"\s{0,3}(?:>\s?){1,8}")


def _quoted(lines: _Lines) -> _Lines | None:
    """Take the marks of a mail off, and a margin that every line has."""
    said = [line for _, line in lines if line.strip()]
    quoted = sum(bool(_QUOTED.match(line)) for line in said)
    if quoted >= max(_LEAST, _SHARE * len(said)):
        return [(number, _QUOTED.sub("", line, count=1)) for number, line in lines]
    margin = min((len(line) - len(line.lstrip(" \t")) for line in said), default=0)
    if not margin or len({line[:margin] for line in said}) > 1:
        return None
    return [(number, line[margin:]) for number, line in lines]


def _returned(lines: _Lines) -> _Lines | None:
    """Leave of a line that was written anew what stands there at last, and what NCCL wrote before."""
    if not any("\r" in line.rstrip("\r") for _, line in lines):
        return None
    found: _Lines = []
    for number, line in lines:
        *before, last = [piece for piece in line.split("\r") if piece.strip()] or [""]
        found += [(number, piece) for piece in before if "NCCL" in piece]
        found.append((number, last))
    return found


_ENVELOPES = (_returned, _records, _table, _elements, _strings, _page, _framed, _quoted, _fenced)
_SURE = (_records, _table, _elements, _strings)
