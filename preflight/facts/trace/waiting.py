"""Waiting in collectives, and the rank that causes it.

In each collective the last rank delays its peers. It may be late because it waited elsewhere: a rank of a slow
tensor-parallel group is also late in its data-parallel group. So waiting is attributed to its cause: the last rank's
waiting in this step for a cause, beyond that of its peers, is charged to that cause, and only the rest to the rank
itself. A rank that waits for the last one then has the same waiting, so it is not charged twice. Times are microseconds
on the common clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from preflight.facts.trace.matching import MatchedSeries, RankClock
from preflight.facts.trace.ranks import RankTrace
from preflight.parsers.torch.intervals import Stretches

#: Maximum number of attributed causes of one wait, and the minimum fraction of a cause.
_MOST_CAUSES, _LEAST_SHARE = 4, 0.01
#: Maximum number of stored causes of a rank's delay within a step.
_MOST_DELAYS = 16
#: Number of parts with equal numbers of collectives that replace steps if the profiles mark none.
BLOCKS = 10
#: Errors of a clock within which two arrivals are simultaneous.
_ERRORS = 3.0

Charges = dict[int, float]  # by rank


class WaitKey(NamedTuple):
    """A process group and a step."""

    group: int  # index in ``Waits.groups``
    step: int


class GroupOfRanks(NamedTuple):
    """A process group with collectives that were matched."""

    name: str
    description: str
    ranks: tuple[int, ...]  # with traces
    complete: bool
    kinds: frozenset[str]


class Waits:
    """Waiting of all ranks: total, exposed, and by causing rank."""

    def __init__(self, groups: Sequence[GroupOfRanks]) -> None:
        self.groups = tuple(groups)
        #: Exposed waiting that a rank causes in a group, per step: the mean over the waiting ranks.
        self.caused: dict[WaitKey, Charges] = defaultdict(lambda: defaultdict(float))
        #: Exposed waiting of a rank by step and by cause.
        self.bare: dict[tuple[int, int], Charges] = defaultdict(lambda: defaultdict(float))
        #: The same in sends and receives, which by design wait for other stages of a pipeline.
        self.receiving: dict[tuple[int, int], float] = defaultdict(float)
        #: Times at which each rank waited, on its own clock, including hidden waiting.
        self.stretches: dict[int, Stretches] = defaultdict(Stretches)
        #: Length of the parts that replace steps; None if steps are marked.
        self.block_us: float | None = None
        #: Rows in which waiting was measured, by group.
        self.rows: dict[int, int] = defaultdict(int)
        self.transfers: dict[tuple[int, str, int], list[float]] = defaultdict(list)  # by group, kind and bytes


def measure(ranks: Mapping[int, RankTrace], matched: Sequence[MatchedSeries], clock: Mapping[int, RankClock]) -> Waits:
    """Measure which ranks wait for which others in matched collectives."""
    groups, number = _groups(matched)
    waits = Waits(groups)
    delays: dict[int, tuple[int, Charges]] = {}  # of each rank: the step, and its waiting in it by cause
    arrivals = sorted(_arrivals(matched, clock))
    unmarked = not any(trace.steps for trace in ranks.values())
    if unmarked and arrivals:
        waits.block_us = (arrivals[-1][0] - arrivals[0][0]) / BLOCKS
    for at, (_, which, row) in enumerate(arrivals):
        series = matched[which]
        group = number[which]
        begins = [
            one_series.begins[places[row]] + clock[rank].offset
            for rank, one_series, places in zip(series.members, series.series, series.places, strict=True)
        ]
        ends = [
            one_series.ends[places[row]] + clock[rank].offset
            for rank, one_series, places in zip(series.members, series.series, series.places, strict=True)
        ]
        last = max(range(len(begins)), key=begins.__getitem__)
        error = max(clock[rank].error for rank in series.members)
        step = at * BLOCKS // len(arrivals) if unmarked else series.series[last].steps[series.places[last][row]]
        size = series.series[last].bytes[series.places[last][row]]
        waits.rows[group] += 1
        waits.transfers[group, series.kind, size].append(max(0.0, min(ends) - begins[last]))
        bare = [0.0] * len(begins)
        for member, rank in enumerate(series.members):
            if rank not in delays or delays[rank][0] != step:
                delays[rank] = (step, {})
            waited = min(begins[last], ends[member]) - begins[member]
            if waited > _ERRORS * error:
                begin = begins[member] - clock[rank].offset
                bare[member] = ranks[rank].bare.within(begin, begin + waited)
                waits.stretches[rank].add(begin, waited)
        if not (total := sum(bare)):
            continue
        mean = total / (len(bare) - 1)
        shares = _causes([delays[rank][1] for rank in series.members], last, series.members[last], mean)
        charges = waits.caused[WaitKey(group, step)]
        for cause, share in shares.items():
            charges[cause] += share * mean
        for member, rank in enumerate(series.members):
            if not bare[member]:
                continue
            if series.kind == "sendrecv":
                waits.receiving[rank, step] += bare[member]
            for cause, share in shares.items():
                if series.kind != "sendrecv":
                    waits.bare[rank, step][cause] += share * bare[member]
                _delay(delays[rank][1], cause, share * bare[member])
    return waits


def _groups(matched: Sequence[MatchedSeries]) -> tuple[list[GroupOfRanks], list[int]]:
    """Return the distinct groups, and for each series the index of its group."""
    index: dict[tuple[str, str, tuple[int, ...], bool], int] = {}
    kinds: list[set[str]] = []
    number = []
    for series in matched:
        identity = (series.group.name, series.group.listed, series.members, series.complete)
        at = index.setdefault(identity, len(index))
        if at == len(kinds):
            kinds.append(set())
        kinds[at].add(series.kind)
        number.append(at)
    descriptions = {number[at]: series.group.description for at, series in enumerate(matched)}
    groups = [
        GroupOfRanks(name, descriptions[at], members, complete, frozenset(kinds[at]))
        for (name, _, members, complete), at in index.items()
    ]
    return groups, number


def _arrivals(matched: Sequence[MatchedSeries], clock: Mapping[int, RankClock]) -> Iterator[tuple[float, int, int]]:
    """Yield the last arrival at each collective, its series and its row."""
    for which, series in enumerate(matched):
        offsets = [clock[rank].offset for rank in series.members]
        for row in range(len(series)):
            yield max(
                one_series.begins[places[row]] + offset
                for one_series, places, offset in zip(series.series, series.places, offsets, strict=True)
            ), which, row  # fmt: skip


def _delay(delay: Charges, cause: int, amount: float) -> None:
    """Record a rank's waiting; of many causes, smaller ones are dropped."""
    delay[cause] = delay.get(cause, 0.0) + amount
    if len(delay) > 2 * _MOST_DELAYS:
        for small in sorted(delay, key=delay.__getitem__)[:-_MOST_DELAYS]:
            del delay[small]


def _causes(delays: Sequence[Charges], last: int, rank: int, late: float) -> Charges:
    """Return the ranks responsible for waiting for the last one, as fractions of one."""
    peers = len(delays) - 1
    excess: Charges = {}
    for cause, amount in delays[last].items():
        elsewhere = sum(delay.get(cause, 0.0) for at, delay in enumerate(delays) if at != last)
        if cause != rank and (beyond := amount - elsewhere / peers) > _LEAST_SHARE * late:
            excess[cause] = beyond
    causes = sorted(excess, key=excess.__getitem__, reverse=True)[:_MOST_CAUSES]
    scale = 1 / max(sum(excess[cause] for cause in causes), late)
    shares = {cause: excess[cause] * scale for cause in causes}
    if (rest := 1 - sum(shares.values())) > 1e-9:
        shares[rank] = rest
    return shares
