"""``systemctl list-units`` in pasted text: units and their states.

Source: systemctl(1).
"""

from __future__ import annotations

import re
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import block
from preflight.textprep.agreement import counted
from preflight.textprep.lines import Lines

HINTS = ("LOAD", "loaded units listed", "units listed", ".service", ".mount")

_HEAD = re.compile(r"\s*UNIT\s+LOAD\s+ACTIVE\s+SUB\s+(?:JOB\s+)?DESCRIPTION\s*")
_ROW = re.compile(
    r"[●*↻x ]{0,4}([^\s.]\S{0,255}\.[a-z]{4,9}) +([a-z-]{2,20}) +([a-z-]{2,20}) +([a-z-]{2,20})(?: +(.*))?"
)
_LEGEND = re.compile(
    r"\s*(?:Legend: )?(?:LOAD|ACTIVE|SUB|JOB)\s+(?:=|→).*|\s+SUB\s.*|To show all installed.*|.*pass -?-?all.*"
)
_COUNT = re.compile(r"\s*(\d{1,6}) (?:loaded )?units? listed\..*")


@dataclass(frozen=True)
class ListedUnit:
    """One systemd unit in the list."""

    name: str
    load: str
    active: str
    sub: str
    description: str
    line: int


def begins(lines: Lines, at: int) -> bool:
    """Return whether a list of units begins at a line."""
    text = lines[at].text
    match = _ROW.fullmatch(text)
    return _HEAD.fullmatch(text) is not None or (match is not None and match[2] in _LOADS and match[3] in _STATES)


_LOADS = frozenset(("loaded", "not-found", "masked", "error", "bad-setting"))
_STATES = frozenset(("active", "inactive", "failed", "activating", "deactivating", "reloading"))


def parse_lines(lines: Lines, at: int) -> Parsed[tuple[ListedUnit, ...]]:
    """Read the rows starting at a line."""
    end, taken = block(
        lines, at, lambda text: any(form.fullmatch(text) for form in (_HEAD, _ROW, _LEGEND, _COUNT)), blanks=1
    )
    units = tuple(
        ListedUnit(match[1], match[2], match[3], match[4], (match[5] or "").strip(), line.number)
        for line in taken
        if (match := _ROW.fullmatch(line.text)) and match[2] in _LOADS
    )
    counts = [int(match[1]) for line in taken if (match := _COUNT.fullmatch(line.text))]
    gaps = (
        () if counts and counts[-1] == len(units) else (ParseGap(taken[-1].number, "the list of units is truncated"),)
    )
    return Parsed(units, gaps, end)


def facts(units: tuple[ListedUnit, ...]) -> dict[str, Any]:
    """Return the units as `preflight read --json` prints them."""
    return {
        "units": [
            {"name": unit.name, "load": unit.load, "active": unit.active, "sub": unit.sub,
             "description": unit.description or None, "line": unit.line}
            for unit in units
        ]
    }  # fmt: skip


def summary(units: tuple[ListedUnit, ...]) -> str:
    """Return a one-line summary of the units."""
    return f"{counted(len(units), 'unit')}, {sum(unit.active == 'failed' for unit in units)} of them failed"
