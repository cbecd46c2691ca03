"""CPU calls that launch kernels, joined to them by Kineto's ``correlation``.

They show which kernels belong to a backward pass, and how long a copy blocks the CPU. The backward pass consists of the
evaluations of PyTorch's autograd engine (``autograd::engine::evaluate_function: …``); the optimizer's part consists of
the calls below ``Optimizer.step#…``. Times are in microseconds.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from preflight.parsers.torch.gpu_work import COMPUTE, GpuWork, number_of
from preflight.parsers.torch.intervals import Spans, Stretch, Stretches, in_order
from preflight.parsers.torch.step_budget import Activities

#: Maximum number of launching threads that are distinguished; further ones count as one.
_MOST_THREADS = 256

#: If other kernels between those of a backward pass take more than this fraction of a step, they are a forward pass.
_FORWARD = 0.02

_DEVICE = "DeviceSynchronize"
_UNKNOWN = float("nan")


class BackwardPass(NamedTuple):
    """The last backward pass of a step on a GPU, and the time after it."""

    step: int  # index of the step
    begin: float
    end: float
    until: float  # start of the optimizer's first kernel, or of the next step's first kernel; infinite at the end


class LaunchIndex:
    """Launches by correlation, stored compactly, since a trace has a million.

    It takes over the arrays of ``started``, which are empty afterwards.
    """

    def __init__(self, started: dict[Any, tuple[array[int], array[float]]]) -> None:
        self.threads = list(started)[:_MOST_THREADS]
        self._numbers, self._begins, self._by = array("q"), array("d"), array("H")
        for at, thread in enumerate(started):
            numbers, begins = started[thread]
            started[thread] = (array("q"), array("d"))
            self._by.extend(array("H", [min(at, _MOST_THREADS)]) * len(numbers))
            if at:
                self._numbers.extend(numbers)
                self._begins.extend(begins)
            else:
                self._numbers, self._begins = numbers, begins
        if not isinstance(order := in_order(self._numbers), range):
            for name in ("_numbers", "_begins", "_by"):
                values = getattr(self, name)
                setattr(self, name, array(values.typecode, (values[at] for at in order)))

    def __len__(self) -> int:
        return len(self._numbers)

    def begin(self, correlation: int) -> float | None:
        """Return the time at which a kernel was launched; None if unknown."""
        place = bisect_left(self._numbers, correlation)
        if place < len(self._numbers) and self._numbers[place] == correlation:
            return self._begins[place]
        return None

    def launches(self, correlations: Iterable[int]) -> Iterator[tuple[float, int]]:
        """Yield (start, thread index) of each launch; the start is NaN if unknown."""
        numbers, begins, by, count, place = self._numbers, self._begins, self._by, len(self._numbers), -1
        for correlation in correlations:
            place += 1  # usually the next entry
            if not (place < count and numbers[place] == correlation):
                place = bisect_left(numbers, correlation)
            if place < count and numbers[place] == correlation:
                yield begins[place], by[place]
            else:
                yield _UNKNOWN, 0


class Launches:
    """Calls that start kernels or copies, and calls that wait, by thread."""

    def __init__(self) -> None:
        self._started: dict[Any, tuple[array[int], array[float]]] = {}
        self._regions: dict[bool, dict[Any, Stretches]] = {True: defaultdict(Stretches), False: defaultdict(Stretches)}
        self._waits: dict[Any, Stretches] = defaultdict(Stretches)
        self._copies: dict[int, tuple[Any, float, float]] = {}
        self._pageable: set[int] = set()
        self._last_device: tuple[float, Any, float] | None = None

    @property
    def count(self) -> int:
        """The number of calls that launch a kernel; read it after all have been added."""
        return len(self.begun)

    def started(self, thread: Any, correlation: int | None, begin: float) -> None:
        """Add a call that launches a kernel."""
        if (number := number_of(correlation)) >= 0:
            calls = self._started.get(thread)
            if calls is None:
                calls = self._started[thread] = (array("q"), array("d"))
            calls[0].append(number)
            calls[1].append(begin)

    def region(self, backward: bool, thread: Any, begin: float, length: float) -> None:
        """Add a CPU interval of the backward pass, or else of the optimizer."""
        self._regions[backward][thread].add(begin, length)

    def activities(self, work: GpuWork) -> Activities:
        """Return the GPU's activities in time order, each with its launch time."""
        correlations = work.correlations if self.begun or self._copies else ()
        launches = array("d", (begin for begin, _ in self.begun.launches(correlations)))
        for at, correlation in enumerate(work.correlations) if self._copies else ():
            if launches[at] != launches[at] and correlation in self._copies:
                launches[at] = self._copies[correlation][1]
        return Activities(work.begins, launches, work.kinds)

    def waited(self, name: str, thread: Any, begin: float, length: float) -> None:
        """Add a call that waits for the GPU."""
        if _DEVICE in name:  # the last one is the profiler's own, so each is only added when another follows
            last = self._last_device
            if last is not None:
                self._waits[last[1]].add(last[0], last[2])
            self._last_device = (begin, thread, length)
            return
        self._waits[thread].add(begin, length)

    def copied(self, thread: Any, correlation: int | None, begin: float, length: float) -> None:
        """Add a call that starts a copy, and blocks only if host memory is pageable."""
        if (number := number_of(correlation)) >= 0:
            self._copies[number] = (thread, begin, length)

    def pageable(self, correlation: int | None) -> None:
        """Note that a GPU copy uses pageable host memory."""
        if (number := number_of(correlation)) >= 0:
            self._pageable.add(number)

    def launching(self, thread: Any) -> bool:
        """Return whether a thread launches kernels; True if the trace has no launches."""
        return thread in self._started or not self._started

    def waits(self) -> Spans:
        """Return the intervals in which launching threads wait for the GPU."""
        waits = Stretches()
        for thread, stretches in self._waits.items():
            if self.launching(thread):
                for begin, end in stretches.joined():
                    waits.add(begin, end - begin)
        for correlation in self._pageable & self._copies.keys():
            thread, begin, length = self._copies[correlation]
            if self.launching(thread):
                waits.add(begin, length)
        return waits.joined()

    def backward_passes(self, work: GpuWork, steps: Sequence[Stretch]) -> list[BackwardPass]:
        """Return the last backward pass of each step that has one.

        ``steps`` are the steps on the CPU. If a step has several microbatches, only the pass after the last forward
        pass is returned.
        """
        if not steps or not any(self._regions.values()):
            return []
        spans, outside = Spans(steps), Spans()
        inside = {
            backward: [
                regions[thread].joined() if thread in regions else outside for thread in self.begun.threads
            ] + [outside]
            for backward, regions in self._regions.items()
        }  # fmt: skip
        first: dict[int, float] = {}
        opened: dict[int, float] = {}  # start of the pass to which a kernel belongs
        between: dict[int, float] = defaultdict(float)  # time of other kernels since the pass's last kernel
        extent: dict[int, tuple[float, float]] = {}
        until: dict[int, float] = {}
        launches = self.begun.launches(work.correlations)
        for begin, end, kind, (launch, by) in zip(work.begins, work.ends, work.kinds, launches, strict=True):
            if kind != COMPUTE or launch != launch or (step := spans.place(launch)) < 0:
                continue
            if step not in first:
                first[step] = begin
            if inside[True][by].place(launch) >= 0:
                if between.pop(step, 0.0) > _FORWARD * (steps[step][1] - steps[step][0]):
                    opened.pop(step, None)
                latest = max(end, extent[step][1]) if step in extent else end
                extent[step] = (opened.setdefault(step, begin), latest)
            elif inside[False][by].place(launch) >= 0:
                until.setdefault(step, begin)
            else:
                between[step] += end - begin
        starts = sorted(first.values())
        passes = []
        for step, (begin, end) in sorted(extent.items()):
            later = bisect_right(starts, end)
            following = starts[later] if later < len(starts) else float("inf")
            passes.append(BackwardPass(step, begin, end, until[step] if until.get(step, 0.0) >= end else following))
        return passes

    @cached_property
    def begun(self) -> LaunchIndex:
        """The launches by correlation; read it after all have been added."""
        return LaunchIndex(self._started)
