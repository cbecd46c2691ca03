"""``ipmitool sel list`` and ``sel elist``: the BMC's log of hardware events.

Sources: ipmitool(1); IPMI 2.0, tables 42-2 and 42-3 (events of sensors).
"""

from __future__ import annotations

import re
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import block
from preflight.textprep.agreement import counted
from preflight.textprep.lines import Lines

HINTS = (" | ",)

_ROW = re.compile(
    r"\s{0,8}([0-9a-f]{1,4}) \| {1,2}(\d{2}/\d{2}/\d{2,4}|Pre-Init *) *\| *"
    r"(\d{2}:\d{2}:\d{2}(?: [AP]M)?(?: [A-Z]{2,5})?|\d{1,10}) *\| ([^|]{1,80}?) *\| ([^|]{1,120}?) *"
    r"(?:\| *(Asserted|Deasserted) *(?:\| [^|]{0,200})?)?"
)


@dataclass(frozen=True)
class SystemEvent:
    """One entry of the BMC's event log."""

    number: int
    date: str
    time: str
    sensor: str  # type and name, as in "Memory DIMM_B2"
    event: str
    asserted: bool  # False if the state has ended
    line: int


def begins(lines: Lines, at: int) -> bool:
    """Return whether a BMC event log begins at a line."""
    return _ROW.fullmatch(lines[at].text) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[tuple[SystemEvent, ...]]:
    """Read the entries starting at a line."""
    end, taken = block(lines, at, lambda text: _ROW.fullmatch(text) is not None, blanks=0)
    entries = tuple(_entry(line.number, match) for line in taken if (match := _ROW.fullmatch(line.text)))
    last = lines[end - 1].text.count("|") < _CELLS
    cut = last or (end < len(lines) and _BEGUN.match(lines[end].text) is not None)
    gaps = (ParseGap(lines[end - 1].number, "the log is truncated"),) if cut else ()
    return Parsed(entries[:-1] if last and len(entries) > 1 else entries, gaps, end)


#: Number of separators in an entry with a direction, and the beginning of an entry.
_CELLS = 5
_BEGUN = re.compile(r"\s{0,8}[0-9a-f]{1,4}(?: \||\s*$)")


def _entry(number: int, match: re.Match[str]) -> SystemEvent:
    return SystemEvent(
        int(match[1], 16), match[2].strip(), match[3], match[4], match[5], match[6] != "Deasserted", number
    )


def facts(entries: tuple[SystemEvent, ...]) -> dict[str, Any]:
    """Return the entries as `preflight read --json` prints them."""
    return {
        "events": [
            {"id": entry.number, "date": entry.date, "time": entry.time, "sensor": entry.sensor, "event": entry.event,
             "asserted": entry.asserted, "line": entry.line}
            for entry in entries
        ]
    }  # fmt: skip


def summary(entries: tuple[SystemEvent, ...]) -> str:
    """Return a one-line summary of the log."""
    return f"{counted(len(entries), 'entry', 'entries')} in the BMC's log"
