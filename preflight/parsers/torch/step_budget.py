"""Breakdown of step time: each instant of a GPU belongs to one part.

Computation takes precedence over communication, and both over copies; at any other time, the GPU is idle. Idle time
while the data loader runs is attributed to the data. Other idle time before the first copy of a step to the GPU is
attributed to a wait of the CPU for the GPU until the wait has returned, and from then on to the data. In all other
cases, it is attributed to such a wait if it starts during or just after one, and otherwise to the CPU. Each of these
parts ends when the next activity has been launched. Idle time after that, or before an activity with an unknown launch,
is other idle time. Times are in microseconds.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from math import isnan
from typing import NamedTuple

from preflight.parsers.torch.gpu_work import COMMUNICATION, COMPUTE, COPY, COPY_TO_GPU, GpuWork
from preflight.parsers.torch.intervals import Coverage, Spans, Stretch, clipped, outside, total, without

#: Time after a CPU wait during which the wait still explains an idle GPU.
_JUST_AFTER_US = 20.0
#: Time from a launch call to the start of the kernel on an idle GPU: 5 to 10 µs, more under a profiler.
_LAUNCH_US = 20.0
_UNKNOWN = float("nan")


class StepBudget(NamedTuple):
    """The parts of the steps' time on one GPU, in microseconds."""

    all: float
    compute: float
    communication: float  # exposed: no kernel computes at the same time
    copies: float  # exposed
    idle_data: float
    idle_sync: float
    idle_host: float
    idle_other: float

    @property
    def idle(self) -> float:
        """The time in which the GPU is idle."""
        return self.idle_data + self.idle_sync + self.idle_host + self.idle_other


class QuietIdle:
    """A GPU's idle time while the CPU runs nothing, by part of the budget."""

    def __init__(self, spans: Spans) -> None:
        self._spans = spans
        self.parts: list[dict[str, float]] = [{} for _ in spans]

    def add(self, begin: float, end: float, idle: Mapping[str, float]) -> None:
        """Add the parts of the idle time of the GPU between two instants."""
        spans, idle = self._spans, dict(idle)
        for at in range(bisect_right(spans.ends, begin), bisect_left(spans.begins, end)):
            left = min(spans.ends[at], end) - max(spans.begins[at], begin)
            for part, time in idle.items():
                taken = min(left, time)
                self.parts[at][part] = self.parts[at].get(part, 0.0) + taken
                idle[part], left = time - taken, left - taken


class BusyTime:
    """The intervals in which a GPU computes, communicates or copies.

    ``bare`` is communication without computation; ``copying`` is copies without computation or communication.
    ``begin`` and ``end`` are those of all its work.
    """

    def __init__(self, work: GpuWork) -> None:
        """Compute the intervals; ``work`` must be in time order."""
        self.compute = work.joined(COMPUTE)
        self.talk = work.joined(COMMUNICATION)
        self.copies = work.joined(COPY, COPY_TO_GPU)
        self.bare = without(self.talk, self.compute)
        self.copying = without(without(self.copies, self.compute), self.talk)
        self.begin, self.end = min(work.begins, default=0.0), max(work.ends, default=0.0)

    def gaps(self, windows: Sequence[Stretch]) -> Iterator[Stretch]:
        """Yield the GPU's idle intervals within these joined intervals."""
        return outside(outside(outside(windows, self.compute), self.bare), self.copying)


class Activities:
    """The activities of a GPU in time order, with their launch times and kinds."""

    def __init__(self, begins: Sequence[float], launches: Sequence[float], kinds: Sequence[int]) -> None:
        """Set start times, launch times (NaN: unknown) and kinds of ``gpu_work``."""
        self.begins, self._launches, self._kinds = begins, launches, kinds

    def launch(self, place: int) -> float | None:
        """Return the launch time of an activity; None if it or the activity is unknown."""
        if not 0 <= place < len(self._launches) or isnan(self._launches[place]):
            return None
        return self._launches[place]

    def to_gpu(self, place: int) -> bool:
        """Return whether an activity is a copy from the host."""
        return self._kinds[place] == COPY_TO_GPU


def budget(
    windows: Sequence[Stretch],
    busy: BusyTime,
    activities: Activities,
    loads: Sequence[Stretch],
    waits: Spans,
    quiet: QuietIdle | None = None,
) -> StepBudget:
    """Divide the time of the windows; all intervals are joined and in time order.

    The parts of idle time that are not of the data loader are also added to ``quiet``.
    """
    loading = Coverage(loads)
    idle = dict.fromkeys(("idle_data", "idle_sync", "idle_host", "idle_other"), 0.0)
    for begin, end in busy.gaps(windows):
        following = bisect_left(activities.begins, end)
        launch = activities.launch(following)
        launched = end if launch is None else min(max(launch + _LAUNCH_US, begin), end)
        loaded = loading.within(begin, launched)
        rest = launched - begin - loaded
        waited = _waits_at(waits, begin)
        if launch is None:
            parts = {"idle_other": rest}
        elif activities.to_gpu(following) and _first_of_window(windows, activities, following):
            synchronised = min(rest, waits.within(begin, launched) + _JUST_AFTER_US) if waited else 0.0
            parts = {"idle_data": rest - synchronised, "idle_sync": synchronised}
        else:
            parts = {"idle_sync" if waited else "idle_host": rest}
        if quiet is not None:
            quiet.add(begin, launched, parts)
        for part, time in (*parts.items(), ("idle_data", loaded), ("idle_other", end - launched)):
            idle[part] += time
    compute, bare, copying = (total(clipped(spans, windows)) for spans in (busy.compute, busy.bare, busy.copying))
    return StepBudget(total(windows), compute, bare, copying, **idle)


def _waits_at(waits: Spans, instant: float) -> bool:
    """Return whether the CPU waits for the GPU at an instant, or did just before it."""
    place = bisect_right(waits.begins, instant) - 1
    return place >= 0 and instant <= waits.ends[place] + _JUST_AFTER_US


def _first_of_window(windows: Sequence[Stretch], activities: Activities, place: int) -> bool:
    """Return whether an activity is the first that is launched in its step."""
    launch, before = activities.launch(place), activities.launch(place - 1)
    if launch is None or (before is None and place > 0):
        return False
    window = bisect_right(windows, (launch, float("inf"))) - 1
    return window >= 0 and (before is None or before < windows[window][0])
