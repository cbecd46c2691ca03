"""Evidence in bits: how well a rate of its own explains a factor's slow runs.

Each rate of slow runs is unknown, and stands under Jeffreys' prior; the logarithm of the evidence of k slow among n
runs is then a difference of gamma functions. A ratio of two such sums over all rates holds no maximum that was
picked: of many factors tried, each with its prior weight, a sound fabric gives any of them a ratio of 100 in less than
one campaign of a hundred (Markov's inequality), also where later runs were chosen by the results of earlier ones.
"""

from __future__ import annotations

import math

#: Bits from which on a factor is named, and from which on another one is ruled out: 100 to 1.
ENOUGH = math.log2(100)


def evidence(slow: int, runs: int) -> float:
    """Return log2 of the probability of so many slow runs, over all rates."""
    log = math.lgamma(slow + 0.5) + math.lgamma(runs - slow + 0.5) - math.lgamma(runs + 1) - math.log(math.pi)
    return log / math.log(2)


def gain(slow: int, runs: int, all_slow: int, all_runs: int) -> float:
    """Return the bits by which a rate of their own explains some runs better.

    0 where that rate is lower than the rate of all other runs.
    """
    other_slow, other_runs = all_slow - slow, all_runs - runs
    if not runs or not other_runs or slow * other_runs <= other_slow * runs:
        return 0.0
    return evidence(slow, runs) + evidence(other_slow, other_runs) - evidence(all_slow, all_runs)
