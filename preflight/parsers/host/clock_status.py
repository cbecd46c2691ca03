"""``timedatectl`` and ``chronyc tracking``: whether the clock is synchronised."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from preflight._startup.lightclass import dataclass, field
from preflight.parsers.host.clock_reading import is_synchronised, offset_s
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import block
from preflight.parsers.text_block import field as field_of
from preflight.textprep.lines import Lines

HINTS = ("Local time:", "System clock synchronized:", "Reference ID", "Leap status")

_HEAD = re.compile(r"\s*(?:Local time: .*|System clock synchronized: (?:yes|no)\s*|Reference ID\s{1,8}: .*)")


@dataclass(frozen=True)
class ClockStatus:
    """The state of the clock; a value that the text lacks is None."""

    synchronised: bool | None
    offset_s: float | None  # seconds ahead of true time
    service: str | None
    line: int
    stratum: int | None = None
    fields: Mapping[str, str] = field(default_factory=dict)  # as printed


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``timedatectl`` or ``chronyc tracking`` output begins at a line."""
    return _HEAD.fullmatch(lines[at].text) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[ClockStatus]:
    """Read the fields starting at a line."""
    end, taken = block(lines, at, lambda text: field_of(text) is not None, blanks=0)
    fields = dict(pair for line in taken[::-1] if (pair := field_of(line.text)) is not None)
    word = fields.get("System clock synchronized") or fields.get("NTP synchronized")
    leap = fields.get("Leap status")
    synchronised = {"yes": True, "no": False}.get(word) if word else None
    if leap is not None:
        synchronised = is_synchronised(leap)
    ahead_s = offset_s(fields.get("System time", "")) if synchronised else None
    what = f"the leap status {leap[:40]!r} is not known" if leap else "the synchronisation state is missing"
    gaps = () if synchronised is not None else (ParseGap(lines[at].number, what),)
    service = fields.get("NTP service") or fields.get("systemd-timesyncd.service active")
    stratum = fields.get("Stratum", "")
    layer = int(stratum) if re.fullmatch(r"\d{1,3}", stratum) else None
    return Parsed(ClockStatus(synchronised, ahead_s, service, lines[at].number, layer, fields), gaps, end)


def facts(clock: ClockStatus) -> dict[str, Any]:
    """Return the clock as `preflight read --json` prints it."""
    return {"synchronised": clock.synchronised, "offset_s": clock.offset_s, "service": clock.service,
            "stratum": clock.stratum, "fields": dict(clock.fields)}  # fmt: skip


def summary(clock: ClockStatus) -> str:
    """Return a one-line summary of the clock."""
    if clock.synchronised is None:
        return "the clock's state is not shown"
    return "the clock is synchronised" if clock.synchronised else "the clock is not synchronised"
