"""References for runs of one kind, and the limits below which runs are slow.

The noise is estimated from the runs themselves. If half of the runs are slow, their median is between two levels and
meaningless. Values that are separated by a wide gap therefore form levels, and the reference is the median of the
highest level with enough runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist, median
from typing import NamedTuple

#: Minimum number of runs for a reference.
FEWEST = 8

#: Fraction of the reference below which a run is slow. RESOLVED: leaves are known, so a run is compared with runs
#: of the same distance. UNRESOLVED: leaves are unknown; on healthy fabrics, distance and a change of rails cost a tenth
#: (README of xxrjun/nccl-tests-cluster, runs of example-cluster01), and a port at half its rate costs much more.
RESOLVED, UNRESOLVED = 0.95, 0.85

#: Fraction of the runs that is sufficient for a level, if they are also enough for a reference.
_LEVEL = 0.1

#: Maximum fraction of exceptionally fast runs above a level, such as those of two nodes in one NVLink domain.
_EXCEPTIONS = 0.2

#: Probability that normal noise alone makes any of the runs of a kind slow.
_ALPHA = 0.01

#: Minimum distance of a slow run from the reference in standard deviations, because noise has heavier tails than the
#: normal distribution.
_LEAST_Z = 3.5

#: Ratio of the standard deviation of normal noise to its median absolute deviation.
_OF_MAD = 1.4826


class UsualRate(NamedTuple):
    """The rate of confirmed good runs, from a baseline."""

    busbw: float  # GB/s
    noise: float  # relative noise of one run


@dataclass(frozen=True)
class BusbwReference:
    """The reference of a run, and its limit, in GB/s."""

    busbw: float
    sigma: float  # relative noise of one run (of the logarithm)
    limit: float  # a run below it is slow
    runs: int  # number of runs on which it is based
    given: bool = False  # whether it is from a baseline, not from these runs


def reference(values: Sequence[float], floor: float, given: UsualRate | None = None) -> BusbwReference | None:
    """Return the reference of values in GB/s; None if they are too few or too mixed."""
    if given is not None:
        near = [value for value in values if value >= floor * given.busbw]
        sigma = max(given.noise, spread(near) if len(values) >= FEWEST else 0.0)
        limit = _limit(given.busbw, sigma, floor, len(values))
        return BusbwReference(given.busbw, sigma, limit, len(values), given=True)
    if len(values) < FEWEST or not (steps := levels(values, floor)):
        return None
    top = steps[0]
    middle = median(top)
    sigma = spread(top)
    return BusbwReference(middle, sigma, _limit(middle, sigma, floor, len(values)), len(top))


def levels(values: Sequence[float], floor: float) -> list[list[float]]:
    """Return the levels of values, highest first.

    A level ends if the next value is below the fraction ``floor`` of its lowest value. The first returned level has
    half of the runs, or enough for a reference; a few faster runs are left out as exceptions. If there are more of
    them, the result is empty, since either they or the slower runs may be normal.
    """
    steps: list[list[float]] = []
    for value in sorted(values, reverse=True):
        if steps and value > floor * steps[-1][-1]:
            steps[-1].append(value)
        else:
            steps.append([value])
    enough = min(len(values) / 2, max(FEWEST, _LEVEL * len(values)))
    above = 0
    for place, level in enumerate(steps):
        if len(level) >= enough:
            return steps[place:]
        above += len(level)
        if above > _EXCEPTIONS * len(values):
            break
    return []


def spread(values: Sequence[float]) -> float:
    """Return the relative standard deviation, from the median absolute deviation."""
    if not values:
        return 0.0
    middle = median(values)
    return _OF_MAD * median(abs(math.log(value / middle)) for value in values)


def _limit(middle: float, sigma: float, floor: float, count: int) -> float:
    return middle * min(floor, math.exp(-deviations(max(count, 1)) * sigma))


@cache
def deviations(count: int) -> float:
    """Return the deviation (in sigma) that chance explains in ``count`` runs."""
    return max(_LEAST_Z, NormalDist().inv_cdf(1 - _ALPHA / count))
