"""Activity of a rank's CPU: time without operators, and memory of its GPUs.

The operators and CUDA runtime calls of all threads are recorded per millisecond; while Python collects garbage or
writes a file, no thread runs any. The caching allocator reports the memory (``[memory]`` events, profiled with
``profile_memory=True``).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from preflight.parsers.torch.intervals import Spans, Stretch, Stretches, without
from preflight.parsers.torch.trace_events import Arguments

#: Resolution in microseconds, and maximum number of recorded milliseconds (half an hour of activity).
_BIN_US, _MOST_BINS = 1000.0, 2_000_000
#: Maximum number of stored Python functions, and their minimum duration in microseconds.
_MOST_FUNCTIONS, _LONG_US = 100_000, 5000.0
_GPU_TYPES = (1, 20)  # c10::DeviceType: CUDA, HIP


class QuietStretch(NamedTuple):
    """The longest period of a step in which the CPU runs no operator."""

    step: int  # index of the step
    length_us: float
    function: str  # the Python function that was running; empty if unknown
    begin: float  # by up to a millisecond before it, within the step
    end: float


class HostActivity:
    """Milliseconds in which a CPU thread runs operators, and long Python functions."""

    def __init__(self) -> None:
        self._bins: set[int] = set()
        self._noted = float("inf")  # start of the last recorded millisecond
        self._long = Stretches()
        self._functions: list[str] = []
        self._begins, self._ends = array("d"), array("d")
        self.complete = True

    def ran(self, begin: float, end: float) -> None:
        """Record an operator or a runtime call; times are in microseconds."""
        if self._noted <= begin and end < self._noted + _BIN_US:  # usually in the last recorded millisecond
            return
        if end - begin > _BIN_US:
            self._long.add(begin, end - begin)
            return
        for at in (int(begin // _BIN_US), int(end // _BIN_US)):
            if len(self._bins) >= _MOST_BINS and at not in self._bins:
                self.complete = False
                return
            self._bins.add(at)
            self._noted = at * _BIN_US

    def function(self, name: str, begin: float, length: float) -> None:
        """Record a long Python function."""
        if length >= _LONG_US and len(self._functions) < _MOST_FUNCTIONS:
            self._functions.append(name[:200])
            self._begins.append(begin)
            self._ends.append(begin + length)

    def pauses(self, steps: Sequence[Stretch], explained: Sequence[Stretch]) -> list[QuietStretch] | None:
        """Return the longest pause of each step; None if the activity is incomplete.

        ``explained`` are intervals with a known cause, such as a data loader, which are not pauses.
        """
        if not self.complete or not self._bins:
            return None
        for at in self._bins:
            self._long.add(at * _BIN_US, _BIN_US)
        self._bins = set()
        spans = Spans(steps)
        longest: dict[int, Stretch] = {}
        for begin, end in without(without(spans, self._long.joined()), explained):
            step = spans.place(begin)
            if step not in longest or end - begin > longest[step][1] - longest[step][0]:
                longest[step] = (begin, end)
        return [self._quiet(at, step, longest.get(at, (step[0], step[0]))) for at, step in enumerate(steps)]

    def _quiet(self, at: int, step: Stretch, stretch: Stretch) -> QuietStretch:
        begin, end = stretch
        if begin == end:
            return QuietStretch(at, 0.0, "", begin, end)
        around = max(step[0], begin - _BIN_US), min(step[1], end + _BIN_US)
        return QuietStretch(at, end - begin, self._function_at(stretch), *around)

    def _function_at(self, stretch: Stretch) -> str:
        """Return the innermost long function that runs in the middle of an interval."""
        middle = (stretch[0] + stretch[1]) / 2
        around = [at for at in range(len(self._functions)) if self._begins[at] <= middle < self._ends[at]]
        return self._functions[max(around, key=lambda at: (self._begins[at], -self._ends[at]))] if around else ""


class CudaMemory:
    """The largest totals, in bytes, that the caching allocator reports for each GPU."""

    def __init__(self) -> None:
        self.reserved: dict[int, int] = {}
        self.allocated: dict[int, int] = {}

    def add(self, arguments: Arguments) -> None:
        """Record a ``[memory]`` event."""
        device, reserved, allocated = arguments.memory_device, arguments.reserved_bytes, arguments.allocated_bytes
        if arguments.memory_device_type not in _GPU_TYPES or device is None or not 0 <= device < 1 << 10:
            return
        if reserved is not None and allocated is not None and 0 <= allocated <= reserved < 1 << 50:
            self.reserved[device] = max(self.reserved.get(device, 0), reserved)
            self.allocated[device] = max(self.allocated.get(device, 0), allocated)

    def document(self) -> list[dict[str, int]]:
        """Return the peak of each GPU as JSON values."""
        return [
            {"device": device, "reserved_bytes": reserved, "allocated_bytes": self.allocated[device]}
            for device, reserved in sorted(self.reserved.items())
        ]
