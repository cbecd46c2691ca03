"""Where the time of the steps goes: each instant of a GPU belongs to one part.

Computing comes first, then exposed communication, then copies; the rest is idle. An idle stretch that
begins while or just after the CPU waits for the GPU is due to that wait; one under the data loader, or before the
first copy of a step to the GPU, is due to the data; else the CPU had launched nothing up to the launch of what runs
next, and what is left is the start of a kernel that was launched already. Times are microseconds.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from math import isnan
from typing import NamedTuple

from preflight.parsers.torch.intervals import Coverage, Stretch, clipped, total, without

#: How long after the end of a wait of the CPU the GPU may run dry because of it.
_JUST_AFTER_US = 20.0
_UNKNOWN = float("nan")


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


class Activities:
    """What a GPU does, in order of time: begins, those of the launches, kinds."""

    def __init__(self) -> None:
        self.begins = array("d")
        self.launches = array("d")  # NaN: unknown
        self.to_gpu = array("b")  # whether it is a copy from the host

    def add(self, begin: float, launch: float | None, to_gpu: bool) -> None:
        """Add one behind all others."""
        self.begins.append(begin)
        self.launches.append(_UNKNOWN if launch is None else launch)
        self.to_gpu.append(to_gpu)

    def launch(self, place: int) -> float | None:
        """Return when one was launched; None if unknown, or if there is none there."""
        if not 0 <= place < len(self.launches) or isnan(self.launches[place]):
            return None
        return self.launches[place]


def budget(
    windows: Sequence[Stretch],
    compute: Sequence[Stretch],
    communication: Sequence[Stretch],
    copies: Sequence[Stretch],
    activities: Activities,
    loads: Sequence[Stretch],
    waits: Sequence[Stretch],
) -> StepBudget:
    """Divide the windows; each list is in order of time, and joined."""
    bare = without(communication, compute)
    copying = without(without(copies, compute), communication)
    gaps: Sequence[Stretch] = windows
    for busy in (compute, communication, copies):
        gaps = without(gaps, busy)
    loading = Coverage(loads)
    data = sync = host = other = 0.0
    for begin, end in gaps:
        following = bisect_left(activities.begins, end)
        launch = activities.launch(following)
        if launch is None:
            loaded = loading.within(begin, end)
            data, other = data + loaded, other + end - begin - loaded
            continue
        launched = min(max(launch, begin), end)
        other += end - launched
        loaded = loading.within(begin, launched)
        data += loaded
        rest = launched - begin - loaded
        if _waits_at(waits, begin):
            sync += rest
        elif activities.to_gpu[following] and _first_of_window(windows, activities, following):
            data += rest
        else:
            host += rest
    return StepBudget(total(windows), total(clipped(compute, windows)), total(clipped(bare, windows)),
                      total(clipped(copying, windows)), data, sync, host, other)  # fmt: skip


def _waits_at(waits: Sequence[Stretch], instant: float) -> bool:
    """Return whether the CPU waits for the GPU at an instant, or did just before."""
    place = bisect_right(waits, (instant, float("inf"))) - 1
    return place >= 0 and instant <= waits[place][1] + _JUST_AFTER_US


def _first_of_window(windows: Sequence[Stretch], activities: Activities, place: int) -> bool:
    """Return whether a copy to the GPU was launched first in its step."""
    launch, before = activities.launch(place), activities.launch(place - 1)
    if launch is None or before is None:
        return False
    window = bisect_right(windows, (launch, float("inf"))) - 1
    return window >= 0 and before < windows[window][0]
