"""Curve of bandwidth and time over message sizes, and its anomalies."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from preflight._startup.lightclass import dataclass
from preflight.parsers.nccl_tests.model import Row

MIB = 2**20


@dataclass(frozen=True)
class Point:
    """One size: the median over repetitions of the better half (in or out of place)."""

    bytes: int
    busbw: float  # GB/s
    time_us: float
    line: int


@dataclass(frozen=True)
class Dip:
    """A drop of bandwidth from one size to the next larger one."""

    before: Point
    at: Point

    @property
    def share(self) -> float:
        """The relative drop, from 0 to 1."""
        return 1 - self.at.busbw / self.before.busbw


def curve(rows: Sequence[Row]) -> tuple[Point, ...]:
    """Return the points of the type, operation and root with the most rows, by size.

    Sizes of 0 are left out.
    """
    kinds = defaultdict(list)
    for row in rows:
        kinds[row.dtype, row.redop, row.root].append(row)
    most = max(kinds.values(), key=len, default=[])
    by_size: dict[int, list[Row]] = defaultdict(list)
    for row in most:
        if row.bytes > 0 and row.halves:
            by_size[row.bytes].append(row)
    points = []
    for size, same in sorted(by_size.items()):
        busbw = median(max(half.busbw_gbytes_s for half in row.halves) for row in same)
        time = median(min(half.time_us for half in row.halves) for row in same)
        if math.isfinite(busbw) and math.isfinite(time):
            points.append(Point(size, busbw, time, same[0].line))
    return tuple(points)


def dips(points: Sequence[Point], at_least: int = 64 * MIB, tolerance: float = 0.05) -> tuple[Dip, ...]:
    """Return the drops of bandwidth that exceed the tolerance, for large messages."""
    large = [point for point in points if point.bytes >= at_least]
    return tuple(
        Dip(before, at)
        for before, at in itertools.pairwise(large)
        if before.busbw > 0 and at.busbw < (1 - tolerance) * before.busbw
    )


def floor_us(points: Sequence[Point], at_most: int = 4096) -> float | None:
    """Return the latency floor: the median time of small messages in µs.

    None for fewer than three sizes.
    """
    small = [point.time_us for point in points if point.bytes <= at_most]
    return median(small) if len(small) >= 3 else None


def spikes(points: Sequence[Point], at_most: int = 65536, times: float = 3) -> tuple[Point, ...]:
    """Return small messages that take several times as long as the median.

    They must also take more than 1.5 times as long as a larger message. The first size is left out.
    """
    small = [point for point in points if point.bytes <= at_most]
    if len(small) < 5:
        return ()
    usual = median(point.time_us for point in small)
    found, larger = [], math.inf
    for point in reversed(small[1:]):
        if point.time_us > times * usual and point.time_us > 1.5 * larger:
            found.append(point)
        larger = min(larger, point.time_us)
    return tuple(reversed(found))


def rises(points: Sequence[Point]) -> float | None:
    """Return the rise of busbw over the last doubling (0.1 is 10%), or None."""
    if len(points) < 2:
        return None
    last = points[-1]
    before = next((point for point in reversed(points) if point.bytes * 2 <= last.bytes), None)
    return last.busbw / before.busbw - 1 if before is not None and before.busbw > 0 else None
