"""``nvidia-smi topo -m`` (and ``-mp``), ``nvidia-smi topo -p2p``.

Rows are split on white space and columns found by name, never by position: pastes turn tabs into blanks.
A row with a cell that is no code is cut, and none of it is believed.
"""

from __future__ import annotations

import itertools
import re

from preflight.recognition.detector import OutputFormat, ParsedPart, TextGap
from preflight.recognition.formats.topo_matrix_lines import (
    CODE,
    GLUED,
    PEER,
    PHRASES,
    RANGES,
    ROW,
    cleaned,
    continues,
    header,
    joined,
)
from preflight.textprep.lines import Lines

_GLUED = re.compile(r"(?:NV\d{1,2}|PIX|PXB|PHB|NODE|SYS|SOC|X)+")
_LEGEND = re.compile(r"\s*(NIC\d{1,3})\s*[:=]\s*(\S+)\s*")
_LEGEND_LINE = re.compile(
    r"\s*(?:Legend:|NIC Legend:|(?:X|SYS|NODE|PHB|PXB|PIX|NV#|SOC|OK|CNS|GNS|TNS|NS|DR|U)\s+=\s.*)"
)
_RULE = re.compile(r"[\s|:+-]{3,}")
#: Lines that one row may be broken into: each is looked at again for every one behind it.
_MOST_PIECES = 64
_RANK = {"PIX": 1, "PXB": 2, "PHB": 3, "NODE": 4, "SYS": 5, "SOC": 5}


def _first_row(lines: Lines, end: int) -> list[str]:
    """Return the cells of the first row below a header."""
    for line in lines[end : end + 3]:
        if match := ROW.fullmatch(cleaned(line.text)):
            return match[2].split()
    return []


def _begins_matrix(lines: Lines, at: int) -> bool:
    if "NIC Legend" in lines[at].text:
        return any(_LEGEND.fullmatch(line.text) for line in lines[at + 1 : at + 4])
    if "GPU" not in lines[at].text and not lines[at].text.lstrip().startswith("NIC"):
        return False
    names, _, end = header(lines, at)
    if names:
        cells = _first_row(lines, end)[: len(names)]
        # AMD's tables have the same header, above numbers and names of links
        return not cells or (any(map(_is_code, cells)) and not _is_p2p(cells))
    text = cleaned(lines[at].text)
    if not (match := ROW.fullmatch(text)):
        return False
    cells = _cells(match[2].split(), 99)  # the header was cut off
    return len(cells) >= 2 if text.lstrip().startswith("GPU") else "X" in cells and len(cells) > 2


def _begins_p2p(lines: Lines, at: int) -> bool:
    if "GPU" not in lines[at].text:
        return False
    names, _, end = header(lines, at)
    return bool(names) and _is_p2p(_first_row(lines, end)[: len(names)])


def _is_p2p(cells: list[str]) -> bool:
    return bool(cells) and all(PEER.fullmatch(cell) for cell in cells) and any(cell != "X" for cell in cells)


def _is_code(word: str) -> bool:
    return bool(CODE.fullmatch(word) or _GLUED.fullmatch(word))


def _cells(words: list[str], most: int) -> list[str]:
    """Return the codes at the head of a row; two that a paste glued together are taken apart."""
    return _divided(words, most)[0]


def _divided(words: list[str], most: int) -> tuple[list[str], list[str]]:
    """Return the codes at the head of a row, and the words behind them."""
    found: list[str] = []
    for at, word in enumerate(words):
        if len(found) >= most:
            return found, words[at:]
        if CODE.fullmatch(word):
            found.append(word)
        elif _GLUED.fullmatch(word) and len(word) <= 64:
            found += re.findall(r"NV\d{1,2}|PIX|PXB|PHB|NODE|SYS|SOC|X", word)
        else:
            return found, words[at:]
    return found, []


def _take_matrix(lines: Lines, at: int) -> ParsedPart:
    names, phrases, end = header(lines, at)
    cut: list[TextGap] = []
    if not names:
        cut.append(TextGap(lines[at].number, "the header is missing: columns that no row shows by its X have no name"))
        end = at
    rows: dict[str, list[str]] = {}
    numbers: dict[str, int] = {}
    legend: dict[str, str] = {}
    blank, last_name = 0, ""
    while end < len(lines):
        text = cleaned(lines[end].text)
        if not text.strip():
            blank, last_name = blank + 1, ""
        elif match := _LEGEND.fullmatch(text):
            legend[match[1]], blank, last_name = match[2], 0, ""
        elif _LEGEND_LINE.fullmatch(text) or (not rows and _RULE.fullmatch(lines[end].text)):
            blank, last_name = 0, ""
        elif (match := ROW.fullmatch(text)) and match[1] not in rows and not legend:
            last_name = match[1]
            rows[last_name], numbers[last_name] = [match[2]], lines[end].number
            blank = 0
        elif (
            last_name
            and names
            and len(rows[last_name]) < _MOST_PIECES
            and _open(rows[last_name], len(names), len(phrases))
            and continues(text)
        ):
            rows[last_name].append(text)
        else:
            break
        if blank > 3:
            break
        end += 1
    before = int(names[0][3:]) if names and re.fullmatch(r"GPU\d{1,3}", names[0]) else 0
    if before and "GPU0" in rows:  # the columns go on where those of a header without its beginning do
        cut.append(TextGap(lines[at].number, f"the header begins at {names[0]}"))
        names = [f"GPU{number}" for number in range(before)] + names
    headless = not names
    names = names or _columns(rows)
    last = lines[min(end, len(lines)) - 1].number
    places = {name: place for place, name in reversed(tuple(enumerate(names)))}  # the first of each name
    links: dict[str, dict[str, str]] = {}
    complete_rows: dict[str, list[str]] = {}
    for name, pieces in rows.items():
        words = joined(pieces)
        cells, behind = _divided(words, len(names))
        here = places.get(name, -1)
        if here >= 0 and cells[here : here + 1] not in ([], ["X"]):
            cut.append(TextGap(numbers[name], f"the row of {name} does not fit the header"))
            continue
        links[name] = {other: code for other, code in zip(names, cells, strict=False) if other != name}
        if len(cells) < len(names):
            cut.append(TextGap(numbers[name], f"the row of {name} is cut: {len(cells)} of {len(names)} codes"))
            if cells and not behind and re.fullmatch(r"NV\d", cells[-1]):
                links[name].pop(names[len(cells) - 1], None)  # may be the beginning of NV18
            continue
        if 0 < len(behind) < len(phrases) and numbers[name] == lines[-1].number:  # the text stops within a range
            cut.append(TextGap(numbers[name], f"the row of {name} is cut within {phrases[len(behind) - 1]}"))
            behind = behind[:-1]
        complete_rows[name] = _divided(words, 999)[1] if headless else behind
    cut += [TextGap(last, f"the row of {name} is missing") for name in names if name not in rows]
    gpus = [name for name in names if name.startswith("GPU")]
    nics = [name for name in names if not name.startswith("GPU")] if names else list(legend)
    affinity = {
        name: _affinity(complete_rows[name], phrases or list(PHRASES)) for name in gpus if name in complete_rows
    }
    devices = {nic: legend.get(nic, nic if not re.fullmatch(r"NIC\d+", nic) else None) for nic in nics}
    if missing := [nic for nic, device in devices.items() if device is None]:
        cut.append(TextGap(last, f"the legend does not name {', '.join(missing)}"))
    facts = {
        "gpus": gpus, "nics": nics, "nic_devices": {nic: device for nic, device in devices.items() if device},
        "links": links, "affinity": affinity,
        "nearest_nics": {gpu: _nearest(links[gpu], nics) for gpu in gpus if gpu in complete_rows and nics},
        "complete_rows": list(complete_rows), "cut_rows": [name for name in names if name not in complete_rows],
    }  # fmt: skip
    of_gpus = frozenset(gpus)
    between = sorted({code for gpu in gpus for other, code in links.get(gpu, {}).items() if other in of_gpus})
    summary = f"{len(gpus)} GPUs joined by {', '.join(between) or 'nothing that could be read'}, {len(nics)} NICs"
    return ParsedPart(end, facts, summary, cut)


def _columns(rows: dict[str, list[str]]) -> list[str]:
    """Return the columns that rows without a header show by where each has its ``X``; those of NICs by their rows."""
    codes = {name: _cells(joined(pieces), 999) for name, pieces in rows.items()}
    gpus = {int(name[3:]): cells for name, cells in codes.items() if name.startswith("GPU")}
    if not all("X" in cells and cells.index("X") == number for number, cells in gpus.items()):
        return [f"GPU{number}" for number in gpus]
    count = max(gpus, default=-1) + 1
    nics = {int(name[3:]): cells for name, cells in codes.items() if re.fullmatch(r"NIC\d+", name) and "X" in cells}
    begins = {cells.index("X") - number for number, cells in nics.items()}
    if len(begins) == 1 and (first := begins.pop()) >= max(count, 1):
        width = max(map(len, codes.values()))
        return [f"GPU{number}" for number in range(first)] + [f"NIC{number}" for number in range(width - first)]
    return [f"GPU{number}" for number in range(count)]


def _open(pieces: list[str], columns: int, phrases: int) -> bool:
    """Tell whether a row has fewer words than the header has columns."""
    words = joined(pieces)
    cells, behind = _divided(words, columns)
    return len(cells) < columns or len(behind) < phrases or (phrases > 0 and words[-1][-1:] in ",-")


#: ``0`` and ``N/A`` of two columns, where a screen's edge stood between them.
_ID_GLUED = re.compile(r"(?<=\d)(?=N/A$)")


def _affinity(words: list[str], phrases: list[str]) -> dict[str, str | None]:
    """Read what follows the codes of a GPU's row."""
    values: dict[str, str | None] = {"cpu": None, "numa": None, "gpu_numa_id": None}
    keys = {"CPU Affinity": "cpu", "NUMA Affinity": "numa", "GPU NUMA ID": "gpu_numa_id"}
    apart = [one for word in words for one in _ID_GLUED.split(word)]
    if len(apart) == len(phrases):
        words = [word.removeprefix(GLUED) for word in apart]
    for phrase, word in zip(phrases, words, strict=False):
        values[keys[phrase]] = word if RANGES.fullmatch(word) else None
    return values


def _nearest(row: dict[str, str], nics: list[str]) -> list[str]:
    best = min((_RANK.get(row[nic], 99) for nic in nics), default=99)
    return [nic for nic in nics if _RANK.get(row[nic], 99) == best]


def _take_p2p(lines: Lines, at: int) -> ParsedPart:
    names, _, end = header(lines, at)
    peers: dict[str, dict[str, str]] = {}
    cut: list[TextGap] = []
    while end < len(lines):
        text = cleaned(lines[end].text)
        match = ROW.fullmatch(text)
        if match and match[1] not in peers:
            cells = list(itertools.takewhile(PEER.fullmatch, match[2].split()))
            if len(cells) < len(names):
                cut.append(TextGap(lines[end].number, f"the row of {match[1]} is cut"))
            row = zip(names, cells, strict=False)
            peers[match[1]] = {other: cell for other, cell in row if other != match[1]}
        elif text.strip() and not _LEGEND_LINE.fullmatch(text):
            break
        end += 1
    missing = [name for name in names if name not in peers]
    cut += [TextGap(lines[end - 1].number, f"the row of {name} is missing") for name in missing]
    not_ok = sorted({cell for row in peers.values() for cell in row.values()} - {"OK"})
    summary = f"{len(names)} GPUs, peer access {'OK' if not not_ok else ', '.join(not_ok) + ' between some'}"
    return ParsedPart(end, {"p2p": peers}, summary, cut)


KINDS = (
    OutputFormat("nvidia-smi topo -p2p", _begins_p2p, _take_p2p, hints=("GPU",)),
    OutputFormat("nvidia-smi topo -m", _begins_matrix, _take_matrix, hints=("GPU", "NIC")),
)
