"""``nvidia-smi topo -m`` (and ``-mp``), ``nvidia-smi topo -p2p``.

Rows are split on white space and columns found by name, never by position: pastes turn tabs into blanks.
A row with a cell that is no code is cut, and none of it is believed.
"""

from __future__ import annotations

import re

from preflight.reading.lines import Lines
from preflight.reading.parts import Cut, Kind, Taken

_NAME = (
    r"GPU\d{1,3}|NIC\d{1,3}|[a-z][a-z0-9]{1,10}_[a-z]*\d{1,3}|mlx5_bond_\d{1,3}|rdmap\d+s\d+\w*|bnxt_re\d+"
    r"|(?:roce|ib)p\d+s\d+\w*"
)
_DEVICE = re.compile(_NAME)
_CODE = re.compile(r"X|NV\d{1,3}|PIX|PXB|PHB|NODE|SYS|SOC|PSB|PIX/PIX")
_GLUED = re.compile(r"(?:NV\d{1,2}|PIX|PXB|PHB|NODE|SYS|SOC|X)+")
_PEER = re.compile(r"X|OK|CNS|GNS|TNS|NS|DR|U")
_PHRASES = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
_LEGEND = re.compile(r"\s*(NIC\d{1,3})\s*[:=]\s*(\S+)\s*")
_LEGEND_LINE = re.compile(
    r"\s*(?:Legend:|NIC Legend:|(?:X|SYS|NODE|PHB|PXB|PIX|NV#|SOC|OK|CNS|GNS|TNS|NS|DR|U)\s+=\s.*)"
)
_ROW = re.compile(rf"\s*({_NAME})\s+(\S.*)")
_RANGES = re.compile(r"\d{1,5}(?:[-,]\d{1,5})*")
_RANK = {"PIX": 1, "PXB": 2, "PHB": 3, "NODE": 4, "SYS": 5, "SOC": 5}


#: What a report of an environment writes before the matrix: ``GPU topology: GPU0  GPU1 …``.
_TITLE = re.compile(r"\s*[A-Za-z][\w -]{2,40}:\s+(?=GPU0\b)")


def _names(text: str) -> list[str]:
    """Return the device columns that a header names; none if the line is no header."""
    for phrase in _PHRASES:
        text = text.split(phrase)[0]
    words = _TITLE.sub("", text).split()
    while words and words[-1] in ("CPU", "NUMA", "GPU"):  # a header that was cut in the middle of a phrase
        words.pop()
    if not words or (words[0] != "GPU0" and not (words[0].startswith("GPU") and len(words) > 1)):
        return []
    return words if all(_DEVICE.fullmatch(word) for word in words) else []


def _first_row(lines: Lines, at: int) -> list[str]:
    """Return the cells of the first row below a header."""
    for line in lines[at + 1 : at + 4]:
        if match := _ROW.fullmatch(line.text):
            return match[2].split()
    return []


def _begins_matrix(lines: Lines, at: int) -> bool:
    text = lines[at].text
    if "GPU" not in text:
        return False
    if names := _names(text):
        cells = _first_row(lines, at)[: len(names)]
        return not cells or not _is_p2p(cells)
    match = _ROW.fullmatch(text)  # the header was cut off
    return (
        bool(match) and text.lstrip().startswith("GPU") and len(_cells(match[2].split(), 99)) >= 2 if match else False
    )


#: Some write the column's name short.
_SHORT_NUMA = re.compile(r"(?<!GPU )\bNUMA(?! ?(?:ID|Affinity))\b")


def _begins_p2p(lines: Lines, at: int) -> bool:
    names = _names(lines[at].text) if "GPU" in lines[at].text else []
    return bool(names) and _is_p2p(_first_row(lines, at)[: len(names)])


def _is_p2p(cells: list[str]) -> bool:
    return bool(cells) and all(_PEER.fullmatch(cell) for cell in cells) and any(cell != "X" for cell in cells)


def _cells(words: list[str], most: int) -> list[str]:
    """Return the codes at the head of a row; two that a paste glued together are taken apart."""
    found: list[str] = []
    for word in words:
        if len(found) >= most:
            break
        if _CODE.fullmatch(word):
            found.append(word)
        elif _GLUED.fullmatch(word) and len(word) <= 64:
            found += re.findall(r"NV\d{1,2}|PIX|PXB|PHB|NODE|SYS|SOC|X", word)
        else:
            break
    return found


def _take_matrix(lines: Lines, at: int) -> Taken:
    head = _SHORT_NUMA.sub("NUMA Affinity", lines[at].text)
    names, phrases = _names(head), [phrase for phrase in _PHRASES if phrase in head]
    cut: list[Cut] = []
    if names:
        end = at + 1
    else:
        cut.append(Cut(lines[at].number, "the header is missing: columns beyond the GPUs cannot be named"))
        end = at
    rows: dict[str, list[str]] = {}
    rest: dict[str, list[str]] = {}
    numbers: dict[str, int] = {}
    legend: dict[str, str] = {}
    blank = 0
    while end < len(lines):
        text = lines[end].text
        if not text.strip():
            blank += 1
        elif match := _LEGEND.fullmatch(text):
            legend[match[1]], blank = match[2], 0
        elif _LEGEND_LINE.fullmatch(text):
            blank = 0
        elif (match := _ROW.fullmatch(text)) and match[1] not in rows and not legend:
            rows[match[1]], numbers[match[1]] = match[2].split(), lines[end].number
            blank = 0
        else:
            break
        if blank > 3:
            break
        end += 1
    if not names:
        names = [name for name in rows if name.startswith("GPU")]
    whole: dict[str, list[str]] = {}
    for name, words in rows.items():
        cells = _cells(words, len(names))
        here = names.index(name) if name in names else -1
        if len(cells) < len(names) or (here >= 0 and cells[here] != "X"):
            cut.append(Cut(numbers[name], f"the row of {name} is cut: {len(cells)} of {len(names)} codes"))
            continue
        whole[name] = cells
        rest[name] = words[len(names) :]
    last = lines[min(end, len(lines)) - 1].number
    cut += [Cut(last, f"the row of {name} is missing") for name in names if name not in rows]
    links = {
        name: {other: code for other, code in zip(names, cells, strict=True) if other != name}
        for name, cells in whole.items()
    }
    gpus = [name for name in names if name.startswith("GPU")]
    nics = [name for name in names if not name.startswith("GPU")]
    affinity = {
        name: _affinity(rest[name], phrases or (["CPU Affinity"] if rest[name] else []))
        for name in gpus
        if name in rest
    }
    devices = {nic: legend.get(nic, nic if not re.fullmatch(r"NIC\d+", nic) else None) for nic in nics}
    if missing := [nic for nic, device in devices.items() if device is None]:
        cut.append(Cut(last, f"the legend does not name {', '.join(missing)}"))
    facts = {
        "gpus": gpus, "nics": nics, "nic_devices": {nic: device for nic, device in devices.items() if device},
        "links": links, "affinity": affinity,
        "nearest_nics": {gpu: _nearest(links[gpu], nics) for gpu in gpus if gpu in links and nics},
        "complete_rows": list(whole), "cut_rows": [name for name in names if name not in whole],
    }  # fmt: skip
    between = sorted({code for gpu in gpus for other, code in links.get(gpu, {}).items() if other in gpus})
    summary = f"{len(gpus)} GPUs joined by {', '.join(between) or 'nothing that could be read'}, {len(nics)} NICs"
    return Taken(end, facts, summary, cut)


def _affinity(words: list[str], phrases: list[str]) -> dict[str, str | None]:
    """Read what follows the codes of a GPU's row."""
    values: dict[str, str | None] = {"cpu": None, "numa": None, "gpu_numa_id": None}
    keys = {"CPU Affinity": "cpu", "NUMA Affinity": "numa", "GPU NUMA ID": "gpu_numa_id"}
    for phrase, word in zip(phrases, words, strict=False):
        values[keys[phrase]] = word if _RANGES.fullmatch(word) else None
    return values


def _nearest(row: dict[str, str], nics: list[str]) -> list[str]:
    best = min((_RANK.get(row[nic], 99) for nic in nics), default=99)
    return [nic for nic in nics if _RANK.get(row[nic], 99) == best]


def _take_p2p(lines: Lines, at: int) -> Taken:
    names, end = _names(lines[at].text), at + 1
    peers: dict[str, dict[str, str]] = {}
    cut: list[Cut] = []
    while end < len(lines):
        text = lines[end].text
        match = _ROW.fullmatch(text)
        if match and match[1] not in peers:
            cells = match[2].split()
            if len(cells) < len(names) or not all(_PEER.fullmatch(cell) for cell in cells[: len(names)]):
                cut.append(Cut(lines[end].number, f"the row of {match[1]} is cut"))
            else:
                row = zip(names, cells, strict=False)
                peers[match[1]] = {other: cell for other, cell in row if other != match[1]}
        elif text.strip() and not _LEGEND_LINE.fullmatch(text):
            break
        end += 1
    missing = [name for name in names if name not in peers]
    cut += [Cut(lines[end - 1].number, f"the row of {name} is missing") for name in missing]
    not_ok = sorted({cell for row in peers.values() for cell in row.values()} - {"OK"})
    summary = f"{len(names)} GPUs, peer access {'OK' if not not_ok else ', '.join(not_ok) + ' between some'}"
    return Taken(end, {"p2p": peers}, summary, cut)


KINDS = (
    Kind("nvidia-smi topo -p2p", _begins_p2p, _take_p2p),
    Kind("nvidia-smi topo -m", _begins_matrix, _take_matrix),
)
