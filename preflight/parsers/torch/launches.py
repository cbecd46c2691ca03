"""Launches of kernels by CPU calls, joined by Kineto's ``correlation``.

They give the last kernel of a backward pass, and a copy's cost. The backward pass is what PyTorch's autograd engine
evaluates (``autograd::engine::evaluate_function: …``), the optimizer's is below ``Optimizer.step#…``.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from preflight.parsers.torch.intervals import Stretch, Stretches
from preflight.parsers.torch.step_budget import Activity

#: Stands for the launch of a kernel that no call of the CPU is known to have started.
_NEVER: tuple[Any, float] = (None, float("-inf"))

_BACKWARD, _OPTIMIZER = "autograd::engine::evaluate_function", "Optimizer.step#"
_DEVICE = "DeviceSynchronize"


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
        if type(correlation) is int:
            numbers, begins = self._started.setdefault(thread, (array("q"), array("d")))
            numbers.append(correlation)
            begins.append(begin)

    def region(self, name: str, thread: Any, begin: float, length: float) -> None:
        """Add an operator or annotation of the CPU; most are ignored."""
        if name.startswith((_BACKWARD, _OPTIMIZER)):
            self._regions[name.startswith(_BACKWARD)][thread].add(begin, length)

    def computed(self, device: Any, correlation: object, begin: float, length: float) -> None:
        """Add a compute kernel."""
        if type(correlation) is int:
            numbers, begins, ends = self._kernels.setdefault(device, (array("q"), array("d"), array("d")))
            numbers.append(correlation)
            begins.append(begin)
            ends.append(begin + length)

    def ran(self, device: Any, correlation: object, begin: float, to_gpu: bool = False) -> None:
        """Take anything that a GPU did; ``to_gpu``: a copy from the host."""
        numbers, begins, copies = self._ran.setdefault(device, (array("q"), array("d"), array("b")))
        numbers.append(correlation if type(correlation) is int and abs(correlation) < 1 << 62 else -1)
        begins.append(begin)
        copies.append(to_gpu)

    def activities(self, device: Any) -> list[Activity]:
        """Return what a GPU did, in order of time, with the calls that launched it."""
        numbers, begins, copies = self._ran.get(device, ((), (), ()))
        order = sorted(range(len(begins)), key=begins.__getitem__)
        return [Activity(begins[at], self._launch(numbers[at]), bool(copies[at])) for at in order]

    def _launch(self, correlation: int) -> float | None:
        """Return the begin of the call that launched a kernel or a copy; None if unknown."""
        if correlation in self.begun:
            return self.begun[correlation][1]
        return self._copies[correlation][1] if correlation in self._copies else None

    def waited(self, name: str, thread: Any, begin: float, length: float) -> None:
        """Add a call that returns when the GPU is done."""
        if _DEVICE in name:  # the profiler's own, at its end, is held back
            last = self._last_device
            if last is not None:
                self._waits[last[1]].add(last[0], last[2])
            self._last_device = (begin, thread, length)
            return
        self._waits[thread].add(begin, length)

    def copied(self, thread: Any, correlation: object, begin: float, length: float) -> None:
        """Add a call that starts a copy; it waits only for pageable host memory."""
        if type(correlation) is int:
            self._copies[correlation] = (thread, begin, length)

    def pageable(self, correlation: object) -> None:
        """Add a copy of pageable memory on the GPU."""
        if type(correlation) is int:
            self._pageable.add(correlation)

    def waits(self) -> list[Stretch]:
        """Return when threads that launch kernels waited for the GPU, microseconds."""
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

    def tails(self, device: Any, steps: Sequence[Stretch]) -> list[Stretch]:
        """Return the stretch of each step after its last kernel of the backward pass.

        ``steps`` are those of the CPU. The optimizer's first kernel ends it, or else the next step's first.
        """
        if device not in self._kernels or not steps:
            return []
        begun = self.begun
        backward = {thread: stretches.joined() for thread, stretches in self._regions[True].items()}
        optimizer = {thread: stretches.joined() for thread, stretches in self._regions[False].items()}
        last: dict[int, float] = {}
        until: dict[int, float] = {}
        first: dict[int, float] = {}
        for number, begin, end in zip(*self._kernels[device], strict=True):
            thread, launch = begun.get(number, _NEVER)
            if (step := within(steps, launch)) < 0:
                continue
            first[step] = min(first.get(step, begin), begin)
            if within(backward.get(thread, ()), launch) >= 0:
                last[step] = max(last.get(step, end), end)
            elif within(optimizer.get(thread, ()), launch) >= 0:
                until[step] = min(until.get(step, begin), begin)
        begins = sorted(first.values())
        stretches = []
        for step, end in sorted(last.items()):
            later = bisect_right(begins, end)
            following = begins[later] if later < len(begins) else float("inf")
            stretches.append((end, until[step] if until.get(step, 0.0) >= end else following))
        return stretches

    @cached_property
    def begun(self) -> Mapping[int, tuple[Any, float]]:
        """The thread and the begin of each launch, by correlation."""
        return {
            number: (thread, begin)
            for thread, (numbers, begins) in self._started.items()
            for number, begin in zip(numbers, begins, strict=True)
        }


def within(stretches: Sequence[Stretch], at: float) -> int:
    """Return which of some joined stretches an instant lies in; -1: none."""
    place = bisect_right(stretches, (at, float("inf"))) - 1
    return place if place >= 0 and at < stretches[place][1] else -1
