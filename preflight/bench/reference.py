"""What runs of one kind are held against, and which of them are slow.

The noise is estimated from the runs themselves. Where half of the runs are slow, their median lies between two levels
and is worth nothing. So values that a wide gap parts from others are levels of their own, and the reference is the
median of the highest level that enough runs reached.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist, median

#: Runs from which on there is a reference.
FEWEST = 8

#: Share of the reference below which a run is slow. RESOLVED: where its leaves are known, so that it is compared with
#: runs of the same distance. UNRESOLVED: where they are not; distance and a change of rails cost a tenth on sound
#: fabrics (README of xxrjun/nccl-tests-cluster, runs of example-cluster01), and a port at half its rate far more.
RESOLVED, UNRESOLVED = 0.95, 0.85

#: Share of the runs that make a level, and how many at least: fewer are exceptions, such as two nodes on one NVLink.
_LEVEL, _LEVEL_RUNS = 0.1, 3

#: Chance that any of the runs of a kind is called slow by noise alone, if that is normal.
_ALPHA = 0.01

#: Standard deviations below which no run is slow, however few they are: noise has heavier tails than the normal.
_LEAST_Z = 3.5

#: Standard deviation of normal noise over its median absolute deviation.
_OF_MAD = 1.4826


@dataclass(frozen=True)
class BusbwReference:
    """What a run is held against, GB/s."""

    busbw: float
    sigma: float  # of the logarithm: the relative noise of one run
    limit: float  # a run below it is slow
    runs: int  # from which it was taken
    given: bool = False  # from a baseline, not from these runs


def reference(values: Sequence[float], floor: float, given: float | None = None) -> BusbwReference | None:
    """Return the reference of values in GB/s; None if they are too few."""
    if given is not None:
        sigma = spread([value for value in values if value >= floor * given]) if len(values) >= FEWEST else 0.0
        return BusbwReference(given, sigma, _limit(given, sigma, floor, len(values)), len(values), given=True)
    if len(values) < FEWEST:
        return None
    top = levels(values, floor)[0]
    middle = median(top)
    sigma = spread(top)
    return BusbwReference(middle, sigma, _limit(middle, sigma, floor, len(values)), len(top))


def levels(values: Sequence[float], floor: float) -> list[list[float]]:
    """Return the levels of values, the highest first.

    Between two levels lies nothing, from the lowest value of one down to its floor.

    Levels of a few runs above all others are left out.
    """
    steps: list[list[float]] = []
    for value in sorted(values, reverse=True):
        if steps and value > floor * steps[-1][-1]:
            steps[-1].append(value)
        else:
            steps.append([value])
    enough = max(_LEVEL_RUNS, _LEVEL * len(values))
    first = next((place for place, level in enumerate(steps) if len(level) >= enough), None)
    if first is None:  # so scattered that no level has its share
        return [sorted(values, reverse=True)]
    return steps[first:]


def spread(values: Sequence[float]) -> float:
    """Return the relative standard deviation, by the median absolute deviation."""
    if not values:
        return 0.0
    middle = median(values)
    return _OF_MAD * median(abs(math.log(value / middle)) for value in values)


def _limit(middle: float, sigma: float, floor: float, count: int) -> float:
    return middle * min(floor, math.exp(-_z(max(count, 1)) * sigma))


@cache
def _z(count: int) -> float:
    """Return how many standard deviations below the reference chance explains."""
    return max(_LEAST_Z, NormalDist().inv_cdf(1 - _ALPHA / count))
