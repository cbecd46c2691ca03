"""``nvidia-smi dmon``, ``pmon`` and ``dcgmi dmon``: one row per GPU and sample.

The header names the columns, and the line below it their units. Source: nvidia-smi(1), "dmon" and "pmon".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import is_prompt
from preflight.textprep.agreement import counted
from preflight.textprep.lines import Lines

HINTS = ("# gpu", "#gpu", "#Date", "#Time", "# Entity", "#Entity")

_HEAD = re.compile(r"\s*#\s?(?:Date\s+)?(?:Time\s+)?(?:gpu|Entity)\s+\S.*")
_UNITS = re.compile(r"\s*(?:#\s?(?:YYYYMMDD\s+)?(?:HH:MM:SS\s+)?Idx\b.*|#\s?YYYYMMDD.*|ID(?:\s+\S.{0,400})?)")
_CELL = re.compile(r"-?\d{1,20}(?:\.\d{1,9})?")
_ENTITY = re.compile(r"\s*(?:GPU|Switch|CPU|GPU-I|GPU-CI|Core)\s+(\S{1,20})\s+")
#: Maximum rows of one table.
MOST_ROWS = 4096


@dataclass(frozen=True)
class MonitorRow:
    """One sample of one GPU; a value printed as ``-`` or ``N/A`` is None."""

    gpu: str
    line: int
    values: Mapping[str, float | str | None]  # by column name, in lower case


def begins(lines: Lines, at: int) -> bool:
    """Return whether a table of ``dmon`` or ``pmon`` begins at a line."""
    if not _HEAD.fullmatch(lines[at].text):
        return False
    return any(_UNITS.fullmatch(line.text) or _ENTITY.match(line.text) for line in lines[at + 1 : at + 3])


def parse_lines(lines: Lines, at: int) -> Parsed[tuple[MonitorRow, ...]]:
    """Read the table that begins at a line; its header may be repeated."""
    columns = _columns(lines[at].text)
    rows: list[MonitorRow] = []
    gaps: list[ParseGap] = []
    end, last = at + 1, at
    while end < len(lines):
        text = lines[end].text
        if _HEAD.fullmatch(text):
            columns = _columns(text)
        elif not _UNITS.fullmatch(text):
            if not text.strip() or is_prompt(text):
                break
            row = _row(columns, text, lines[end].number)
            if row is None:
                if not _CELL.match(text.strip()) and not _ENTITY.match(text):
                    break
                gaps.append(ParseGap(lines[end].number, "the row is truncated: it has fewer cells than the header"))
            elif len(rows) < MOST_ROWS:
                rows.append(row)
        last = end
        end += 1
    if not rows:
        gaps.append(ParseGap(lines[at].number, "no row follows the header"))
    return Parsed(tuple(rows), tuple(gaps), last + 1)


def _columns(text: str) -> list[str]:
    return text.replace("#", " ", 1).lower().split()


def _row(columns: list[str], text: str, line: int) -> MonitorRow | None:
    if match := _ENTITY.match(text):
        text = f"{match[1]} {text[match.end() :]}"
    # a command may contain spaces
    cells = text.split(None, len(columns) - 1) if columns[-1] == "command" else text.split()
    if len(cells) != len(columns):
        return None
    values = dict(zip(columns, map(_value, cells), strict=True))
    place = next((name for name in ("gpu", "entity") if name in values), columns[0])
    gpu = values.pop(place)
    return MonitorRow(str(int(gpu)) if isinstance(gpu, float) else str(gpu), line, values)


def _value(cell: str) -> float | str | None:
    if cell in ("-", "N/A"):
        return None
    return float(cell) if _CELL.fullmatch(cell) else cell.strip()


def largest(rows: tuple[MonitorRow, ...], column: str) -> Iterator[tuple[str, float, int]]:
    """Yield each GPU, its largest value in a column, and the line of that value."""
    highest: dict[str, tuple[float, int]] = {}
    for row in rows:
        value = row.values.get(column)
        if isinstance(value, float) and (row.gpu not in highest or value > highest[row.gpu][0]):
            highest[row.gpu] = value, row.line
    for gpu, (value, line) in highest.items():
        yield gpu, value, line


def facts(rows: tuple[MonitorRow, ...]) -> dict[str, Any]:
    """Return the rows as `preflight read --json` prints them."""

    def plain(value: float | str | None) -> float | int | str | None:
        return int(value) if isinstance(value, float) and value.is_integer() else value

    return {"rows": [{"gpu": row.gpu, **{name: plain(value) for name, value in row.values.items()}} for row in rows]}


def summary(rows: tuple[MonitorRow, ...]) -> str:
    """Return a one-line summary of the rows."""
    return f"{counted(len(rows), 'reading')} of {counted(len({row.gpu for row in rows}), 'GPU')}"
