"""A job's calls, replayed with less work on some ranks: what their lateness costs.

A rank may work much longer than its peers and cost little, because they would have waited anyway, as in a pipeline.
Between two calls, a rank works for as long as in its trace, without its exposed communication; a call ends for all its
members some time after the last of them arrives; and a rank that had to wait for the end of a call then has to do so
now (the same method: arXiv 2505.05713). Times are in microseconds on the common clock.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from preflight.facts.trace.matching import MatchedSeries, RankClock
from preflight.facts.trace.ranks import RankTrace
from preflight.facts.trace.waiting import arrivals

#: Maximum difference between the replayed and the real time of unchanged ranks, as a fraction.
_AGREES = 0.02
#: Time before the end of a call in which nothing may compute, if its rank waits for it.
_JUST_BEFORE_US = 1.0
#: Time after the end of a call in which the next one of its kind begins, if it has waited for that in a stream.
_JUST_AFTER_US = 10.0


class Less(NamedTuple):
    """Parts of a rank's time in each step that are left out, as fractions."""

    compute: Mapping[int, float]
    idle: Mapping[int, float]


class SavedTime(NamedTuple):
    """By how much the job is shorter: at least and at most."""

    least: float
    most: float


class _Calls:
    """The calls of a rank, and its work between their begins and ends."""

    def __init__(self, offset: float) -> None:
        self.offset, self.start = offset, 0.0
        self.begins, self.ends, self.steps = array("d"), array("d"), array("q")
        self.waits = bytearray()  # whether the rank waits for the end
        self.series = array("q")
        self.queued = array("q")  # the call that it may have waited for in a stream; -1: none
        self.order = array("q")  # begins (even) and ends (odd) of calls in time order
        self.places = array("q")  # of each begin in this order
        self.work, self.idle = array("d"), array("d")  # since the point before

    def add(self, begin: float, end: float, step: int, waits: bool, series: int) -> None:
        """Add a call, in the clock of the rank."""
        self.begins.append(begin)
        self.ends.append(end)
        self.steps.append(step)
        self.waits.append(waits)
        self.series.append(series)

    def arrange(self, trace: RankTrace) -> None:
        """Put the calls in order, and measure the rank's work between them."""
        points = sorted(
            (time, side, call) for side, times in enumerate((self.ends, self.begins)) for call, time in enumerate(times)
        )
        self.queued = array("q", [-1]) * len(self.begins)
        self.places = array("q", self.queued)
        before = points[0][0]
        latest: dict[int, int] = {}
        self.start = before + self.offset
        for time, begins, call in points:
            idle = trace.gaps.within(before, time)
            self.order.append(2 * call + (not begins))
            self.idle.append(idle)
            self.work.append(max(0.0, time - before - idle - trace.bare.within(before, time)))
            before, series = time, self.series[call]
            if begins:
                self.places[call] = len(self.order) - 1
                if series in latest and time - self.ends[latest[series]] < _JUST_AFTER_US:
                    self.queued[call] = latest[series]
                latest[series] = call


class Replay:
    """The calls of the ranks that have a common clock."""

    def __init__(
        self, ranks: Mapping[int, RankTrace], matched: Sequence[MatchedSeries], clock: Mapping[int, RankClock]
    ) -> None:
        self._calls: dict[int, _Calls] = {}
        #: Of each call: its ranks, which of their calls it is, and how long after the last arrival it ends for each.
        self._rows: list[tuple[Sequence[int], array[int], array[float]]] = []
        for _, which, row in sorted(arrivals(matched, clock)):
            series = matched[which]
            places = [(of, at[row]) for of, at in zip(series.series, series.places, strict=True)]
            ends = [of.ends[at] + clock[rank].offset for rank, (of, at) in zip(series.members, places, strict=True)]
            last = max(
                of.begins[at] + clock[rank].offset for rank, (of, at) in zip(series.members, places, strict=True)
            )
            numbers = array("q")
            for rank, (of, at) in zip(series.members, places, strict=True):
                begin, end = of.begins[at], of.ends[at]
                waits = 2 * ranks[rank].bare.within(end - _JUST_BEFORE_US, end) > _JUST_BEFORE_US
                receives = series.sender is not None and rank != series.sender
                calls = self._calls.setdefault(rank, _Calls(clock[rank].offset))
                numbers.append(len(calls.begins))
                calls.add(begin, end, of.steps[at], waits or receives, which)
            self._rows.append((series.members, numbers, array("d", (max(0.0, end - last) for end in ends))))
        for rank, calls in self._calls.items():
            calls.arrange(ranks[rank])
        self.ranks = frozenset(self._calls)
        begin = min((calls.start for calls in self._calls.values()), default=0.0)
        end = max((max(calls.ends) + calls.offset for calls in self._calls.values()), default=0.0)
        self._begin = begin
        self._unchanged = self._length({}, False)
        #: Whether a replay without changes takes as long as the job did.
        self.agrees = abs(self._unchanged - (end - begin)) <= _AGREES * (end - begin)

    def saved(self, less: Mapping[int, Less]) -> SavedTime:
        """Return by how much the job is shorter if these ranks do less.

        When a call was ready that has waited in a stream is unknown: when it began, or already when the one before it
        was.
        """
        return SavedTime(*(max(0.0, self._unchanged - self._length(less, early)) for early in (False, True)))

    def _length(self, less: Mapping[int, Less], early: bool) -> float:
        now = {rank: calls.start - self._begin for rank, calls in self._calls.items()}
        place = dict.fromkeys(now, 0)
        ready = {rank: array("d", calls.begins) for rank, calls in self._calls.items()}
        ended = {rank: array("d", [0.0]) * len(calls.ends) for rank, calls in self._calls.items()}

        def proceed(rank: int, until: int) -> None:
            """Replay a rank until it begins a call; -1: to its end."""
            calls, own, time, at = self._calls[rank], less.get(rank), now[rank], place[rank]
            while at < len(calls.order):
                call, ends = divmod(calls.order[at], 2)
                step = calls.steps[call]
                time += calls.work[at] * (1 - own.compute.get(step, 0.0) if own else 1.0)
                time += calls.idle[at] * (1 - own.idle.get(step, 0.0) if own else 1.0)
                at += 1
                if ends:
                    time = max(time, ended[rank][call]) if calls.waits[call] else time
                    continue
                before = calls.queued[call]
                ready[rank][call] = ready[rank][before] if early and before >= 0 else time
                if call == until:
                    break
            now[rank], place[rank] = time, at

        for members, numbers, transfers in self._rows:
            last = 0.0
            for rank, call in zip(members, numbers, strict=True):
                calls = self._calls[rank]
                if place[rank] <= calls.places[call]:
                    proceed(rank, call)
                before = calls.queued[call]
                last = max(last, ready[rank][call], ended[rank][before] if before >= 0 else 0.0)
            for rank, call, transfer in zip(members, numbers, transfers, strict=True):
                ended[rank][call] = last + transfer
        for rank in now:
            proceed(rank, -1)
        return max(now.values(), default=0.0)
