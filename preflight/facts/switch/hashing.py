"""Load imbalance of parallel links that hashing alone causes.

The model is an ideal hash: flows of equal size are placed on links at random and independently.
"""

from __future__ import annotations

import math
from functools import cache

#: Maximum number of flows with an exact distribution; beyond it, a normal distribution approximates the sum.
_EXACT = 256


@cache
def most_loaded(flows: int, links: int, share: float) -> float:
    """Return the load of the most loaded link, as a multiple of the mean.

    ``share`` is the quantile of the distribution: 0.5 is the median.
    """
    mean = flows / links
    low, high = math.ceil(mean) - 1, flows
    while high - low > 1:
        middle = (low + high) // 2
        if _at_most(flows, links, middle) >= share:
            high = middle
        else:
            low = middle
    return high / mean


def idle_share(flows: int, links: int) -> float:
    """Return an upper bound on the probability that any link has no flow."""
    return min(1.0, links * (1 - 1 / links) ** flows)


def _at_most(flows: int, links: int, most: int) -> float:
    """Return the probability that no link has more flows than ``most``.

    The loads are independent Poisson variables, conditioned on their sum being ``flows``.
    """
    mean = flows / links
    below = [math.exp(-mean + n * math.log(mean) - math.lgamma(n + 1)) for n in range(most + 1)]
    total = math.exp(-flows + flows * math.log(flows) - math.lgamma(flows + 1))
    return min(1.0, (_exact(below, flows, links) if flows <= _EXACT else _normal(below, flows, links)) / total)


def _exact(below: list[float], flows: int, links: int) -> float:
    """Return the probability that the loads of all links add up to ``flows``.

    ``below`` has the probability of each load of one link, from 0 to the maximum.
    """
    sums = [1.0]
    for _ in range(links):
        longer = [0.0] * min(flows + 1, len(sums) + len(below) - 1)
        for had, chance in enumerate(sums):
            for more, part in enumerate(below[: len(longer) - had]):
                longer[had + more] += chance * part
        sums = longer
    return sums[flows] if flows < len(sums) else 0.0


def _normal(below: list[float], flows: int, links: int) -> float:
    total = sum(below)
    mean = sum(n * chance for n, chance in enumerate(below)) / total
    variance = links * (sum(n * n * chance for n, chance in enumerate(below)) / total - mean * mean)
    if variance <= 0:
        return 0.0
    density = math.exp(-((flows - links * mean) ** 2) / (2 * variance)) / math.sqrt(2 * math.pi * variance)
    return math.exp(links * math.log(total)) * density
