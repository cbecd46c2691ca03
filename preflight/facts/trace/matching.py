"""Matching of collectives across ranks, on one clock.

Calls are matched by process group, kind and number. A collective ends on all ranks at about the same time, although the
clocks of their hosts differ. The median difference between the ends of matched calls is therefore the offset of two
clocks, and its median absolute deviation is the error.
"""

from __future__ import annotations

import heapq
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from preflight._startup.lightclass import dataclass, replace
from preflight.facts.trace.ranks import RankTrace
from preflight.parsers.torch.collective_calls import CallGroup, CallKey, CallSeries

#: Minimum number of matched calls of two ranks to compare their clocks.
ENOUGH_MATCHES = 20
#: Calls whose ends differ by more than this fraction of their median time are not the same collective.
SAME_END = 0.5
#: Kinds that end on all ranks at the same time; the root of a broadcast and a sender may end earlier.
_TOGETHER = frozenset(("all_reduce", "all_gather", "reduce_scatter", "alltoall", "barrier"))
_POINT_TO_POINT = ("send", "recv")


@dataclass(frozen=True)
class MatchedSeries:
    """Calls of one kind, made by all traced ranks of a group; a row is a collective."""

    group: CallGroup
    kind: str
    members: tuple[int, ...]  # ranks with a trace
    series: tuple[CallSeries, ...]
    places: tuple[array[int], ...]  # for each member, the index of its call in each row
    sender: int | None = None  # of messages: the rank that sends them

    def __len__(self) -> int:
        return len(self.places[0])

    @property
    def complete(self) -> bool:
        """Whether every member of the group has a trace."""
        size = 2 if self.kind == "sendrecv" and len(self.members) == 2 else self.group.size
        return size is not None and len(self.members) >= size


class RankClock(NamedTuple):
    """Offset of a rank's clock, and its error, in microseconds."""

    offset: float
    error: float
    base: int  # rank of the common clock; those with another base cannot be compared


def match(ranks: Mapping[int, RankTrace]) -> tuple[list[MatchedSeries], list[str]]:
    """Match the calls of all ranks; also return why some could not be matched."""
    by_group: dict[tuple[object, ...], dict[int, CallSeries]] = defaultdict(dict)
    keys: dict[tuple[object, ...], CallKey] = {}
    refused: list[str] = []
    for rank, trace in ranks.items():
        for key, series in trace.calls:
            identity = _identity(key, rank)
            if identity is None:
                continue
            if rank in by_group[identity]:
                refused.append(f"{_named(key)}: rank {rank} names it in two ways")
                continue
            keys.setdefault(identity, key)
            by_group[identity][rank] = series
    matched = []
    for identity, members in by_group.items():
        key = keys[identity]
        if len(members) < 2:
            if (key.group.size or 2) > 1:
                listed = f" ({', '.join(map(str, key.group.ranks[:8]))})" if key.group.ranks else ""
                refused.append(f"{_named(key)}: of its ranks{listed}, only rank {next(iter(members))} has a trace")
            continue
        if not key.group.ranks and key.group.size is not None and len(members) > key.group.size:
            refused.append(f"{_named(key)}: the traces do not show its ranks")
            continue
        result = _aligned(key, members)
        if isinstance(result, str):
            refused.append(f"{_named(key)}: {result}")
        elif len(result):
            ends = identity[-1]  # of messages: sender and receiver
            matched.append(replace(result, sender=ends[0]) if isinstance(ends, tuple) else result)
    return matched, sorted(set(refused))


def _identity(key: CallKey, rank: int) -> tuple[object, ...] | None:
    """Return the key that the calls of one collective share; None if unknown."""
    group = key.group
    if key.kind in _POINT_TO_POINT:
        peer = _peer(key, rank)
        if peer is None:
            return None
        ends = (rank, peer) if key.kind == "send" else (peer, rank)
        return (group.name, group.listed, "sendrecv", ends)
    if group.ranks and rank not in group.ranks:
        return None
    return (group.name, group.listed, group.size, key.kind, key.stream if not group.listed and not group.name else None)


def _peer(key: CallKey, rank: int) -> int | None:
    """Return the global rank at the other end of a send or receive, or None."""
    ranks = key.group.ranks
    if key.peer is not None:
        return key.peer if key.peer != rank and (not ranks or key.peer in ranks) else None
    if len(ranks) == 2 and rank in ranks:
        return ranks[0] if ranks[1] == rank else ranks[1]
    return None


def _named(key: CallKey) -> str:
    group = key.group.description or key.group.name or "a group without a name"
    return f"{key.kind} of process group {group}"


def _aligned(key: CallKey, members: Mapping[int, CallSeries]) -> MatchedSeries | str:
    """Return the rows that every member has, or why no rows can be compared."""
    ranks = sorted(members)
    # for sends and receives each rank has its own count
    numbered = key.kind not in _POINT_TO_POINT and all(
        number >= 0 for rank in ranks for number in members[rank].numbers
    )
    in_steps = all(step >= 0 for rank in ranks for step in members[rank].steps)
    if not numbered and not in_steps and len({len(members[rank]) for rank in ranks}) > 1:
        return "the ranks' profiles have different numbers of calls, without sequence numbers or steps"
    labels = [list(_labels(members[rank], numbered, in_steps)) for rank in ranks]
    common = set(labels[0]).intersection(*map(set, labels[1:]))
    places = tuple(array("q", (at for at, label in enumerate(row) if label in common)) for row in labels)
    kind = "sendrecv" if key.kind in _POINT_TO_POINT else key.kind
    return MatchedSeries(key.group, kind, tuple(ranks), tuple(members[rank] for rank in ranks), places)


def _labels(series: CallSeries, numbered: bool, in_steps: bool) -> Iterator[tuple[int, int]]:
    """Yield a label of each call, the same on all ranks: number or step, and index."""
    before: dict[int, int] = defaultdict(int)
    for number, step in zip(series.numbers, series.steps, strict=True):
        which = number if numbered else step if in_steps else 0
        yield which, before[which]
        before[which] += 1


def clocks(matched: Sequence[MatchedSeries]) -> dict[int, RankClock]:
    """Return each rank's clock, relative to the lowest rank of its component.

    Of several paths between ranks, one over collectives that end on all ranks together is preferred, then the one with
    the smallest error. Kinds of collectives with fewer than 20 calls are pooled, also over several pairs. A rank has no
    clock if it shares 20 collectives with no other rank.
    """
    edges: dict[int, dict[int, tuple[bool, float, float]]] = defaultdict(dict)
    few: dict[tuple[int, int], list[float]] = defaultdict(list)
    for series in matched:
        loose = series.kind not in _TOGETHER
        for member in range(1, len(series.members)):
            pair = series.members[0], series.members[member]
            difference = [
                series.series[0].ends[at] - series.series[member].ends[other]
                for at, other in zip(series.places[0], series.places[member], strict=True)
            ]
            if len(series) >= ENOUGH_MATCHES:
                _add_edge(edges, pair, loose, difference)
            elif not loose:
                few[pair] += difference
    for pair, difference in few.items():
        if len(difference) >= ENOUGH_MATCHES and pair[1] not in edges[pair[0]]:
            _add_edge(edges, pair, False, difference)
    clock: dict[int, RankClock] = {}
    for start in sorted(edges):
        waiting = [(False, 0.0, start, 0.0)]
        while waiting:
            loose, error, rank, offset = heapq.heappop(waiting)
            if rank in clock:
                continue
            clock[rank] = RankClock(offset, error, start)
            for other, (also_loose, more, step) in edges[rank].items():
                if other not in clock:
                    heapq.heappush(waiting, (loose or also_loose, error + more, other, offset + step))
    _join(clock, few)
    return clock


def _join(clock: dict[int, RankClock], few: Mapping[tuple[int, int], Sequence[float]]) -> None:
    """Join clocks by the few collectives of several pairs of ranks together."""
    while True:
        between: dict[tuple[int, int], list[float]] = defaultdict(list)
        for (first, second), differences in few.items():
            if first in clock and second in clock and clock[first].base != clock[second].base:
                shift = clock[first].offset - clock[second].offset
                between[clock[first].base, clock[second].base] += [shift + each for each in differences]
        pair = max(between, key=lambda bases: len(between[bases]), default=None)
        if pair is None or len(between[pair]) < ENOUGH_MATCHES:
            return
        offset = median(between[pair])
        error = median(abs(value - offset) for value in between[pair])
        for rank, own in clock.items():
            if own.base == pair[1]:
                clock[rank] = RankClock(own.offset + offset, own.error + error, pair[0])


def _add_edge(
    edges: dict[int, dict[int, tuple[bool, float, float]]], pair: tuple[int, int], loose: bool, difference: list[float]
) -> None:
    """Add the offset of two clocks, unless a better one is known."""
    base, rank = pair
    offset = median(difference)
    error = median(abs(value - offset) for value in difference)
    if rank not in edges[base] or (loose, error) < edges[base][rank][:2]:
        edges[base][rank] = (loose, error, offset)
        edges[rank][base] = (loose, error, -offset)


def on_one_clock(ranks: Iterable[int], clock: Mapping[int, RankClock]) -> bool:
    """Return whether the clocks of these ranks can be compared."""
    bases = {clock[rank].base if rank in clock else None for rank in ranks}
    return len(bases) == 1 and None not in bases


def ends_agree(series: MatchedSeries, clock: Mapping[int, RankClock]) -> bool:
    """Return whether matched calls end together; if not, they are not the same call."""
    if series.kind not in _TOGETHER:
        return True
    spreads, lengths = [], []
    for row in range(len(series)):
        ends = [
            series.series[member].ends[series.places[member][row]] + clock[rank].offset
            for member, rank in enumerate(series.members)
        ]
        spreads.append(max(ends) - min(ends))
        lengths.append(series.series[0].ends[series.places[0][row]] - series.series[0].begins[series.places[0][row]])
    error = max(clock[rank].error for rank in series.members)
    return median(spreads) <= max(SAME_END * median(lengths), 4 * error, 20.0)
