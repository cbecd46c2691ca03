"""``chronyc sources`` and ``ntpq -p``: a clock's time sources.

Sources: chronyc(1), ntpq(8).
"""

from __future__ import annotations

import re
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import block
from preflight.textprep.agreement import counted
from preflight.textprep.lines import Lines

HINTS = ("Stratum Poll Reach", "refid", "when poll reach")

_CHRONY = re.compile(r"(?:\S+\s+)?MS Name/IP address\s+Stratum Poll Reach LastRx Last sample\s*")
_NTPQ = re.compile(r"\s+remote\s+refid\s+st t when poll reach\s+delay\s+offset\s+jitter\s*")
_RULE = re.compile(r"={20,200}\s*")
_COUNT = re.compile(r"(?:210 )?Number of sources\s?= ?\d{1,4}")
_CHRONY_ROW = re.compile(r"([\^=#])([*+?x~-])\s+(\S{1,80})\s+(\d{1,2})\s+(-?\d{1,2})\s+([0-7]{1,3})\s+(\S{1,8})\s.*")
_NTPQ_ROW = re.compile(
    r"([*+#o.x\s-])(\S{1,60})\s+(\S{1,40})\s+(\d{1,2})\s+([a-zA-Z])\s+(\S{1,8})\s+(\d{1,6})\s+([0-7]{1,3})\s.*"
)


@dataclass(frozen=True)
class ClockSource:
    """One time server or reference clock."""

    name: str
    selected: bool
    stratum: int
    reach: int  # the last eight polls, one bit each: 1 if answered
    usable: bool  # reachable, and not a falseticker
    line: int


def begins(lines: Lines, at: int) -> bool:
    """Return whether a table of ``chronyc`` or ``ntpq`` begins at a line."""
    return _CHRONY.fullmatch(lines[at].text) is not None or _NTPQ.fullmatch(lines[at].text) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[tuple[ClockSource, ...]]:
    """Read the rows below the header."""
    end, taken = block(
        lines, at, lambda text: any(form.fullmatch(text) for form in (_RULE, _COUNT, _CHRONY_ROW, _NTPQ_ROW)), blanks=0
    )
    sources = []
    for line in taken[1:]:
        if match := _CHRONY_ROW.fullmatch(line.text):
            usable = match[2] in "*+-" and match[6] != "0"
            sources.append(ClockSource(match[3], match[2] == "*", int(match[4]), int(match[6], 8), usable, line.number))
        elif match := _NTPQ_ROW.fullmatch(line.text):
            usable = match[1] not in "x." and match[8] != "0"
            chosen = match[1] in "*o"
            sources.append(ClockSource(match[2], chosen, int(match[4]), int(match[8], 8), usable, line.number))
    gaps = () if sources else (ParseGap(lines[at].number, "no row follows the header"),)
    if end < len(lines) and lines[end].text.strip() and end == len(lines) - 1:
        gaps = (ParseGap(lines[end].number, "a truncated row"),)
    return Parsed(tuple(sources), gaps, end)


def facts(sources: tuple[ClockSource, ...]) -> dict[str, Any]:
    """Return the sources as `preflight read --json` prints them."""
    return {
        "sources": [
            {"name": source.name, "selected": source.selected, "stratum": source.stratum, "reach": source.reach,
             "line": source.line}
            for source in sources
        ]
    }  # fmt: skip


def summary(sources: tuple[ClockSource, ...]) -> str:
    """Return a one-line summary of the sources."""
    chosen = next((source.name for source in sources if source.selected), "none")
    return f"{counted(len(sources), 'time source')}; selected: {chosen}"
