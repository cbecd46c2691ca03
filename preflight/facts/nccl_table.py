"""The table of an nccl-tests report: its columns and its rows, whole, split or cut.

A row is printed in pieces (its size, out of place, in place) without a line end between them, so a
line of NCCL may stand in the middle of it, and a run may end there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from preflight.facts.nccl_report import CutRow, Half, Row

_ROW = re.compile(
    r"(?:^|[\s>:\])|])(?P<bytes>\d{1,19})\s{1,40}(?P<count>\d{1,19})\s{1,40}(?P<type>[A-Za-z]\w{2,15})(?=\s|$)"
)
_TYPES = re.compile(r"u?int(?:8|32|64)?|char|half|float(?:16|32|64)?|double|bfloat16|f8e[45]m[23]|fp8\w*")
_REDOP = re.compile(r"(?!nan$|inf$)[a-z]{3,12}")
_VALUE = re.compile(r"-?(?:\d{1,20}(?:\.\d{0,10})?|\.\d{1,10})(?:e[+-]?\d{1,3})?|-?nan|-?inf")
_UNCHECKED = "N/A"

#: Where somebody else's words begin in the middle of a row: NCCL's prefix with or without a time, a
#: host with a colon, or a bare line of NCCL.
_NOISE = re.compile(
    r"\[\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d|[A-Za-z][\w.-]{0,254}:\d{1,10}:\d{1,10} |[A-Za-z][\w.-]{0,254}: |NCCL "
)


@dataclass(frozen=True)
class Columns:
    """What the header says of the columns right of ``type``."""

    root: bool | None = None  # whether there is a root column; None: no header was seen
    half: int = 4  # columns of one half: time algbw busbw check [i_min …]
    halves: int = 2  # version 1.0.0 has no in-place half for broadcast
    more: bool = False  # columns follow the two halves: timestamp, #iters
    counts_wrong: bool = True  # False: the check column holds the largest error, up to 2.12
    in_ms: bool = False  # version 1.0.0 prints time in ms


def header(line: str) -> Columns | None:
    """Read the line that names the columns; None if it is not one."""
    if "time" not in line:
        return None
    names = line.split()
    for position in range(2, len(names)):
        if names[position] == "type" and names[position - 2 : position] in (["size", "count"], ["bytes", "N"]):
            break
    else:
        return None
    right = names[position + 1 :]
    times = [place for place, name in enumerate(right) if name in ("time", "cputime")][:2]
    if not times:
        return None
    half = max(times[1] - times[0], 4) if len(times) == 2 else 4
    check = right[times[0] + 3] if len(right) > times[0] + 3 else "#wrong"
    return Columns(
        root="root" in right[: times[0]],
        half=half,
        halves=len(times),
        more=len(right) > times[0] + half * len(times),
        counts_wrong=check.endswith("wrong"),
        in_ms=check == "res",
    )


@dataclass
class OpenRow:
    """A row of which more may come on a later line."""

    line: int
    bytes: int
    count: int
    dtype: str
    columns: Columns
    text: str
    redop: str | None = None
    root: int | None = None
    values: list[str] = field(default_factory=list)

    @property
    def wanted(self) -> int:
        """Number of values that a whole row has."""
        return self.columns.half * self.columns.halves

    @property
    def whole(self) -> bool:
        """Whether all values are there."""
        return len(self.values) >= self.wanted

    def continues(self, line: str) -> bool:
        """Take in the rest of the row, if the line is that."""
        values, rest = _values(line)
        missing = self.wanted - len(self.values)
        if not values or (rest and not self.columns.more):
            return False
        if len(values) not in (missing, self.columns.half) and not (self.columns.more and len(values) > missing):
            return False
        self.values += values[:missing]
        self.text += " " + " ".join(values)
        return True

    def taken(self) -> tuple[Row | None, CutRow | None]:
        """Return the row, and what to list as cut if values are missing; both if only its first half is there."""
        first = self._half(0)
        second = self._half(1) if self.columns.halves == 2 else None
        whole = first is not None and (second is not None or self.columns.halves == 1)
        row = Row(self.line, self.bytes, self.count, self.dtype, self.redop, self.root, first, second)
        cut = CutRow(self.line, self.bytes, self.text.strip()[:200])
        return (row if first else None), (None if whole else cut)

    def _half(self, number: int) -> Half | None:
        tokens = self.values[number * self.columns.half :][:4]
        if len(tokens) < 4 or _UNCHECKED in tokens[:3]:
            return None
        time, algbw, busbw = (float(token) for token in tokens[:3])
        check = None if tokens[3] == _UNCHECKED else float(tokens[3])
        counted = self.columns.counts_wrong and check is not None and abs(check) < 1e18
        return Half(
            time_us=time * 1000 if self.columns.in_ms else time,
            algbw_gbytes_s=algbw,
            busbw_gbytes_s=busbw,
            wrong=int(check) if counted and check is not None else None,
            max_error=None if self.columns.counts_wrong else check,
        )


def open_row(number: int, line: str, columns: Columns | None) -> OpenRow | None:
    """Begin a row, if the line is one; a type that nobody knows counts only in a whole row."""
    if not (match := _ROW.search(line)):
        return None
    columns = columns or Columns()
    row = OpenRow(
        number, int(match["bytes"]), int(match["count"]), match["type"], columns, line[match.start("bytes") :]
    )
    rest = line[match.end() :]
    if noise := _NOISE.search(rest):
        rest = rest[: noise.start()]
    tokens = rest.split()
    if tokens and _REDOP.fullmatch(tokens[0]):
        row.redop = tokens.pop(0)
    values, _ = _values(" ".join(tokens))
    has_root = columns.root if columns.root is not None else len(values) % columns.half == 1
    if has_root and values and re.fullmatch(r"-?\d{1,7}", values[0]):
        row.root = int(values.pop(0))
    row.values = values[: row.wanted]
    known = _TYPES.fullmatch(row.dtype) is not None
    return row if known or row.whole else None


def _values(text: str) -> tuple[list[str], str]:
    """Return the values at the head of a text, and what follows them."""
    if noise := _NOISE.search(text):
        text = text[: noise.start()]
    tokens = text.split()
    taken: list[str] = []
    for token in tokens:
        if token != _UNCHECKED and not _VALUE.fullmatch(token):
            break
        taken.append(token)
    return taken, " ".join(tokens[len(taken) :])
