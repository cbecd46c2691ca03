"""Activity of a rank's CPU: time without operators, and memory of its GPUs.

Operators and CUDA runtime calls of all threads are recorded per millisecond: while Python collects garbage or writes a
file, no thread runs any. Memory is reported by the caching allocator (``[memory]`` events, profiled with
``profile_memory=True``).
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from preflight.parsers.torch.intervals import Spans, Stretch, Stretches, clipped, without

#: Resolution in microseconds; maximum number of recorded milliseconds: half an hour.
_BIN_US, _MOST_BINS = 1000.0, 2_000_000
#: Maximum number of stored Python functions, and their minimum duration in microseconds.
_MOST_FUNCTIONS, _LONG_US = 100_000, 5000.0
_GPU_TYPES = (1, 20)  # c10::DeviceType: CUDA, HIP


class QuietStretch(NamedTuple):
    """The longest stretch of a step in which the CPU runs no operator."""

    step: int  # index
    length_us: float
    function: str  # the Python function that ran then; empty if the profile has no stacks


class HostActivity:
    """Operators of all CPU threads, per millisecond, and long Python functions."""

    def __init__(self) -> None:
        self._bins: set[int] = set()
        self._last = -1
        self._long = Stretches()
        self._functions: list[str] = []
        self._begins, self._ends = array("d"), array("d")
        self.complete = True

    def ran(self, begin: float, length: float) -> None:
        """Record an operator or a runtime call."""
        if length > _BIN_US:
            self._long.add(begin, length)
            return
        for at in (int(begin // _BIN_US), int((begin + length) // _BIN_US)):
            if at != self._last:
                if len(self._bins) >= _MOST_BINS:
                    self.complete = False
                    return
                self._last = at
                self._bins.add(at)

    def function(self, name: str, begin: float, length: float) -> None:
        """Record a long Python function."""
        if length >= _LONG_US and len(self._functions) < _MOST_FUNCTIONS:
            self._functions.append(name[:200])
            self._begins.append(begin)
            self._ends.append(begin + length)

    def pauses(self, steps: Sequence[Stretch], explained: Sequence[Stretch]) -> list[QuietStretch] | None:
        """Return the longest pause of each step; None if there was too much to record.

        ``explained`` are intervals with a known cause, such as a data loader.
        """
        if not self.complete or not self._bins:
            return None
        for at in self._bins:
            self._long.add(at * _BIN_US, _BIN_US)
        self._bins = set()
        quiet = without(without(Spans(steps), self._long.joined()), explained)
        pauses = []
        for at, step in enumerate(steps):
            longest = max(clipped(quiet, [step]), key=lambda stretch: stretch[1] - stretch[0], default=None)
            if longest is None:
                pauses.append(QuietStretch(at, 0.0, ""))
            else:
                pauses.append(QuietStretch(at, longest[1] - longest[0], self._function_at(longest)))
        return pauses

    def _function_at(self, stretch: Stretch) -> str:
        """Return the innermost long function around the middle of an interval."""
        middle = (stretch[0] + stretch[1]) / 2
        around = [at for at in range(len(self._functions)) if self._begins[at] <= middle < self._ends[at]]
        return self._functions[max(around, key=lambda at: (self._begins[at], -self._ends[at]))] if around else ""


class CudaMemory:
    """The largest totals reported by the caching allocator for each GPU; bytes."""

    def __init__(self) -> None:
        self.reserved: dict[int, int] = {}
        self.allocated: dict[int, int] = {}

    def add(self, args: Mapping[str, Any]) -> None:
        """Record a ``[memory]`` event."""
        device, reserved, allocated = args.get("Device Id"), args.get("Total Reserved"), args.get("Total Allocated")
        if args.get("Device Type") not in _GPU_TYPES or type(device) is not int or not 0 <= device < 1 << 10:
            return
        if type(reserved) is int and type(allocated) is int and 0 <= allocated <= reserved < 1 << 50:
            self.reserved[device] = max(self.reserved.get(device, 0), reserved)
            self.allocated[device] = max(self.allocated.get(device, 0), allocated)

    def document(self) -> list[dict[str, int]]:
        """Return the peak of each GPU, for the facts."""
        return [
            {"device": device, "reserved_bytes": reserved, "allocated_bytes": self.allocated[device]}
            for device, reserved in sorted(self.reserved.items())
        ]
