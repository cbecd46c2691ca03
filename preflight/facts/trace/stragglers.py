"""Ranks that delay their process group, and process groups with slow transfers.

In any group some rank is last. Ranks are reported if they are at most half of their group, cause more than half
of its waiting, exceed their peers by more than 1% of a step, and do so in more steps than chance explains. Stages of
pipelines, which wait for each other by design, are compared in ``late_stages``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import NormalDist, fmean, median, stdev

from preflight._startup.lightclass import dataclass
from preflight.facts.trace.pipelines import pipelines
from preflight.facts.trace.purposes import purpose
from preflight.facts.trace.ranks import RankTrace
from preflight.facts.trace.shared_idle import SharedIdle, shared_idle
from preflight.facts.trace.waiting import BLOCKS, GroupOfRanks, WaitKey, Waits

#: Minimum share of a group's waiting, and of a step, that stragglers cause.
MOST_OF_IT, OF_A_STEP = 0.5, 0.01
#: Minimum shares for suspected ranks, whose excess may be chance.
SUSPECT, SUSPECT_STEP = 0.75, 0.02
#: A rank is late in a step if its charge there is this many deviations above the median of all ranks and steps.
_DEVIATIONS = 10.0
#: The same, above the median of its most delayed peers.
_OF_PEERS = 5.0
#: Minimum fraction of the time that all GPUs of the group are idle in such a step; twice as much in a single step.
_OF_IDLE = 0.25
#: Transfers cause delays if they take this many times as long as in a sibling group.
LONGER = 1.5
#: Probability of a chance difference in any group of a job, below which a rank is named.
BY_CHANCE = 0.0005
#: Purposes of the groups whose ranks compute one replica of the model together.
_OF_A_REPLICA = ("tp", "cp")
#: Minimum number of steps to name a rank.
FEWEST_STEPS = 3
#: Minimum fraction of a single step that a rank must cost to be named for it.
OF_ONE_STEP = 0.15


@dataclass(frozen=True)
class Straggler:
    """A rank that delays others."""

    rank: int
    group: GroupOfRanks
    share: float  # share of the group's waiting that the rank causes
    lost_us: float  # what it costs a step
    lost_share: float  # of a step
    steps: tuple[int, ...]  # steps in which it was late; empty: all
    together: tuple[int, ...] = ()  # all ranks that together cause this share and cost; empty if it is the only one
    idle: bool = False  # a stage of a pipeline that is late because its GPU is idle, not because it computes longer
    more_us: float = 0.0  # of a stage, in each step: by how much longer it takes for equal kernels, or is idle
    at_most: bool = False  # whether only an upper bound of its cost is known


@dataclass(frozen=True)
class SlowTransfers:
    """A process group whose transfers delay its ranks in other groups."""

    group: GroupOfRanks
    kind: str
    bytes: int
    length_us: float  # median time of the transfers of this size
    usual_us: float  # median time in the fastest group of the same purpose
    lost_share: float  # of a step


def step_length(ranks: Mapping[int, RankTrace]) -> float | None:
    """Return the median step length of all ranks, µs; None if no step is marked."""
    lengths = [end - begin for trace in ranks.values() for begin, end in trace.steps.values()]
    return median(lengths) if lengths else None


def stragglers(ranks: Mapping[int, RankTrace], waits: Waits, staged: Sequence[Straggler]) -> list[Straggler]:
    """Return the stragglers, each rank once: first those late in all steps, by cost.

    ``staged`` are those of pipelines.
    """
    length = step_length(ranks) or waits.block_us
    if not length:
        return []
    steps = common_steps(ranks)
    beyond = deviate(waits)
    # the other stages of a slow rank's pipeline are late wherever they meet other pipelines, and so is the rest of its
    # replica of the model where it meets other replicas
    follow = {rank for slow in staged for rank in slow.group.ranks} - {slow.rank for slow in staged}
    of_groups = []
    for number, group in _comparable(ranks, waits):
        idle = shared_idle((ranks[rank] for rank in group.ranks), steps)
        of_groups.append((group, _of_group(group, _caused(waits, number, steps), idle, length, beyond)))
    causes = [late for group, of_group in of_groups if purpose(group) in _OF_A_REPLICA for late in of_group
              if late.rank not in follow] + [*staged]  # fmt: skip
    replica = _replica(ranks, waits, causes)
    candidates = list(staged)
    for group, of_group in of_groups:
        delayed = follow if replica.issuperset(group.ranks) else (follow | replica) - {cause.rank for cause in causes}
        candidates += [late for late in of_group if late.rank not in delayed]
    candidates.sort(key=lambda straggler: (bool(straggler.steps), -straggler.lost_us))
    by_rank: dict[int, Straggler] = {}
    for candidate in candidates:
        by_rank.setdefault(candidate.rank, candidate)
    return list(by_rank.values())


def _replica(ranks: Mapping[int, RankTrace], waits: Waits, slow: Sequence[Straggler]) -> set[int]:
    """Return the ranks that slow ranks delay in every layer or message."""
    joined = [set(pipeline.ranks) for pipeline in pipelines(ranks)]
    joined += [set(group.ranks) for group in waits.groups if purpose(group) in _OF_A_REPLICA]
    replica = {rank for straggler in slow for rank in straggler.group.ranks}
    while more := set().union(*(group for group in joined if group & replica)) - replica:
        replica |= more
    return replica


def suspects(ranks: Mapping[int, RankTrace], waits: Waits) -> list[Straggler]:
    """Return ranks that delay their group the most, possibly by chance; not stages.

    Steps in which all ranks are idle for long are left out: after a pause, one of them is the last by chance.
    """
    length = step_length(ranks) or waits.block_us
    if not length:
        return []
    late_ranks: list[Straggler] = []
    steps = common_steps(ranks)
    for number, group in _comparable(ranks, waits):
        idle = shared_idle((ranks[rank] for rank in group.ranks), steps)
        caused = _caused(waits, number, [step for step in steps if idle[step].beyond <= OF_ONE_STEP * length])
        if not caused:
            continue
        late, share, excess = _standing_out(group.ranks, (), caused)
        waited = sum(sum(of_step.values()) for of_step in caused.values()) / len(caused)
        lost = fmean(map(sum, zip(*excess, strict=True)))
        if share > SUSPECT and waited > SUSPECT_STEP * length:
            late_ranks += [Straggler(rank, group, share, lost, lost / length, (), late) for rank in late]
    return late_ranks


def slow_transfers(ranks: Mapping[int, RankTrace], waits: Waits) -> list[SlowTransfers]:
    """Return groups that delay others by transfers slower than their siblings'."""
    length = step_length(ranks) or waits.block_us
    if not length:
        return []
    steps = common_steps(ranks)
    lost: dict[int, float] = {}
    for number in range(len(waits.groups)):
        caused = _caused(waits, number, steps)
        everything = sum(sum(of_step.values()) for of_step in caused.values())
        for group in range(len(waits.groups)):
            sample = [of_step.get(-1 - group, 0.0) for of_step in caused.values()]
            often = sum(amount > OF_A_STEP * length for amount in sample)
            if often >= max(FEWEST_STEPS, len(sample) / 2) and sum(sample) > MOST_OF_IT * everything:
                lost[group] = max(lost.get(group, 0.0), fmean(sample) / length)
    transfers = []
    for group, share in lost.items():
        if share > OF_A_STEP and (longer := _longer(waits, group)):
            transfers.append(SlowTransfers(waits.groups[group], *longer, share))
    return transfers


def _longer(waits: Waits, group: int) -> tuple[str, int, float, float] | None:
    """Return kind, bytes and medians of transfers slower than in sibling groups.

    Of several kinds and sizes, these are the transfers that take the most time in total. None if there are none.
    """
    this = waits.groups[group]
    longer = []
    for (number, kind, size), sample in waits.transfers.items():
        if number != group or size <= 0:
            continue
        others = [
            median(waits.transfers[other, kind, size])
            for other, sibling in enumerate(waits.groups)
            if other != group and sibling.description == this.description and len(sibling.ranks) == len(this.ranks)
            if (other, kind, size) in waits.transfers
        ]
        if others and median(sample) > LONGER * min(others):
            longer.append((sum(sample), kind, size, median(sample), min(others)))
    return max(longer)[1:] if longer else None


def common_steps(ranks: Mapping[int, RankTrace]) -> list[int]:
    """Return the steps that all traces have, or the blocks that replace steps."""
    steps = [set(trace.steps) for trace in ranks.values()]
    return sorted(set.intersection(*steps) if steps else ()) or list(range(BLOCKS))


def _caused(waits: Waits, group: int, steps: Sequence[int]) -> Mapping[int, Mapping[int, float]]:
    return {step: waits.caused.get(WaitKey(group, step), {}) for step in steps}


def _comparable(ranks: Mapping[int, RankTrace], waits: Waits) -> Iterator[tuple[int, GroupOfRanks]]:
    """Yield the groups whose ranks do the same work; stages of a pipeline do not."""
    stages = [set(pipeline.ranks) for pipeline in pipelines(ranks)]
    for number, group in enumerate(waits.groups):
        if group.kinds != {"sendrecv"} and all(len(pipeline & set(group.ranks)) < 2 for pipeline in stages):
            yield number, group


def deviate(waits: Waits) -> float:
    """Return the normal deviate beyond which a difference is not chance."""
    return NormalDist().inv_cdf(1 - BY_CHANCE / max(1, len(waits.groups)))


def _of_group(
    group: GroupOfRanks, caused: Mapping[int, Mapping[int, float]], idle: Mapping[int, SharedIdle], length: float,
    beyond: float,
) -> list[Straggler]:  # fmt: skip
    if len(caused) < FEWEST_STEPS:
        return []
    named: list[Straggler] = []
    while len(left := [rank for rank in group.ranks if all(rank != other.rank for other in named)]) > 1:
        late, share, excess = _standing_out(left, [straggler.rank for straggler in named], caused)
        lost = fmean(map(sum, zip(*excess, strict=True)))
        if not (share > MOST_OF_IT and lost > OF_A_STEP * length):
            break
        together = [sum(of_step) for of_step in zip(*excess, strict=True)]
        if len(late) > 1:  # they were chosen for causing the most, so a sum of k normal deviates is larger by this much
            chosen = 0.8 * math.sqrt(len(late) / len(together)) * stdev(together)
            together = [amount - chosen for amount in together]
        if not beyond_chance(together, beyond) or min(map(fmean, excess)) < lost / len(late) / 2:
            break
        named += [Straggler(rank, group, share, lost, lost / length, (), late) for rank in late]
    return named or _now_and_then(group, caused, idle, length)


def _standing_out(
    ranks: Sequence[int], named: Sequence[int], caused: Mapping[int, Mapping[int, float]]
) -> tuple[tuple[int, ...], float, list[list[float]]]:
    """Return the ranks, at most half, that cause the most waiting.

    Also return their share of the waiting not caused by the ``named``, and the excess of each over the mean of the
    remaining ranks, in each step.
    """
    total = {rank: sum(of_step.get(rank, 0.0) for of_step in caused.values()) for rank in ranks}
    order = sorted(ranks, key=total.__getitem__, reverse=True)
    count = max(range(1, len(order) // 2 + 1), key=lambda at: total[order[at - 1]] - total[order[at]])
    late, others = tuple(sorted(order[:count])), order[count:]
    everything = sum(amount for of_step in caused.values() for rank, amount in of_step.items() if rank not in named)
    share = sum(total[rank] for rank in late) / everything if everything else 0.0
    usual = {step: fmean(of_step.get(other, 0.0) for other in others) for step, of_step in caused.items()}
    return late, share, [[of_step.get(rank, 0.0) - usual[step] for step, of_step in caused.items()] for rank in late]


def _now_and_then(
    group: GroupOfRanks, caused: Mapping[int, Mapping[int, float]], idle: Mapping[int, SharedIdle], length: float
) -> list[Straggler]:
    """Return ranks that delay a few steps by much, or several steps unusually.

    After a pause that all ranks have, such as garbage collection, one of them is the last by chance.
    """
    peers = len(group.ranks) - 1
    sums = {step: sum(of_step.get(rank, 0.0) for rank in group.ranks) for step, of_step in caused.items()}
    excess = {
        rank: {
            step: of_step.get(rank, 0.0) - (sums[step] - of_step.get(rank, 0.0)) / peers
            for step, of_step in caused.items()
        }
        for rank in group.ranks
    }
    everything = [amount for of_rank in excess.values() for amount in of_rank.values()]
    if peers > 1:  # of two ranks, one is later in each step
        everything = [of_step.get(rank, 0.0) for of_step in caused.values() for rank in group.ranks]
    limit = _unusual(everything, _DEVIATIONS)
    late: dict[int, dict[int, float]] = {}
    for rank in group.ranks:
        least = _unusual(_led_by_peers(group, caused, rank), _OF_PEERS)
        of_rank = {
            step: amount for step, of_step in caused.items()
            if (amount := of_step.get(rank, 0.0)) > max(least, idle[step].beyond, _OF_IDLE * idle[step].time)
        }  # fmt: skip
        much = {step: amount for step, amount in of_rank.items()
                if amount > max(OF_ONE_STEP * length, MOST_OF_IT * sum(caused[step].values()),
                                2 * _OF_IDLE * idle[step].time)}  # fmt: skip
        often = {step: amount for step, amount in of_rank.items()
                 if excess[rank][step] > max(limit, OF_A_STEP * length)}  # fmt: skip
        if len(often) >= FEWEST_STEPS and len(often) > len(much):
            late[rank] = often
        elif much:
            late[rank] = much
    waited_at_all = sum(sum(of_step.values()) for of_step in caused.values())
    cost = {rank: sum(steps.values()) for rank, steps in late.items()}
    late = {rank: late[rank] for rank, amount in cost.items() if amount > sum(cost.values()) / len(cost) / 2}
    waited = sum(sum(caused[step].values()) for step in set().union(*late.values()))
    together = tuple(sorted(late))
    if len(late) > len(group.ranks) / 2 or sum(cost.values()) <= max(
        OF_A_STEP * length * len(caused), MOST_OF_IT * waited
    ):
        return []
    return [
        Straggler(rank, group, sum(cost.values()) / waited_at_all, sum(cost.values()) / len(caused),
                  sum(cost.values()) / len(caused) / length, tuple(sorted(steps)), together)
        for rank, steps in late.items()
    ]  # fmt: skip


def _led_by_peers(group: GroupOfRanks, caused: Mapping[int, Mapping[int, float]], rank: int) -> Sequence[float]:
    """Return the largest charge in each step in which a peer of a rank has it."""
    most = [max((of_step.get(peer, 0.0), peer) for peer in group.ranks) for of_step in caused.values()]
    return [amount for amount, peer in most if peer != rank] or [0.0]


def _unusual(sample: Sequence[float], deviations: float) -> float:
    """Return the median of a sample plus robust standard deviations."""
    usual = median(sample)
    return usual + deviations * 1.4826 * median(abs(amount - usual) for amount in sample)


def beyond_chance(sample: Sequence[float], beyond: float) -> bool:
    """Return whether a mean is above zero by more than its sample's spread explains.

    Student's t is converted to a normal deviate by Wallace's approximation (Annals of Mathematical Statistics 30,
    1959).
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
