"""Time intervals: union, intersection, difference, sum; percentiles."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

Stretch = tuple[float, float]  # its begin and end, milliseconds


class Stretches:
    """Beginnings and ends, stored compactly: a trace has millions."""

    def __init__(self) -> None:
        self._begins = array("d")
        self._ends = array("d")

    def __len__(self) -> int:
        return len(self._begins)

    def add(self, begin: float, length: float) -> None:
        """Add one."""
        self._begins.append(begin)
        self._ends.append(begin + length)

    def joined(self) -> list[Stretch]:
        """Return their union, in order, without overlaps."""
        order = sorted(range(len(self._begins)), key=self._begins.__getitem__)
        found: list[Stretch] = []
        for index in order:
            begin, end = self._begins[index], self._ends[index]
            if found and begin <= found[-1][1]:
                if end > found[-1][1]:
                    found[-1] = (found[-1][0], end)
            else:
                found.append((begin, end))
        return found


class Coverage:
    """What joined stretches cover of any other; each takes 24 bytes."""

    def __init__(self, stretches: Sequence[Stretch]) -> None:
        self._begins = array("d", (begin for begin, _ in stretches))
        self._ends = array("d", (end for _, end in stretches))
        self._before = array("d", accumulate((end - begin for begin, end in stretches), initial=0.0))

    @property
    def total(self) -> float:
        """All that is covered."""
        return self._before[-1]

    def until(self, instant: float) -> float:
        """Return how much is covered before an instant."""
        at = bisect_right(self._begins, instant) - 1
        if at < 0:
            return 0.0
        return self._before[at] + min(instant, self._ends[at]) - self._begins[at]

    def within(self, begin: float, end: float) -> float:
        """Return how much of a stretch is covered."""
        return self.until(end) - self.until(begin) if end > begin else 0.0


def total(stretches: Sequence[Stretch]) -> float:
    """Return the total length, milliseconds."""
    return sum(end - begin for begin, end in stretches)


def clipped(these: Sequence[Stretch], those: Sequence[Stretch]) -> list[Stretch]:
    """Return the parts of joined intervals inside of others."""
    found: list[Stretch] = []
    at = 0
    for begin, end in these:
        while at < len(those) and those[at][1] <= begin:
            at += 1
        here = at
        while here < len(those) and those[here][0] < end:
            found.append((max(begin, those[here][0]), min(end, those[here][1])))
            here += 1
    return found


def without(these: Sequence[Stretch], those: Sequence[Stretch]) -> list[Stretch]:
    """Return the parts of joined intervals outside of others."""
    found: list[Stretch] = []
    at = 0
    for begin, end in these:
        while at < len(those) and those[at][1] <= begin:
            at += 1
        here = at
        while here < len(those) and those[here][0] < end:
            if those[here][0] > begin:
                found.append((begin, those[here][0]))
            begin = max(begin, those[here][1])
            here += 1
        if begin < end:
            found.append((begin, end))
    return found


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """Return the nearest-rank percentile of an ordered sample.

    None where the sample is too small.
    """
    beyond = round((1 - share) * 1000)  # of a thousand
    if not ordered or len(ordered) * beyond < 1000 * (share > 0.5):
        return None
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]
