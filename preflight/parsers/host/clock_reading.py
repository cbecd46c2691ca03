"""A node's clock, from ``chronyc -n tracking`` or ``timedatectl show``."""

from __future__ import annotations

import re

from preflight._startup.lightclass import dataclass

#: chrony's leap status -> whether the clock is synchronised.
_LEAP = {"Normal": True, "Insert second": True, "Delete second": True, "Not synchronised": False}
_OFFSET = re.compile(r"(\d{1,12}\.\d{1,12}) seconds (fast|slow) of NTP time")
_LEAP_LINE = re.compile(r"^Leap status[ \t]*:([^\n]*)$", re.MULTILINE)
_TIME_LINE = re.compile(r"^System time[ \t]*:[ \t]*([^\n]*)$", re.MULTILINE)
_SHOWN = re.compile(r"^NTPSynchronized=(yes|no)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class ClockReading:
    """Whether the clock is synchronised, and its offset."""

    synchronised: bool
    offset_s: float | None  # seconds ahead of true time; None if not synchronised or not printed


def is_synchronised(leap: str) -> bool | None:
    """Return whether a leap status means synchronised; None if the status is unknown."""
    return _LEAP.get(leap)


def offset_s(system_time: str) -> float | None:
    """Return how many seconds the clock is ahead; None if the text has no offset."""
    match = _OFFSET.match(system_time)
    return float(match[1]) * (1 if match[2] == "fast" else -1) if match else None


def parse_tracking(text: str) -> ClockReading:
    """Read ``chronyc tracking``; raises ValueError."""
    leap, time = _LEAP_LINE.search(text), _TIME_LINE.search(text)
    offset = offset_s(time[1]) if time else None
    if not leap or offset is None:
        raise ValueError(f"{text.strip()[:80]!r} has no lines 'System time' and 'Leap status'")
    if (synchronised := is_synchronised(leap[1].strip())) is None:
        raise ValueError(f"the leap status {leap[1].strip()[:40]!r} is not known")
    return ClockReading(synchronised, offset if synchronised else None)


def parse_show(text: str) -> ClockReading:
    """Read ``timedatectl show``, which has no offset; raises ValueError."""
    if not (match := _SHOWN.search(text)):
        raise ValueError(f"{text.strip()[:80]!r} has no line 'NTPSynchronized'")
    return ClockReading(match[1] == "yes", None)
