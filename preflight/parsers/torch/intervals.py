"""Time intervals: union, intersection, difference, total length."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice
from operator import le
from typing import Any

Stretch = tuple[float, float]  # start and end, in the unit of the caller, usually microseconds


#: Number of values that are sorted at once, and approximate number of ranges into which a longer sequence is divided.
_SORTED_AT_ONCE, _RANGES = 20_000, 64


class Spans(Sequence[Stretch]):
    """Joined intervals, in order and without overlaps; each takes 16 bytes."""

    __slots__ = ("begins", "ends")

    def __init__(self, stretches: Iterable[Stretch] = ()) -> None:
        self.begins, self.ends = array("d"), array("d")
        for begin, end in stretches:
            self.add(begin, end)

    def add(self, begin: float, end: float) -> None:
        """Append an interval, which must start after all others."""
        self.begins.append(begin)
        self.ends.append(end)

    def __len__(self) -> int:
        return len(self.begins)

    def __iter__(self) -> Iterator[Stretch]:
        return zip(self.begins, self.ends, strict=True)

    def __getitem__(self, at: Any) -> Any:
        return self.begins[at], self.ends[at]

    def within(self, begin: float, end: float) -> float:
        """Return the covered time within an interval."""
        places = range(bisect_right(self.ends, begin), bisect_left(self.begins, end))
        return sum(min(self.ends[at], end) - max(self.begins[at], begin) for at in places)

    def place(self, instant: float) -> int:
        """Return the index of the interval that contains an instant; -1 without one."""
        place = bisect_right(self.begins, instant) - 1
        return place if place >= 0 and instant < self.ends[place] else -1


class Stretches:
    """Intervals in any order, stored compactly, since a trace has millions."""

    def __init__(self) -> None:
        self._begins = array("d")
        self._ends = array("d")

    def __len__(self) -> int:
        return len(self._begins)

    def add(self, begin: float, length: float) -> None:
        """Add an interval by its start and length."""
        self._begins.append(begin)
        self._ends.append(begin + length)

    def joined(self) -> Spans:
        """Return the union of the intervals, in order."""
        return united(self._in_order())

    def _in_order(self) -> Iterator[Stretch]:
        order = in_order(self._begins)
        if isinstance(order, range):
            return zip(self._begins, self._ends, strict=True)
        return ((self._begins[at], self._ends[at]) for at in order)


def united(stretches: Iterable[Stretch]) -> Spans:
    """Return the union of intervals that are in order of their starts."""
    joined = Spans()
    begins, ends = joined.begins, joined.ends
    last = float("-inf")
    for begin, end in stretches:
        if begin <= last:
            if end > last:
                last = ends[-1] = end
        else:
            begins.append(begin)
            ends.append(end)
            last = end
    return joined


def in_order(values: Sequence[float]) -> Sequence[int]:
    """Return the indexes that sort values; most traces are sorted already.

    A long sequence is divided into ranges of values, which are sorted one by one: that takes 8 bytes for each value
    instead of about 70.
    """
    if all(map(le, values, islice(values, 1, None))):
        return range(len(values))
    limits = sorted(values[:: len(values) // _RANGES]) if len(values) > _SORTED_AT_ONCE else []
    ranges = [array("I") for _ in range(len(limits) + 1)]
    for at, value in enumerate(values):
        ranges[bisect_right(limits, value)].append(at)
    order = array("I")
    for at, one_range in enumerate(ranges):
        order.extend(sorted(one_range, key=values.__getitem__))
        ranges[at] = array("I")
    return order


class Coverage:
    """The time that joined intervals cover, up to any instant; 24 bytes each."""

    def __init__(self, stretches: Sequence[Stretch]) -> None:
        self._begins = array("d", (begin for begin, _ in stretches))
        self._ends = array("d", (end for _, end in stretches))
        self._before = array("d", accumulate((end - begin for begin, end in stretches), initial=0.0))

    @property
    def total(self) -> float:
        """The total covered time."""
        return self._before[-1]

    def until(self, instant: float) -> float:
        """Return the covered time before an instant."""
        at = bisect_right(self._begins, instant) - 1
        if at < 0:
            return 0.0
        return self._before[at] + min(instant, self._ends[at]) - self._begins[at]

    def within(self, begin: float, end: float) -> float:
        """Return the covered time within an interval."""
        return self.until(end) - self.until(begin) if end > begin else 0.0

    def begun(self, instant: float) -> float:
        """Return the start of the interval that extends to an instant, else the instant."""
        at = bisect_left(self._begins, instant) - 1
        return self._begins[at] if at >= 0 and self._ends[at] >= instant else instant


def total(stretches: Iterable[Stretch]) -> float:
    """Return the total length of intervals."""
    return sum(end - begin for begin, end in stretches)


def clipped(these: Iterable[Stretch], those: Sequence[Stretch]) -> Iterator[Stretch]:
    """Yield the parts of ``these`` joined intervals that are inside ``those``."""
    those = those if isinstance(those, Spans) else Spans(those)
    begins, ends, at, count = those.begins, those.ends, 0, len(those)
    for begin, end in these:
        while at < count and ends[at] <= begin:
            at += 1
        here = at
        while here < count and begins[here] < end:
            yield max(begin, begins[here]), min(end, ends[here])
            here += 1


def without(these: Iterable[Stretch], those: Sequence[Stretch]) -> Spans:
    """Return the parts of ``these`` joined intervals that are outside ``those``."""
    return Spans(outside(these, those))


def outside(these: Iterable[Stretch], those: Sequence[Stretch]) -> Iterator[Stretch]:
    """Yield the parts of ``these`` joined intervals that are outside ``those``."""
    those = those if isinstance(those, Spans) else Spans(those)
    begins, ends, at, count = those.begins, those.ends, 0, len(those)
    for begin, end in these:
        while at < count and ends[at] <= begin:
            at += 1
        here, left = at, begin
        while here < count and begins[here] < end:
            if begins[here] > left:
                yield left, begins[here]
            left = max(left, ends[here])
            here += 1
        if left < end:
            yield left, end
