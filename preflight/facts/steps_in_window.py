"""Steps of a job's log that ran while counters of its nodes were read twice.

Step lines need no time stamps: the last one is as old as the file, and each step ended when the next one began.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import datetime, timezone

from preflight.parsers.training.iteration_log import TrainingStep

#: Seconds by which the times of two machines, and of the file, may differ.
SLACK_S = 5.0
_STAMP = re.compile(r"(?<!\d)(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?!\d)")
#: Time zones differ by a multiple of this, seconds.
_ZONE_S = 900


def seconds_since_1970(at: str) -> float | None:
    """Return an evidence time as seconds since 1970; None if it is not a time."""
    try:
        return datetime.strptime(at, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return None


def contradicts(line: str, written: float) -> bool:
    """Return whether a line's time stamp contradicts the time of its file.

    The time zone of the stamp is unknown, so only a difference that no time zone explains is a contradiction.
    """
    stamp = _STAMP.search(line[:2000])
    printed = seconds_since_1970(f"{stamp[1]}T{stamp[2]}Z") if stamp else None
    if printed is None:
        return False
    apart = (written - printed) % _ZONE_S
    return min(apart, _ZONE_S - apart) > SLACK_S


def times_within(steps: Sequence[TrainingStep], written: float, begin: float, end: float) -> list[float] | None:
    """Return the times in seconds of the steps that ran in a window.

    ``written`` is when the last step ended. None if the log does not cover the window, or a step has no time. A line
    for several steps counts once, with their mean.
    """
    if written < end - SLACK_S:
        return None
    inside: list[float] = []
    finish = written
    for at in range(len(steps) - 1, -1, -1):
        length, number = steps[at].step_time_s, steps[at].step
        if length is None or not 0 < length < math.inf:
            return None
        before = steps[at - 1].step if at else None
        several = max(1, number - before) if number is not None and before is not None else 1
        start = finish - length * several
        if start < end and finish > begin:
            inside.append(length)
        if start <= begin:
            return inside[::-1]
        finish = start
    return None
