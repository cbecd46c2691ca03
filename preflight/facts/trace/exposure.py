"""Exposed communication of each kind of collective, without waiting.

Times are in microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from preflight.facts.trace.job import JobTrace
from preflight.facts.trace.purposes import NAMES, purpose
from preflight.facts.trace.waiting import GroupOfRanks
from preflight.parsers.torch import TraceSummary
from preflight.parsers.torch.collective_calls import CallGroup, CallKey, CallSeries
from preflight.parsers.torch.intervals import Spans, clipped, total, united

_MESSAGES = {"send": "sendrecv", "recv": "sendrecv"}


class ExposedCalls(NamedTuple):
    """The calls of one kind that a rank makes in process groups of one purpose."""

    purpose: str | None  # abbreviation; None if unknown
    kind: str
    calls: int
    took: float  # time of the calls without the wait for late ranks, as far as it is known
    exposed: float  # the part of ``took`` in which no kernel computes
    complete: bool  # whether the wait for late ranks is known

    @property
    def what(self) -> str:
        """The kind and the purpose in words."""
        return f"{self.kind} of {NAMES[self.purpose]} groups" if self.purpose else f"{self.kind} of other groups"

    @property
    def overlapped(self) -> float:
        """The share of the time that overlaps with computation."""
        return 1 - self.exposed / self.took if self.took else 1.0


def exposures(trace: TraceSummary, job: JobTrace, rank: int | None) -> list[ExposedCalls]:
    """Return the calls of a trace by purpose and kind.

    ``rank`` is None if the trace was not compared with those of other ranks.
    """
    groups = _groups(trace.calls)
    sums: dict[tuple[str | None, str], ExposedCalls] = {}
    for key, series in trace.calls:
        kind = _MESSAGES.get(key.kind, key.kind)
        of = purpose(groups[key.group])
        waited = None if rank is None else _waited(job, rank, groups[key.group], kind)
        before = sums.get((of, kind), ExposedCalls(of, kind, 0, 0.0, 0.0, True))
        took, exposed = _times(trace, series, waited or Spans())
        sums[of, kind] = ExposedCalls(of, kind, before.calls + len(series), before.took + took,
                                      before.exposed + exposed, before.complete and waited is not None)  # fmt: skip
    return list(sums.values())


def _groups(calls: Sequence[tuple[CallKey, CallSeries]]) -> Mapping[CallGroup, GroupOfRanks]:
    kinds: dict[CallGroup, set[str]] = {}
    for key, _ in calls:
        kinds.setdefault(key.group, set()).add(_MESSAGES.get(key.kind, key.kind))
    return {
        group: GroupOfRanks(group.name, group.description, group.ranks, False, frozenset(own))
        for group, own in kinds.items()
    }


def _waited(job: JobTrace, rank: int, group: GroupOfRanks, kind: str) -> Spans | None:
    """Return when a rank waited in a group that has calls of a kind; None if unknown."""
    numbers = list(_numbers(job, rank, group, kind))
    if not numbers or not all(job.waits.groups[number].complete for number in numbers):
        return None
    return job.waits.waited(rank, numbers)


def _numbers(job: JobTrace, rank: int, group: GroupOfRanks, kind: str) -> Iterator[int]:
    for number, matched in enumerate(job.waits.groups):
        same = (matched.name, matched.description) == (group.name, group.description)
        if same and rank in matched.ranks and kind in matched.kinds:
            yield number


def _times(trace: TraceSummary, series: CallSeries, waited: Spans) -> tuple[float, float]:
    """Return the time of calls and its exposed part, both without waiting."""
    calls = united(zip(series.begins, series.ends, strict=True))
    waits = list(clipped(waited, calls))
    exposed = sum(trace.bare.within(*call) for call in calls) - sum(trace.bare.within(*wait) for wait in waits)
    return total(calls) - total(waits), max(0.0, exposed)
