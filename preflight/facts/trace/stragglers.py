"""Ranks that delay their process group in every step.

In any group some rank is last. A rank is named if it causes more than half of its group's waiting, exceeds its peers by
more than one hundredth of a step, and does so in too many steps for chance. A pipeline's stages wait for each other by
design, so there the rank is named that computes longer than the other stages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist, fmean, median, stdev

from preflight._startup.lightclass import dataclass
from preflight.facts.trace.pipelines import pipelines
from preflight.facts.trace.ranks import RankTrace
from preflight.facts.trace.waiting import BLOCKS, GroupOfRanks, WaitKey, Waits

#: Share of a group's waiting, and of a step, that a straggler causes at least.
MOST_OF_IT, OF_A_STEP = 0.5, 0.01
#: Probability of a chance difference in any group of a job, below which a rank is named.
BY_CHANCE = 0.0005
#: Minimum number of steps to name a rank.
FEWEST_STEPS = 3
#: Minimum fraction of a single step that a rank must cost to be named for it.
OF_ONE_STEP = 0.15


@dataclass(frozen=True)
class Straggler:
    """A rank that delays others."""

    rank: int
    group: GroupOfRanks
    share: float  # of the group's waiting
    lost_us: float  # additional cost per step compared with its peers
    lost_share: float  # of a step
    steps: tuple[int, ...]  # steps in which it was late; empty: all


def step_length(ranks: Mapping[int, RankTrace]) -> float | None:
    """Return the median step over all ranks, microseconds; None if none is marked."""
    lengths = [end - begin for trace in ranks.values() for begin, end in trace.steps.values()]
    return median(lengths) if lengths else None


def stragglers(ranks: Mapping[int, RankTrace], waits: Waits) -> list[Straggler]:
    """Return the stragglers, most expensive first; each rank once."""
    length = step_length(ranks) or waits.block_us
    if not length:
        return []
    steps = sorted(set.intersection(*(set(trace.steps) for trace in ranks.values()))) or list(range(BLOCKS))
    candidates: list[Straggler] = []
    beyond = NormalDist().inv_cdf(1 - BY_CHANCE / max(1, len(waits.groups)))
    for number, group in enumerate(waits.groups):
        if group.kinds == {"sendrecv"}:
            continue
        caused = {step: waits.caused.get(WaitKey(number, step), {}) for step in steps}
        candidates += _of_group(group, caused, length, beyond)
    candidates += _of_pipelines(ranks, steps, length, beyond)
    candidates.sort(key=lambda straggler: (bool(straggler.steps), -straggler.lost_us))
    by_rank: dict[int, Straggler] = {}
    for candidate in candidates:
        by_rank.setdefault(candidate.rank, candidate)
    return list(by_rank.values())


def _of_group(
    group: GroupOfRanks, caused: Mapping[int, Mapping[int, float]], length: float, beyond: float
) -> list[Straggler]:
    if len(caused) < FEWEST_STEPS:
        return []
    total = {rank: sum(of_step.get(rank, 0.0) for of_step in caused.values()) for rank in group.ranks}
    everything = sum(sum(of_step.values()) for of_step in caused.values())
    if not everything:
        return []
    rank = max(total, key=total.__getitem__)
    peers = [other for other in group.ranks if other != rank]
    excess = [of_step.get(rank, 0.0) - fmean(of_step.get(other, 0.0) for other in peers) for of_step in caused.values()]
    share, lost = total[rank] / everything, fmean(excess)
    if share > MOST_OF_IT and lost > OF_A_STEP * length and _beyond_chance(excess, beyond):
        return [Straggler(rank, group, share, lost, lost / length, ())]
    return _now_and_then(group, caused, length)


def _now_and_then(group: GroupOfRanks, caused: Mapping[int, Mapping[int, float]], length: float) -> list[Straggler]:
    """Return ranks that cost single steps much."""
    late: dict[int, dict[int, float]] = {}
    for step, of_step in caused.items():
        for rank in group.ranks:
            amount = of_step.get(rank, 0.0)
            if amount > OF_ONE_STEP * length and amount > MOST_OF_IT * sum(of_step.values()):
                late.setdefault(rank, {})[step] = amount
    everything = sum(sum(of_step.values()) for of_step in caused.values())
    return [
        Straggler(rank, group, sum(steps.values()) / everything, sum(steps.values()) / len(caused),
                  sum(steps.values()) / len(caused) / length, tuple(sorted(steps)))
        for rank, steps in late.items()
        if sum(steps.values()) > OF_A_STEP * length * len(caused)
    ]  # fmt: skip


def _of_pipelines(
    ranks: Mapping[int, RankTrace], steps: Sequence[int], length: float, beyond: float
) -> list[Straggler]:
    """Return the ranks of pipelines that compute longer than the other stages."""
    if len(steps) < FEWEST_STEPS:
        return []
    stragglers_of_all = []
    for stages in pipelines(ranks):
        compute = {rank: [ranks[rank].compute.get(step, 0.0) for step in steps] for rank in stages.ranks}
        slowest = max(compute, key=lambda rank: sum(compute[rank]))
        peers = [rank for rank in stages.ranks if rank != slowest]
        excess = [compute[slowest][at] - median(compute[rank][at] for rank in peers) for at in range(len(steps))]
        lost = fmean(excess)
        if lost > OF_A_STEP * length and _beyond_chance(excess, beyond):
            stragglers_of_all.append(Straggler(slowest, stages, 1.0, lost, lost / length, ()))
    return stragglers_of_all


def _beyond_chance(sample: Sequence[float], beyond: float) -> bool:
    """Return whether a mean is above zero by more than its sample's spread explains.

    Student's t as a normal deviate, by Wallace's approximation (Annals of Mathematical Statistics 30, 1959).
    """
    mean, freedom = fmean(sample), len(sample) - 1
    spread = stdev(sample)
    if mean <= 0:
        return False
    if spread < 1e-9 * mean:
        return True
    square = mean * mean * len(sample) / (spread * spread)
    deviate = (8 * freedom + 1) / (8 * freedom + 3) * math.sqrt(freedom * math.log1p(square / freedom))
    return deviate > beyond
