"""Waiting in collectives, by the ranks that cause it.

In each collective, late ranks delay their peers. The time between two arrivals is divided equally among the
ranks that have not yet arrived, so several slow ranks share it (S. C. Littlechild and G. Owen, Management Science 20,
1973). A rank may be late because it waited elsewhere, or because a transfer took longer elsewhere: a rank of a slow
tensor-parallel group is also late in its data-parallel group. So waiting is attributed to its cause: a late rank's
waiting for a cause in the same step, beyond that of its peers, is charged to that cause, and only the remainder to
the rank itself. After a collective that delays all ranks until the last arrives, they continue together, so their
delays by cause are made equal; a later wait is not charged to the same cause again. Times are in microseconds on the
common clock.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from preflight.facts.trace.matching import MatchedSeries, RankClock
from preflight.facts.trace.ranks import RankTrace
from preflight.parsers.torch.intervals import Spans, Stretches, united

#: Maximum number of causes to which a late rank's share of a wait is attributed, and minimum fraction of each.
_MOST_CAUSES, _LEAST_SHARE = 4, 0.01
#: Maximum number of stored causes of a rank's delay within a step.
_MOST_DELAYS = 16
#: Number of parts with equal numbers of collectives that replace steps if the profiles mark none.
BLOCKS = 10
#: Minimum fraction of each rank's wait that must delay it, for the ranks to continue together after a collective.
_MOST = 0.9
#: Fraction of a wait during which the next computation may already run: its kernel starts as the communication ends.
_OVERLAP = 0.01
#: Multiple of the clock error within which two arrivals count as simultaneous.
_ERRORS = 3.0

Charges = dict[int, float]  # cause -> time; a cause is a rank, or -1 - group for the transfers of a process group


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


class Messages:
    """Pairs of an instant and a length of time: messages, or last arrivals."""

    def __init__(self) -> None:
        self._instants, self._lengths = array("d"), array("d")

    def add(self, instant: float, length: float) -> None:
        """Add a pair."""
        self._instants.append(instant)
        self._lengths.append(length)

    def __iter__(self) -> Iterator[tuple[float, float]]:
        return iter(sorted(zip(self._instants, self._lengths, strict=True)))


class Waits:
    """Waiting of all ranks: total, exposed, and by causing rank."""

    def __init__(self, groups: Sequence[GroupOfRanks]) -> None:
        self.groups = tuple(groups)
        #: Exposed waiting that a rank causes in a group, per step: the mean over its peers.
        self.caused: dict[WaitKey, Charges] = defaultdict(lambda: defaultdict(float))
        #: Exposed waiting of a rank by step and by cause, except in sends and receives, in which stages of a pipeline
        #: wait for each other by design.
        self.bare: dict[tuple[int, int], Charges] = defaultdict(lambda: defaultdict(float))
        #: Messages by receiver, on its clock: when it has received them, and how long the sender was ready before.
        self.received: dict[int, Messages] = defaultdict(Messages)
        #: Messages by sender, on its clock: when it begins to send, and how long the receiver's GPU is idle until then.
        self.sent: dict[int, Messages] = defaultdict(Messages)
        #: When a rank arrives last in a collective, on its clock, and how long all its peers wait; by (rank, group).
        self.last: dict[tuple[int, int], Messages] = defaultdict(Messages)
        #: Times at which a rank waited in a group, on its own clock, including hidden waiting; by (rank, group).
        self.stretches: dict[tuple[int, int], Stretches] = defaultdict(Stretches)
        #: Length in microseconds of the parts that replace steps; None if steps are marked.
        self.block_us: float | None = None
        #: Rows in which waiting was measured, by group.
        self.rows: dict[int, int] = defaultdict(int)
        self.transfers: dict[tuple[int, str, int], list[float]] = defaultdict(list)  # by group, kind and bytes

    def waited(self, rank: int, groups: Collection[int] | None = None) -> Spans:
        """Return when a rank waited, on its own clock, in all groups or those given."""
        numbers = range(len(self.groups)) if groups is None else groups
        own = [self.stretches[rank, group].joined() for group in numbers if (rank, group) in self.stretches]
        return united(sorted(stretch for stretches in own for stretch in stretches))


def measure(ranks: Mapping[int, RankTrace], matched: Sequence[MatchedSeries], clock: Mapping[int, RankClock]) -> Waits:
    """Measure which ranks wait for which others in matched collectives."""
    groups, number = _groups(matched)
    waits = Waits(groups)
    delays: dict[int, _Delays] = defaultdict(_Delays)
    ordered = sorted(arrivals(matched, clock))
    unmarked = not any(trace.steps for trace in ranks.values())
    if unmarked and ordered:
        waits.block_us = (ordered[-1][0] - ordered[0][0]) / BLOCKS
    for at, (_, which, row) in enumerate(ordered):
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
        step = at * BLOCKS // len(ordered) if unmarked else series.series[last].steps[series.places[last][row]]
        size = series.series[last].bytes[series.places[last][row]]
        waits.rows[group] += 1
        waits.transfers[group, series.kind, size].append(max(0.0, min(ends) - begins[last]))
        late, bare, blocked = [0.0] * len(begins), [0.0] * len(begins), [0.0] * len(begins)
        for member, rank in enumerate(series.members):
            delays[rank].enter(step)
            waited = min(begins[last], ends[member]) - begins[member]
            if waited > _ERRORS * error:
                begin = begins[member] - clock[rank].offset
                late[member] = waited
                bare[member] = ranks[rank].bare.within(begin, begin + waited)
                # a rank that computes before the last arrival has not been delayed until then
                end = begin + (1 - _OVERLAP) * waited
                blocked[member] = min(bare[member], begin + waited - ranks[rank].bare.begun(end))
                waits.stretches[rank, group].add(begin, waited)
        if series.sender is not None:
            for member, rank in enumerate(series.members):
                begin = begins[member] - clock[rank].offset
                if rank == series.sender:
                    waits.sent[rank].add(begin, sum(blocked) - blocked[member])
                else:
                    end = ends[member] - clock[rank].offset
                    waits.received[rank].add(end, max(0.0, 2 * begins[member] - sum(begins)))
        transfers = [delays[rank].transfers(group) for rank in series.members]
        if series.kind != "sendrecv":
            held_up = min(time for member, time in enumerate(blocked) if member != last)
            if held_up:
                waits.last[series.members[last], group].add(begins[last] - clock[series.members[last]].offset, held_up)
            # ranks that compute during their wait are later than their peers after it as well
            share = min((held / wait for held, wait in zip(blocked, late, strict=True) if wait), default=1.0)
            for member, rank in enumerate(series.members):
                begin, end = (time - clock[rank].offset for time in (begins[last], ends[member]))
                delays[rank].transfer(group, ranks[rank].bare.within(begin, end), share)
        if not (total := sum(bare)):
            continue
        mean = total / (len(bare) - 1)
        own_delays = [delays[rank] for rank in series.members]
        shares, alone = _responsible(series.members, begins, [delay.charges for delay in own_delays], transfers)
        together = series.kind != "sendrecv"  # stages wait for each other by design
        charges = waits.caused[WaitKey(group, step)]
        for cause, share in shares.items():
            charges[cause] += share * mean
        for member, rank in enumerate(series.members):
            if not bare[member]:
                continue
            for cause, share in shares.items():
                if series.kind != "sendrecv":
                    waits.bare[rank, step][cause] += share * bare[member]
                if together or cause != rank:
                    delays[rank].add(cause, share * blocked[member])
        if together and all(delay >= _MOST * waited for delay, waited in zip(blocked, late, strict=True)):
            for member, rank in enumerate(series.members):
                delays[rank].add(rank, alone[member] * (max(late) - late[member]))
            _unite(own_delays)
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


def arrivals(matched: Sequence[MatchedSeries], clock: Mapping[int, RankClock]) -> Iterator[tuple[float, int, int]]:
    """Yield the last arrival at each collective, its series and its row.

    Ranks that have no common clock share no collective; they are assumed to begin together.
    """
    first: dict[int, float] = {}
    for series in matched:
        base = clock[series.members[0]].base
        begins = [
            calls.begins[0] + clock[rank].offset for rank, calls in zip(series.members, series.series, strict=True)
        ]
        first[base] = min(*begins, first.get(base, begins[0]))
    for which, series in enumerate(matched):
        start = first[clock[series.members[0]].base]
        offsets = [clock[rank].offset - start for rank in series.members]
        for row in range(len(series)):
            yield max(
                one_series.begins[places[row]] + offset
                for one_series, places, offset in zip(series.series, series.places, offsets, strict=True)
            ), which, row  # fmt: skip


class _Delays:
    """A rank's waiting in the current step by cause, and its exposed transfers."""

    def __init__(self) -> None:
        self.charges: Charges = {}
        self._step: int | None = None
        self._transfers: Charges = defaultdict(float)
        #: Transfers that no longer delay the rank in a group, since its peers waited there after them.
        self._before: dict[int, Charges] = {}
        self._earlier: Charges = {}  # transfers until the previous step began
        self._begun: Charges = {}  # and until this one began

    def enter(self, step: int) -> None:
        """Begin a step, unless it is the current one."""
        if step != self._step:
            self.charges, self._step = {}, step
            self._earlier, self._begun = self._begun, dict(self._transfers)

    def add(self, cause: int, amount: float) -> None:
        """Record waiting; if there are many causes, the smallest are dropped."""
        charges = self.charges
        charges[cause] = charges.get(cause, 0.0) + amount
        if len(charges) > 2 * _MOST_DELAYS:
            for small in sorted(charges, key=charges.__getitem__)[:-_MOST_DELAYS]:
                del charges[small]

    def transfers(self, group: int) -> Charges:
        """Return the transfers in other groups that still delay the rank in a group."""
        return {-1 - other: moved for other, moved in self._since(group) if other != group}

    def transfer(self, group: int, amount: float, held_up: float) -> None:
        """Record an exposed transfer in a group.

        ``held_up`` is the minimum fraction of the members' waits that delayed them. So much of the earlier transfers no
        longer delays the rank in this group.
        """
        self._transfers[group] += amount
        left = {other: (1 - held_up) * moved for other, moved in self._since(group)}
        self._before[group] = {other: moved - left[other] for other, moved in self._transfers.items()}

    def _since(self, group: int) -> Iterator[tuple[int, float]]:
        """Yield transfers by group, as far as they still delay the rank in ``group``.

        Transfers before the previous step are left out.
        """
        before, earlier = self._before.get(group, {}), self._earlier
        for other, moved in self._transfers.items():
            yield other, moved - max(before.get(other, 0.0), earlier.get(other, 0.0))


def _responsible(
    ranks: Sequence[int], begins: Sequence[float], delays: Sequence[Charges], transfers: Sequence[Charges]
) -> tuple[Charges, Sequence[float]]:
    """Return the causes of the waiting in a collective, as fractions of one.

    Also return which fraction of its lateness each member causes itself.
    """
    peers, arrivals = len(ranks) - 1, sum(begins)
    waits: Charges = defaultdict(float)
    for delay in delays:
        for cause, amount in delay.items():
            waits[cause] += amount
    moved = [sum(charges.values()) for charges in transfers]
    every = sum(moved)
    responsible: Charges = defaultdict(float)
    alone = [0.0] * len(ranks)
    for member, share in _lateness(begins):
        late = begins[member] - (arrivals - begins[member]) / peers
        excess = {cause: amount - (waits[cause] - amount) / peers for cause, amount in delays[member].items()}
        if transfers[member]:
            longest = max(transfers[member], key=transfers[member].__getitem__)
            excess[longest] = excess.get(longest, 0.0) + moved[member] - (every - moved[member]) / peers
        least = max(0.0, _LEAST_SHARE * late)
        own = {cause: amount for cause, amount in excess.items() if amount > least}
        unexplained = late
        for cause in sorted(own, key=own.__getitem__, reverse=True)[:_MOST_CAUSES] if late > 0 else ():
            explained = min(own[cause], unexplained)  # all ranks wait a little, so the smallest causes explain nothing
            responsible[cause] += share * explained / late
            unexplained -= explained
        alone[member] = unexplained / late if late > 0 else 1.0
        if share * alone[member] > 1e-9:
            responsible[ranks[member]] += share * alone[member]
    return responsible, alone


def _unite(delays: Sequence[_Delays]) -> None:
    """Equalise the delays of ranks that continue together after a collective."""
    united: Charges = defaultdict(float)
    for delay in delays:
        for cause, amount in delay.charges.items():
            united[cause] += amount / len(delays)
    for delay in delays:
        delay.charges = {}
        for cause, amount in united.items():
            delay.add(cause, amount)


def _lateness(begins: Sequence[float]) -> Iterator[tuple[int, float]]:
    """Yield the late members and their shares of the waiting, which add up to one."""
    order = sorted(range(len(begins)), key=begins.__getitem__, reverse=True)
    charges = [0.0] * len(order)
    for late in range(len(order) - 1, 0, -1):  # members that arrive after this interval
        waiting = (begins[order[late - 1]] - begins[order[late]]) * (len(order) - late)
        charges[late - 1] = charges[late] + waiting / late
    total = sum(charges)
    if not total:
        return
    notable = [
        (member, charge) for member, charge in zip(order, charges, strict=True) if charge >= _LEAST_SHARE * total
    ]
    scale = 1 / sum(charge for _, charge in notable)
    for member, charge in notable:
        yield member, charge * scale
