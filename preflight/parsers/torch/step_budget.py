"""Where the time of the steps goes: each instant of a GPU belongs to one part.

Computing comes first, then communication that nothing hides, then copies; the rest is idle. An idle stretch that
begins while or just after the CPU waits for the GPU is due to that wait; one under the data loader, or before the
first copy of a step to the GPU, is due to the data; else the CPU had launched nothing up to the launch of what runs
next, and what is left is the start of a kernel that was launched already. Times are microseconds.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from preflight.parsers.torch.intervals import Coverage, Stretch, clipped, total, without

#: How long after the end of a wait of the CPU the GPU may run dry because of it.
_JUST_AFTER_US = 20.0


class StepBudget(NamedTuple):
    """Parts of the steps' time on one GPU, microseconds."""

    all: float
    compute: float
    communication: float  # bare: nothing computes meanwhile
    copies: float  # bare
    idle_data: float
    idle_sync: float
    idle_host: float
    idle_other: float

    @property
    def idle(self) -> float:
        """Time in which the GPU does nothing."""
        return self.idle_data + self.idle_sync + self.idle_host + self.idle_other


class Activity(NamedTuple):
    """Something that the GPU does: its begin, and that of its launch, if known."""

    begin: float
    launch: float | None
    to_gpu: bool  # a copy from the host


def budget(
    windows: Sequence[Stretch],
    compute: Sequence[Stretch],
    communication: Sequence[Stretch],
    copies: Sequence[Stretch],
    activities: Sequence[Activity],
    loads: Sequence[Stretch],
    waits: Sequence[Stretch],
) -> StepBudget:
    """Divide the windows; each list is in order of time, and joined."""
    bare = without(communication, compute)
    copying = without(without(copies, compute), communication)
    gaps = windows
    for busy in (compute, communication, copies):
        gaps = without(gaps, busy)
    loading = Coverage(loads)
    begins = [activity.begin for activity in activities]
    data = sync = host = other = 0.0
    for begin, end in gaps:
        following = bisect_left(begins, end)
        activity = activities[following] if following < len(begins) else None
        if activity is None or activity.launch is None:
            loaded = loading.within(begin, end)
            data, other = data + loaded, other + end - begin - loaded
            continue
        launched = min(max(activity.launch, begin), end)
        other += end - launched
        loaded = loading.within(begin, launched)
        data += loaded
        rest = launched - begin - loaded
        if _waits_at(waits, begin):
            sync += rest
        elif activity.to_gpu and _first_of_window(windows, begins, activities, following):
            data += rest
        else:
            host += rest
    return StepBudget(total(windows), total(clipped(compute, windows)), total(clipped(bare, windows)),
                      total(clipped(copying, windows)), data, sync, host, other)  # fmt: skip


def _waits_at(waits: Sequence[Stretch], instant: float) -> bool:
    """Return whether the CPU waits for the GPU at an instant, or did just before."""
    place = bisect_right(waits, (instant, float("inf"))) - 1
    return place >= 0 and instant <= waits[place][1] + _JUST_AFTER_US


def _first_of_window(
    windows: Sequence[Stretch], begins: Sequence[float], activities: Sequence[Activity], place: int
) -> bool:
    """Return whether a copy to the GPU was launched first in its step."""
    launch = activities[place].launch
    if launch is None or place == 0:
        return False
    window = bisect_right(windows, (launch, float("inf"))) - 1
    before = activities[place - 1].launch
    return window >= 0 and before is not None and before < windows[window][0]
