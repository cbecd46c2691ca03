"""Ranks of pipelines that delay the job.

The stages of a pipeline wait for each other by design, so waiting shows no straggler. The rank that takes longer for
equal kernels than other stages is reported, or the rank whose GPU is idle while they wait for it; their cost is the
time by which a replay of the job without it is shorter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean, median
from typing import NamedTuple

from preflight._startup.lightclass import replace
from preflight.facts.trace.equal_kernels import ComparedPipelines, EqualKernels
from preflight.facts.trace.idle_stages import HeldUp, held_up
from preflight.facts.trace.ranks import RankTrace
from preflight.facts.trace.replay import Less, Replay
from preflight.facts.trace.stragglers import (
    FEWEST_STEPS,
    OF_A_STEP,
    OF_ONE_STEP,
    SUSPECT_STEP,
    Straggler,
    beyond_chance,
    deviate,
)
from preflight.facts.trace.waiting import GroupOfRanks, Waits

#: Minimum number of steps to name a stage that is late in each of them.
_EACH_STEP = 5
#: Minimum ratio of the lower to the upper bound of a cost, to state it without "up to".
_CLOSE = 0.8
#: Maximum number of stragglers whose cost is computed.
_MOST_REPLAYED = 8

Replays = Callable[[], Sequence[Replay]]


class _Late(NamedTuple):
    """A late stage, and what it does beyond other stages in each step."""

    straggler: Straggler
    less: Less
    steps: int  # number of steps in which it is late


def late_stages(
    ranks: Mapping[int, RankTrace], waits: Waits, compared: ComparedPipelines, steps: Sequence[int],
    length: float | None, replays: Replays,
) -> list[Straggler]:  # fmt: skip
    """Return the ranks of pipelines that compute, or are idle, longer than others."""
    if len(steps) < FEWEST_STEPS or not length:
        return []
    beyond, late = deviate(waits), []
    for stages, kernels in compared:
        compute = {rank: [ranks[rank].compute.get(step, 0.0) for step in steps] for rank in stages.ranks}
        slow = [
            _Late(each, Less(dict.fromkeys(steps, each.more_us / fmean(compute[each.rank])), {}), len(steps))
            for each in _slow_stages(stages, kernels, length)
            if each.lost_share > OF_A_STEP and kernels[each.rank].consistent
            and beyond_chance(kernels[each.rank].excess, beyond)
        ]  # fmt: skip
        if slow:
            late += slow
            continue
        idle_stages = _held_up(ranks, waits, stages, steps)
        idle, held = _idle_stage(stages, idle_stages, length)
        times = [each.time for each in held.values()]
        if idle.lost_share > OF_A_STEP and (beyond_chance(times, beyond) or _in_each_step(times, length)):
            part = sum(each.more for each in held.values()) / sum(each.idle for each in held.values())
            late.append(_Late(idle, Less({}, dict.fromkeys(ranks[idle.rank].steps, part)), len(held)))
        else:
            late += _now_and_then(stages, compute, steps, length)
            late += _stalled(stages, idle_stages, len(steps), length)
    return _with_cost(late, length, replays) if late else []


def suspected_stages(
    ranks: Mapping[int, RankTrace],
    waits: Waits,
    compared: ComparedPipelines,
    steps: Sequence[int],
    length: float | None,
) -> Iterator[Straggler]:
    """Yield ranks of pipelines that are slower or idle longer, possibly by chance."""
    for stages, kernels in compared if length else ():
        assert length
        idle, _ = _idle_stage(stages, _held_up(ranks, waits, stages, steps), length)
        for each in (*_slow_stages(stages, kernels, length), idle):
            if each.lost_share > SUSPECT_STEP:
                yield each


def _with_cost(late: Sequence[_Late], length: float, replays: Replays) -> list[Straggler]:
    """Return the stragglers with what each costs a step, if there were no others.

    Where the replay differs from the job, the cost is at most what they do beyond other stages.
    """
    every = {each.straggler.rank: each.less for each in late}
    by_rank = {rank: replay for replay in replays() if replay.agrees for rank in replay.ranks}
    costs = []
    for straggler, _, steps in late:
        replay = by_rank.get(straggler.rank) if len(late) <= _MOST_REPLAYED else None
        if replay is None:
            costs.append(replace(straggler, at_most=True))
            continue
        without = {rank: less for rank, less in every.items() if rank != straggler.rank}
        both, others = replay.saved(every), replay.saved(without)
        most = min(straggler.more_us, (both.most - others.most) / steps)
        least = min(most, (both.least - others.least) / steps)
        close = least >= _CLOSE * most
        lost = (least + most) / 2 if close else most
        costs.append(replace(straggler, lost_us=lost, lost_share=lost / length, at_most=not close))
    return costs


def _slow_stages(stages: GroupOfRanks, kernels: Mapping[int, EqualKernels], length: float) -> Iterator[Straggler]:
    """Yield each rank, with how much longer its kernels take than equal ones."""
    for rank in stages.ranks:
        more = fmean(kernels[rank].excess or (0.0,))
        yield Straggler(rank, stages, 1.0, more, more / length, (), more_us=more)


def _held_up(
    ranks: Mapping[int, RankTrace], waits: Waits, stages: GroupOfRanks, steps: Sequence[int]
) -> Mapping[int, Mapping[int, HeldUp]]:
    """Return how long each stage holds up others by idle time, by step.

    Whether a GPU was idle before the first kernel of the profile is unknown.
    """
    return held_up(ranks, stages.ranks, waits, steps[1:] if len(steps) > FEWEST_STEPS else steps)


def _idle_stage(
    stages: GroupOfRanks, held: Mapping[int, Mapping[int, HeldUp]], length: float
) -> tuple[Straggler, Mapping[int, HeldUp]]:
    """Return the rank whose idle GPU holds up other stages the most, and by how much."""
    rank = max(held, key=lambda stage: sum(each.time for each in held[stage].values()))
    more = fmean(each.time for each in held[rank].values())
    return Straggler(rank, stages, 1.0, more, more / length, (), idle=True, more_us=more), held[rank]


def _stalled(
    stages: GroupOfRanks, held: Mapping[int, Mapping[int, HeldUp]], steps: int, length: float
) -> Iterator[_Late]:
    """Yield the ranks whose idle GPU holds up others for long in some steps."""
    for rank, by_step in held.items():
        usual = median(each.time for each in by_step.values())
        late = {step: each for step, each in by_step.items() if each.time - usual > OF_ONE_STEP * length}
        more = sum(each.time - usual for each in late.values()) / steps
        if more > OF_A_STEP * length:
            straggler = Straggler(rank, stages, 1.0, more, more / length, tuple(late), idle=True, more_us=more)
            # a call after the idle time may have been launched in the step before or after it
            less = {other: each.more / each.idle for step, each in late.items() for other in (step - 1, step, step + 1)}
            yield _Late(straggler, Less({}, less), steps)


def _in_each_step(held: Sequence[float], length: float) -> bool:
    """Return whether a stage holds up others in each step, by a similar time.

    Idle time of chance does not choose one stage each time; this is shown by fewer steps than a mean needs.
    """
    return len(held) >= _EACH_STEP and min(held) > max(SUSPECT_STEP * length, fmean(held) / 2)


def _now_and_then(
    stages: GroupOfRanks, compute: Mapping[int, Sequence[float]], steps: Sequence[int], length: float
) -> Iterator[_Late]:
    """Yield the ranks that compute much longer in some steps, unlike other stages."""
    beyond = {rank: [amount - median(amounts) for amount in amounts] for rank, amounts in compute.items()}
    for rank in stages.ranks:
        late = {}
        for at, step in enumerate(steps):
            of_peers = median(beyond[peer][at] for peer in stages.ranks if peer != rank)
            if (excess := beyond[rank][at] - max(0.0, of_peers)) > OF_ONE_STEP * length:
                late[step] = excess
        more = sum(late.values()) / len(steps)
        if more > OF_A_STEP * length:
            less = {step: late[step] / compute[rank][at] for at, step in enumerate(steps) if step in late}
            yield _Late(
                Straggler(rank, stages, 1.0, more, more / length, tuple(late), more_us=more), Less(less, {}), len(steps)
            )
