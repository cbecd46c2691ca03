"""Table of an nccl-tests report: columns, and rows that may be interrupted.

nccl-tests prints a row in three parts (size, out of place, in place) without newlines between them. An NCCL message
may therefore interrupt a row, and a run may end within it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from preflight._startup.lightclass import dataclass, field, replace
from preflight.parsers.nccl_tests.model import CutRow, IterationTimes, Measurement, Row

_ROW = re.compile(
    r"(?:^\+?|[\s>:\])|])(?P<bytes>\d{1,19})\s{1,40}(?P<count>\d{1,19})\s{1,40}(?P<type>[A-Za-z]\w{2,15})(?=\s|$)"
)
_TYPES = re.compile(r"u?int(?:8|32|64)?|char|half|float(?:16|32|64)?|double|bfloat16|f8e[45]m[23]|fp8\w*")
_REDOP = re.compile(r"(?!nan$|inf$)[a-z]{3,12}")
_VALUE = re.compile(r"-?(?:\d{1,20}(?:\.\d{0,10})?|\.\d{1,10})(?:[eE][+-]?\d{2,3})?\*?|-?nan|-?inf")
_UNCHECKED = "N/A"

#: The largest difference, which versions up to 2.12 print in ``%.0le`` format. Unless it is 0, only its negative
#: exponent distinguishes it from a count of wrong elements in ``%g`` format.
_DIFFERENCE = re.compile(r"0e\+00|\de-\d{2,3}")

#: Vertical rules of a Markdown or drawn table.
_RULES = str.maketrans("|\u2502\u2503", "   ")

#: The start of other text within a row: NCCL's prefix, with or without a time, a host name with a colon, or an NCCL
#: line without its prefix.
_NOISE = re.compile(
    r"\[\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d|[A-Za-z][\w.-]{0,254}:\d{1,10}:\d{1,10} |[A-Za-z][\w.-]{0,254}: |NCCL "
)


def without_rules(line: str) -> str:
    """Remove the vertical rules of a drawn table from a line."""
    bars = line.count("|") + line.count("\u2502") + line.count("\u2503")
    return line.translate(_RULES) if bars >= 9 else line


#: A number with thousands separators, as in a spreadsheet. nccl-tests prints at most two decimals, so three digits
#: after a comma are thousands.
_THOUSANDS = re.compile(r"(?<![\w.,;-])[1-9]\d{0,2}(?:,\d{3})+(?:\.\d{1,2})?(?![\w,;])")
_DECIMAL_COMMA = re.compile(r"(?<![\w.,;])(\d{1,19}),(\d{1,2}|(?<=(?<!\d)0,)\d{3,9})(?![\w,;.])")
_AVERAGE_COMMA = re.compile(r"(Avg bus bandwidth\s{1,8}:\s{1,8}\d{1,6}),(\d{1,9})(?!\S)")
_TYPE_WORD = re.compile(r"\s[a-z]\w{2,15}\s")


def plain_numbers(line: str) -> str:
    """Rewrite the numbers of a row or the average without thousands separators.

    A decimal comma becomes a point. Any other line is returned unchanged.
    """
    if "Avg bus" in line:
        return _AVERAGE_COMMA.sub(r"\1.\2", line)
    if not _TYPE_WORD.search(line) or ":" in line:
        return line
    return _DECIMAL_COMMA.sub(r"\1.\2", _THOUSANDS.sub(lambda number: number[0].replace(",", ""), line))


@dataclass(frozen=True)
class Columns:
    """The columns to the right of ``type``, as named in the header."""

    root: bool | None = None  # whether there is a root column; None: no header found
    redop: bool | None = None  # the same for the operation, which alltoall leaves blank up to 2.12
    half: int = 4  # number of columns of one half: time algbw busbw check [i_min …]
    halves: int = 2  # 1 for broadcast in version 1.0.0, which has no in-place half
    shown: int = 2  # number of halves in the header; the second may be missing
    more: bool = False  # whether columns follow the two halves (timestamp, #iters)
    counts_wrong: bool = True  # False: the check column has the largest error, up to 2.12
    in_ms: bool = False  # version 1.0.0 prints time in ms
    added: tuple[str, ...] = ()  # names of the columns after the fourth of a half: i_min …


def header(line: str) -> Columns | None:
    """Read a line with the column names; return None for any other line."""
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
        redop="redop" in right[: times[0]] or "op" in right[: times[0]],
        half=half,
        halves=1 if check == "res" and len(times) == 1 else 2,
        shown=len(times),
        more=len(right) > times[0] + half * len(times),
        counts_wrong=check.endswith("wrong"),
        in_ms=check == "res",
        added=tuple(right[times[0] + 4 : times[0] + half]) if half > 4 else (),
    )


@dataclass
class RowBuilder:
    """A row that may continue on a later line."""

    line: int
    bytes: int
    count: int
    dtype: str
    columns: Columns
    text: str
    redop: str | None = None
    root: int | None = None
    values: list[str] = field(default_factory=list)
    torn: bool = False  # whether its last number is incomplete, so the next text is not the next number

    @property
    def wanted(self) -> int:
        """The number of values in a complete row."""
        return self.columns.half * self.columns.halves

    @property
    def complete(self) -> bool:
        """Whether the row has all values."""
        return len(self.values) >= self.wanted

    def continues(self, line: str) -> bool:
        """Add a line if it continues the row; return whether it does."""
        values, rest = _values(line, self.columns.half, len(self.values))
        missing = self.wanted - len(self.values)
        if not values or self.torn or (rest and not self.columns.more):
            return False
        inside = len(self.values) % self.columns.half
        if inside:
            expected = len(values) == missing
        else:
            expected = len(values) in (missing, self.columns.half) or (self.columns.more and len(values) > missing)
        if not expected:
            return False
        # a terminal that wrapped the line may have split a number
        if inside and not self._fits([*self.values[-inside:], *values][: self.columns.half]):
            return False
        self.values += values[:missing]
        self.text += " " + " ".join(values)
        return True

    def taken(self) -> tuple[Row | None, CutRow | None]:
        """Return (row, None) if the row is complete, else (None, truncated row).

        If only the first half is complete, both are returned.
        """
        first = self._half(0)
        second = self._half(1) if self.columns.halves == 2 else None
        complete = first is not None and (second is not None or self.columns.shown == 1)
        row = Row(self.line, self.bytes, self.count, self.dtype, self.redop, self.root, first, second)
        cut = CutRow(self.line, self.bytes, self.text.strip()[:200])
        return (row if first else None), (None if complete else cut)

    def _fits(self, half: Sequence[str]) -> bool:
        return len(half) > 1 and _is_rate(self.bytes, half[0], half[1], 1000 if self.columns.in_ms else 1)

    def _half(self, number: int) -> Measurement | None:
        own = self.values[number * self.columns.half :][: self.columns.half]
        tokens = own[:4]
        if len(tokens) < 4 or _UNCHECKED in tokens[:3]:
            return None
        time, algbw, busbw = (float(token.rstrip("*")) for token in tokens[:3])
        check = None if tokens[3] == _UNCHECKED else float(tokens[3].rstrip("*"))
        counted = self.columns.counts_wrong and check is not None and abs(check) < 1e18
        return Measurement(
            time_us=time * 1000 if self.columns.in_ms else time,
            algbw_gbytes_s=algbw,
            busbw_gbytes_s=busbw,
            wrong=int(check) if counted and check is not None else None,
            max_error=None if self.columns.counts_wrong else check,
            iterations=_iterations(dict(zip(self.columns.added, own[4:], strict=False))),
        )


def _iterations(columns: dict[str, str]) -> IterationTimes | None:
    """Return the values of the columns that ``-I`` adds; None without them."""
    times = IterationTimes(_time(columns.get("i_min", "")), _time(columns.get("i_max", "")),
                           _time(columns.get("i_p99", "")), _time(columns.get("i_cv%", "")))  # fmt: skip
    return times if times != IterationTimes(None, None, None, None) else None


def _time(token: str) -> float | None:
    value = float(token) if _VALUE.fullmatch(token) and not token.endswith("*") else math.nan
    return value if math.isfinite(value) else None


def open_row(number: int, line: str, columns: Columns | None) -> RowBuilder | None:
    """Read the row that starts on a line; return None if there is none.

    A row of an unknown type must be complete.
    """
    if not (match := _ROW.search(line)):
        return None
    has_header = columns is not None
    columns = columns or Columns()
    row = RowBuilder(
        number, int(match["bytes"]), int(match["count"]), match["type"], columns, line[match.start("bytes") :]
    )
    rest = line[match.end() :]
    if noise := _NOISE.search(rest):
        rest = rest[: noise.start()]
    tokens = rest.split()
    if tokens and _REDOP.fullmatch(tokens[0]):
        row.redop = tokens.pop(0)
    has_root = columns.root
    if has_root is None:
        has_root = _has_root(row.bytes, _values(" ".join(tokens), 4)[0])
        if has_root is None:
            return row if _TYPES.fullmatch(row.dtype) else None
        columns = row.columns = replace(columns, root=has_root)
    if has_root and tokens and re.fullmatch(r"-?\d{1,7}", tokens[0]):
        row.root = int(tokens.pop(0))
    values, rest = _values(" ".join(tokens), columns.half)
    row.values = values[: row.wanted]
    row.torn = not row.complete and rest[:1] in tuple("-.0123456789")
    if not has_header and any(_DIFFERENCE.fullmatch(value) for value in row.values[3::4]):
        row.columns = replace(columns, counts_wrong=False)
    known = _TYPES.fullmatch(row.dtype) is not None
    # bandwidths have decimals; a word with integers is the output of another tool
    return row if known or (row.complete and all("." in value for value in row.values[1:3])) else None


def _has_root(size: int, values: Sequence[str]) -> bool | None:
    """Return whether a row without a header has a root column; None if unclear.

    With the correct columns, size / time is algbw. If that does not decide, the number of values does.
    """
    if len(values) == 1:  # the rest is printed after the measurement, and other output may precede it
        return values[0].lstrip("-").isdigit()
    fitting = [at == 1 for at in (0, 1) if len(values) > at + 1 and _is_rate(size, values[at], values[at + 1])]
    if len(fitting) == 1:
        return fitting[0]
    return len(values) == 9 if len(values) in (8, 9) else None


def _is_rate(size: int, time: str, algbw: str, us_in_unit: int = 1) -> bool:
    """Return whether a bandwidth in GB/s is a size divided by a time."""
    if _UNCHECKED in (time, algbw) or (time_us := float(time.rstrip("*")) * us_in_unit) <= 0:
        return False
    rate = size / time_us / 1000
    return abs(rate - float(algbw.rstrip("*"))) <= 0.005 + 0.01 * rate


def _values(text: str, half: int, at: int = 0) -> tuple[list[str], str]:
    """Return the values at the start of a text, and the remaining text.

    The first four columns of a half are numbers; columns that options add may be words (-U adds algo, proto, …).
    """
    if noise := _NOISE.search(text):
        text = text[: noise.start()]
    tokens = text.split()
    taken: list[str] = []
    for place, token in enumerate(tokens, at):
        if place % half < 4 and token != _UNCHECKED and not _VALUE.fullmatch(token):
            break
        taken.append(token)
    return taken, " ".join(tokens[len(taken) :])
