"""The text of ``nvidia-smi topo -m`` and ``-mp``, complete or truncated.

It has a header, rows and a legend. Pastes turn tabs into spaces, so rows are split at whitespace, and columns are
found by name, not by position. A row with fewer codes than columns is truncated, and not used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from preflight.parsers.nvidia.topo_lines import (
    CODE,
    GLUED,
    LEGEND_LINE,
    PHRASES,
    RANGES,
    ROW,
    cleaned,
    continues,
    first_row,
    header,
    is_p2p,
    joined,
)
from preflight.parsers.nvidia.topology import Matrix, Topology
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.textprep.lines import Line, Lines
from preflight.textprep.plain_text import normalize_text

_GLUED = re.compile(r"(?:NV\d{1,2}|PIX|PXB|PHB|NODE|SYS|SOC|X)+")
_LEGEND = re.compile(r"\s*(NIC\d{1,3})\s*[:=]\s*(\S+)\s*")
_RULE = re.compile(r"[\s|:+-]{3,}")
#: Maximum lines of a wrapped row; all of them are examined again for each further line.
_MOST_PIECES = 64


def parse(text: str) -> Topology:
    """Read a node's matrix; raises ValueError.

    It is an error if there is no matrix, or if it contradicts itself. Truncated rows are listed in the result.
    """
    lines = [Line(number, line) for number, line in enumerate(normalize_text(text).split("\n"), 1)]
    start = next((at for at, line in enumerate(lines) if line.text.lstrip().startswith("GPU0")), None)
    if start is None or not begins(lines, start):
        first = next((line.text.strip() for line in lines if line.text.strip()), "")
        raise ValueError(f"there is no matrix header; the output begins with {first[:80]!r}")
    matrix = parse_lines(lines, start).value
    if matrix.damage:
        raise ValueError(matrix.damage[0])
    if foreign := set(matrix.complete_rows) - {*matrix.gpus, *matrix.nics}:
        raise ValueError(f"the header has no column for the row of {min(foreign)}")
    return matrix.topology()


def begins(lines: Lines, at: int) -> bool:
    """Return whether a matrix starts at a line.

    The line is its header, its legend, or the first row of a matrix without a header.
    """
    if "NIC Legend" in lines[at].text:
        return any(_LEGEND.fullmatch(line.text) for line in lines[at + 1 : at + 4])
    if "GPU" not in lines[at].text and not lines[at].text.lstrip().startswith("NIC"):
        return False
    names, _, end = header(lines, at)
    if names:
        cells = first_row(lines, end)[: len(names)]
        # AMD's tables have the same header, but numbers or link names as cells
        return not cells or (any(map(_is_code, cells)) and not is_p2p(cells))
    text = cleaned(lines[at].text)
    if not (match := ROW.fullmatch(text)):
        return False
    cells = _cells(match[2].split(), 99)  # the header is missing
    return len(cells) >= 2 if text.lstrip().startswith("GPU") else "X" in cells and len(cells) > 2


def _is_code(word: str) -> bool:
    return bool(CODE.fullmatch(word) or _GLUED.fullmatch(word))


def _cells(words: list[str], most: int) -> list[str]:
    """Return the codes at the start of a row, at most ``most`` of them.

    Codes that a paste joined are separated.
    """
    return _divided(words, most)[0]


def _divided(words: list[str], most: int) -> tuple[list[str], list[str]]:
    """Return the codes at the start of a row, and the remaining words."""
    parsed_codes: list[str] = []
    for at, word in enumerate(words):
        if len(parsed_codes) >= most:
            return parsed_codes, words[at:]
        if CODE.fullmatch(word):
            parsed_codes.append(word)
        elif _GLUED.fullmatch(word) and len(word) <= 64:
            parsed_codes += re.findall(r"NV\d{1,2}|PIX|PXB|PHB|NODE|SYS|SOC|X", word)
        else:
            return parsed_codes, words[at:]
    return parsed_codes, []


def parse_lines(lines: Lines, at: int) -> Parsed[Matrix]:
    """Read the matrix that begins at a line."""
    names, phrases, end = header(lines, at)
    gaps: list[ParseGap] = []
    if not names:
        gaps.append(ParseGap(lines[at].number, "the header is missing: columns without the X of a row have no name"))
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
        elif LEGEND_LINE.fullmatch(text) or (not rows and _RULE.fullmatch(lines[end].text)):
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
    if before and "GPU0" in rows:  # the start of the header is missing
        gaps.append(ParseGap(lines[at].number, f"the header begins at {names[0]}"))
        names = [f"GPU{number}" for number in range(before)] + names
    headless = not names
    names = names or _columns(rows)
    last = lines[min(end, len(lines)) - 1].number
    places = {name: place for place, name in reversed(tuple(enumerate(names)))}  # the first of each name
    damage = ["the header names a column twice"] if len(places) < len(names) else []
    links: dict[str, dict[str, str]] = {}
    complete_rows: dict[str, list[str]] = {}
    for name, pieces in rows.items():
        words = joined(pieces)
        cells, behind = _divided(words, len(names))
        here = places.get(name, -1)
        if here >= 0 and cells[here : here + 1] not in ([], ["X"]):
            gaps.append(ParseGap(numbers[name], f"the row of {name} does not fit the header"))
            damage.append(f"the row of {name} has {cells[here]!r} instead of X on the diagonal")
            continue
        links[name] = {other: code for other, code in zip(names, cells, strict=False) if other != name}
        if len(cells) < len(names):
            gaps.append(ParseGap(numbers[name], f"the row of {name} is truncated: {len(cells)} of {len(names)} codes"))
            if cells and not behind and re.fullmatch(r"NV\d", cells[-1]):
                links[name].pop(names[len(cells) - 1], None)  # may be the start of NV18
            continue
        if 0 < len(behind) < len(phrases) and numbers[name] == lines[-1].number:  # the text stops within a range
            gaps.append(ParseGap(numbers[name], f"the row of {name} is truncated within {phrases[len(behind) - 1]}"))
            behind = behind[:-1]
        complete_rows[name] = _divided(words, 999)[1] if headless else behind
    gaps += [ParseGap(last, f"the row of {name} is missing") for name in names if name not in rows]
    gpus = [name for name in names if name.startswith("GPU")]
    nics = [name for name in names if not name.startswith("GPU")] if names else list(legend)
    affinity = {
        name: _affinity(complete_rows[name], phrases or list(PHRASES)) for name in gpus if name in complete_rows
    }
    devices = {nic: legend.get(nic, nic if not re.fullmatch(r"NIC\d+", nic) else None) for nic in nics}
    if missing := [nic for nic, device in devices.items() if device is None]:
        gaps.append(ParseGap(last, f"the legend does not name {', '.join(missing)}", beside=True))
    unequal = list(_asymmetries({name: links[name] for name in complete_rows}))
    nvlinks_agree = not damage and not any("NV" in code for *_, codes in unequal for code in codes)
    if unequal:
        row, column, (code, other) = unequal[0]
        contradiction = (
            f"{row} to {column} is {code} but {column} to {row} is {other}: the matrix is not symmetric, so the text "
            "is damaged"
        )
        damage.append(contradiction)
        gaps.append(ParseGap(last, contradiction))
    matrix = Matrix(
        gpus=tuple(gpus), nics=tuple(nics), devices={nic: device for nic, device in devices.items() if device},
        links=links, affinity=affinity, complete_rows=tuple(complete_rows),
        cut_rows=tuple(name for name in names if name not in complete_rows),
        missing_rows=tuple(name for name in names if name not in rows), damage=tuple(damage),
        nvlinks_agree=nvlinks_agree,
    )  # fmt: skip
    return Parsed(matrix, tuple(gaps), end)


def _asymmetries(rows: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, str, tuple[str, str]]]:
    """Yield contradicting cells: row, column, and the codes in both directions."""
    for row_name, row in rows.items():
        for column, code in row.items():
            if column in rows and (other := rows[column].get(row_name, "nothing")) != code:
                yield row_name, column, (code, other)


def _columns(rows: dict[str, list[str]]) -> list[str]:
    """Return the columns of rows without a header, from the ``X`` in each row.

    The NIC columns follow from the rows of the NICs.
    """
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
    """Return whether a row still lacks words for the header's columns."""
    words = joined(pieces)
    cells, behind = _divided(words, columns)
    return len(cells) < columns or len(behind) < phrases or (phrases > 0 and words[-1][-1:] in ",-")


#: Between ``0`` and ``N/A``, two cells that were joined at a screen's edge.
_ID_GLUED = re.compile(r"(?<=\d)(?=N/A$)")


def _affinity(words: list[str], phrases: list[str]) -> dict[str, str | None]:
    """Read the affinity columns after the codes of a GPU's row.

    A value that is missing or not a list of numbers is None.
    """
    values: dict[str, str | None] = {"cpu": None, "numa": None, "gpu_numa_id": None}
    keys = {"CPU Affinity": "cpu", "NUMA Affinity": "numa", "GPU NUMA ID": "gpu_numa_id"}
    apart = [one for word in words for one in _ID_GLUED.split(word)]
    if len(apart) == len(phrases):
        words = [word.removeprefix(GLUED) for word in apart]
    for phrase, word in zip(phrases, words, strict=False):
        values[keys[phrase]] = word if RANGES.fullmatch(word) else None
    return values


HINTS = ("GPU", "NIC")
