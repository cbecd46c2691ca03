"""Evidence, in bits, that runs with a factor are slow more often than others.

The rate of slow runs is unknown and has Jeffreys' prior, so the log evidence of k slow among n runs is a
difference of log-gamma functions. The ratio integrates over all rates instead of maximising. If all factors are
weighted by their prior, a factor therefore reaches a ratio of 100 on a healthy fabric in fewer than one in a hundred
campaigns (Markov's inequality), even if later runs depend on earlier results.
"""

from __future__ import annotations

import math

#: Bits at which a factor is reported, and at which a rival is ruled out: odds of 100 to 1.
ENOUGH = math.log2(100)


def evidence(slow: int, runs: int) -> float:
    """Return log2 of the probability of this many slow runs, averaged over rates."""
    log = math.lgamma(slow + 0.5) + math.lgamma(runs - slow + 0.5) - math.lgamma(runs + 1) - math.log(math.pi)
    return log / math.log(2)


def gain(slow: int, runs: int, all_slow: int, all_runs: int) -> float:
    """Return the bits gained by a separate rate of slow runs for some of the runs.

    0 if their rate is not higher than that of the other runs.
    """
    other_slow, other_runs = all_slow - slow, all_runs - runs
    if not runs or not other_runs or slow * other_runs <= other_slow * runs:
        return 0.0
    return evidence(slow, runs) + evidence(other_slow, other_runs) - evidence(all_slow, all_runs)
