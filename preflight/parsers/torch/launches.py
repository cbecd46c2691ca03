"""Launches of kernels by CPU calls, joined by Kineto's ``correlation``.

They show the last kernel of a backward pass, and the cost of a copy. The backward pass consists of the evaluations of
PyTorch's autograd engine (``autograd::engine::evaluate_function: …``), the optimizer's part of the calls below
``Optimizer.step#…``.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import islice
from operator import lt
from typing import Any, NamedTuple

from preflight.parsers.torch.intervals import Spans, Stretch, Stretches, in_order
from preflight.parsers.torch.step_budget import Activities

#: Maximum number of threads distinguished that launch kernels: a process has several; further ones count as one.
_MOST_THREADS = 256

#: Fraction of a step from which other kernels between those of a backward pass are a forward pass.
_FORWARD = 0.02

_DEVICE = "DeviceSynchronize"


class Launch(NamedTuple):
    """A call that started a kernel."""

    thread: Any
    begin: float


class BackwardPass(NamedTuple):
    """The last backward pass of a step on a GPU, and the time after it."""

    step: int  # index of the step
    begin: float
    end: float
    until: float  # start of the optimizer's first kernel, otherwise of the next step's; infinite at the end


class LaunchIndex:
    """Launches by correlation, stored compactly: a trace has a million."""

    def __init__(self, started: Mapping[Any, tuple[array[int], array[float]]]) -> None:
        self._threads = list(started)[:_MOST_THREADS]
        self._numbers, self._begins, self._by = array("q"), array("d"), array("H")
        for at, (numbers, begins) in enumerate(started.values()):
            self._numbers.extend(numbers)
            self._begins.extend(begins)
            self._by.extend(array("H", [min(at, _MOST_THREADS)]) * len(numbers))
        if not all(map(lt, self._numbers, islice(self._numbers, 1, None))):
            order = sorted(range(len(self._numbers)), key=self._numbers.__getitem__)
            for name in ("_numbers", "_begins", "_by"):
                values = getattr(self, name)
                setattr(self, name, array(values.typecode, (values[at] for at in order)))

    def __contains__(self, correlation: int) -> bool:
        return self._place(correlation) >= 0

    def get(self, correlation: int) -> Launch | None:
        """Return the call that launched a kernel; None if unknown."""
        place = self._place(correlation)
        if place < 0:
            return None
        by = self._by[place]
        return Launch(self._threads[by] if by < len(self._threads) else None, self._begins[place])

    def begin(self, correlation: int) -> float | None:
        """Return its call time; None if unknown."""
        place = self._place(correlation)
        return None if place < 0 else self._begins[place]

    def _place(self, correlation: int) -> int:
        place = bisect_left(self._numbers, correlation)
        return place if place < len(self._numbers) and self._numbers[place] == correlation else -1


class Launches:
    """Calls that start kernels or copies, and calls that wait, by thread."""

    def __init__(self) -> None:
        self._started: dict[Any, tuple[array[int], array[float]]] = {}
        self._regions: dict[bool, dict[Any, Stretches]] = {True: defaultdict(Stretches), False: defaultdict(Stretches)}
        self._kernels: dict[Any, tuple[array[int], array[float], array[float]]] = {}
        self._ran: dict[Any, tuple[array[int], array[float], array[int]]] = {}
        self._waits: dict[Any, Stretches] = defaultdict(Stretches)
        self._copies: dict[int, tuple[Any, float, float]] = {}
        self._pageable: set[int] = set()
        self._last_device: tuple[float, Any, float] | None = None

    @property
    def count(self) -> int:
        """Number of calls that launch a kernel."""
        return sum(len(numbers) for numbers, _ in self._started.values())

    def started(self, thread: Any, correlation: object, begin: float) -> None:
        """Add a call that launches a kernel."""
        if (number := _number(correlation)) >= 0:
            numbers, begins = self._started.setdefault(thread, (array("q"), array("d")))
            numbers.append(number)
            begins.append(begin)

    def region(self, backward: bool, thread: Any, begin: float, length: float) -> None:
        """Add a part of the backward pass on the CPU, or of the optimizer."""
        self._regions[backward][thread].add(begin, length)

    def computed(self, device: Any, correlation: object, begin: float, length: float) -> None:
        """Add a compute kernel."""
        if (number := _number(correlation)) >= 0:
            numbers, begins, ends = self._kernels.setdefault(device, (array("q"), array("d"), array("d")))
            numbers.append(number)
            begins.append(begin)
            ends.append(begin + length)

    def ran(self, device: Any, correlation: object, begin: float, to_gpu: bool = False) -> None:
        """Add any GPU activity; ``to_gpu``: a copy from the host."""
        numbers, begins, copies = self._ran.setdefault(device, (array("q"), array("d"), array("b")))
        numbers.append(_number(correlation))
        begins.append(begin)
        copies.append(to_gpu)

    def activities(self, device: Any) -> Activities:
        """Return the GPU activities in time order, with the calls that launched them."""
        activities = Activities()
        numbers, begins, copies = self._ran.get(device, ((), (), ()))
        for at in in_order(begins):
            activities.add(begins[at], self._launch(numbers[at]), bool(copies[at]))
        return activities

    def _launch(self, correlation: int) -> float | None:
        """Return the start of the call that launched a kernel or a copy; None if unknown."""
        begin = self.begun.begin(correlation)
        if begin is None and correlation in self._copies:
            return self._copies[correlation][1]
        return begin

    def waited(self, name: str, thread: Any, begin: float, length: float) -> None:
        """Add a call that returns when the GPU is done."""
        if _DEVICE in name:  # the profiler's own, at its end, is set aside
            last = self._last_device
            if last is not None:
                self._waits[last[1]].add(last[0], last[2])
            self._last_device = (begin, thread, length)
            return
        self._waits[thread].add(begin, length)

    def copied(self, thread: Any, correlation: object, begin: float, length: float) -> None:
        """Add a call that starts a copy; it waits only for pageable host memory."""
        if (number := _number(correlation)) >= 0:
            self._copies[number] = (thread, begin, length)

    def pageable(self, correlation: object) -> None:
        """Add a copy of pageable memory on the GPU."""
        if (number := _number(correlation)) >= 0:
            self._pageable.add(number)

    def waits(self) -> Spans:
        """Return the times when launching threads waited for the GPU, microseconds."""
        waits = Stretches()
        for thread, stretches in self._waits.items():
            if thread in self._started or not self._started:
                for begin, end in stretches.joined():
                    waits.add(begin, end - begin)
        for correlation in self._pageable & self._copies.keys():
            thread, begin, length = self._copies[correlation]
            if thread in self._started or not self._started:
                waits.add(begin, length)
        return waits.joined()

    def backward_passes(self, device: Any, steps: Sequence[Stretch]) -> list[BackwardPass]:
        """Return the last backward pass of each step that has one.

        ``steps`` are those of the CPU. A preceding forward pass, as of an earlier part of the batch, is not included.
        """
        if device not in self._kernels or not steps:
            return []
        inside = {
            (backward, thread): stretches.joined()
            for backward, regions in self._regions.items()
            for thread, stretches in regions.items()
        }
        numbers, begins, ends = self._kernels[device]
        first: dict[int, float] = {}
        opened: dict[int, float] = {}  # start of the pass to which a kernel belongs
        between: dict[int, float] = defaultdict(float)  # time of other kernels since the last one of the pass
        extent: dict[int, tuple[float, float]] = {}
        until: dict[int, float] = {}
        for at in in_order(begins):
            launch = self.begun.get(numbers[at])
            if launch is None or (step := within(steps, launch.begin)) < 0:
                continue
            begin, end = begins[at], ends[at]
            first.setdefault(step, begin)
            if within(inside.get((True, launch.thread), ()), launch.begin) >= 0:
                if between.pop(step, 0.0) > _FORWARD * (steps[step][1] - steps[step][0]):
                    opened.pop(step, None)
                latest = max(end, extent[step][1]) if step in extent else end
                extent[step] = (opened.setdefault(step, begin), latest)
            elif within(inside.get((False, launch.thread), ()), launch.begin) >= 0:
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
        """The launches by correlation; no more are added."""
        return LaunchIndex(self._started)


def _number(correlation: object) -> int:
    """Return a correlation; -1 if there is none."""
    return correlation if type(correlation) is int and 0 <= correlation < 1 << 62 else -1


def within(stretches: Sequence[Stretch], at: float) -> int:
    """Return the index of the joined interval that contains an instant; -1 if none."""
    place = bisect_right(stretches, (at, float("inf"))) - 1
    return place if place >= 0 and at < stretches[place][1] else -1
