"""``ipmitool sdr``, ``sdr elist`` and ``sensor``: sensors of the BMC.

Sources: ipmitool(1); IPMI 2.0, table 42-3; ipmitool's ``ipmi_sdr_get_thresh_status``.
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

#: Short and long forms of the state of a sensor with thresholds; ``ns`` and ``na`` mean no reading.
_STATES = "ok|ns|nc|cr|nr|lnc|lcr|lnr|unc|ucr|unr|na|us"
_SDR = re.compile(rf"([^|]{{1,40}}?) +\| ([^|]{{1,100}}?) +\| ({_STATES})\s*")
_ELIST = re.compile(
    rf"([^|]{{1,40}}?) +\| ([0-9A-F]{{2}})h \| ({_STATES}) +\| {{1,3}}\d{{1,3}}\.\d{{1,3}} \|(?: ([^|]{{1,200}}?))?\s*"
)
_SENSOR = re.compile(
    rf"([^|]{{1,40}}?) *\| ([^|]{{1,20}}?) *\| ([^|]{{1,40}}?) *\| ({_STATES}|0x[0-9a-fA-F]{{4}}) *"
    r"((?:\| [^|]{1,20}? *){6})\s*"
)


@dataclass(frozen=True)
class SensorRow:
    """One sensor of the BMC."""

    name: str
    reading: str  # with its unit, or the states of a discrete sensor; empty if there is none
    state: str  # ok, nc, cr, ...; for a discrete sensor in `ipmitool sensor`, a mask such as 0x0180
    line: int


def begins(lines: Lines, at: int) -> bool:
    """Return whether a list of sensors begins at a line.

    A row of three cells may belong to a different table, so it must have a unit, or a second row must follow.
    """
    if _row(lines[at].text, 0) is None:
        return False
    return (
        not _SDR.fullmatch(lines[at].text)
        or any(_row(line.text, 0) for line in lines[at + 1 : at + 2])
        or (_UNIT.search(lines[at].text) is not None)
    )


_UNIT = re.compile(r"degrees C|RPM|Volts|Watts|Amps| percent|0x[0-9a-f]{2} +\|")


def _row(text: str, number: int) -> SensorRow | None:
    if match := _ELIST.fullmatch(text):
        return SensorRow(match[1].strip(), match[4] or "", match[3], number)
    if match := _SENSOR.fullmatch(text):
        reading = match[2] if match[3] in ("discrete", "") else f"{match[2]} {match[3]}"
        return SensorRow(match[1].strip(), reading, match[4], number)
    if match := _SDR.fullmatch(text):
        return SensorRow(match[1].strip(), match[2], match[3], number)
    return None


def parse_lines(lines: Lines, at: int) -> Parsed[tuple[SensorRow, ...]]:
    """Read the rows starting at a line."""
    end, taken = block(lines, at, lambda text: _row(text, 0) is not None, blanks=0)
    rows = tuple(row for line in taken if (row := _row(line.text, line.number)))
    cut = end < len(lines) and " | " in lines[end].text
    gaps = (ParseGap(lines[end].number, "a truncated or unknown row"),) if cut else ()
    return Parsed(rows, gaps, end)


def facts(rows: tuple[SensorRow, ...]) -> dict[str, Any]:
    """Return the rows as `preflight read --json` prints them."""
    return {
        "sensors": [{"name": row.name, "reading": row.reading, "state": row.state, "line": row.line} for row in rows]
    }


def summary(rows: tuple[SensorRow, ...]) -> str:
    """Return a one-line summary of the sensors."""
    return f"{counted(len(rows), 'sensor')} of the BMC"
