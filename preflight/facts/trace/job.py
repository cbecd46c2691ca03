"""Traces of one job, joined: clocks, waiting, and the ranks that cause it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property

from preflight._startup.lightclass import dataclass
from preflight.facts.trace import matching
from preflight.facts.trace.equal_kernels import UnevenStage, compare, uneven
from preflight.facts.trace.experts import ExpertLoad, loads
from preflight.facts.trace.late_stages import late_stages, suspected_stages
from preflight.facts.trace.matching import MatchedSeries, RankClock
from preflight.facts.trace.pipelines import Bubble, bubbles
from preflight.facts.trace.ranks import RankTrace, distinct, rank_in
from preflight.facts.trace.replay import Replay
from preflight.facts.trace.shared_idle import shared_idle
from preflight.facts.trace.stragglers import (
    OF_A_STEP,
    OF_ONE_STEP,
    SlowTransfers,
    Straggler,
    common_steps,
    slow_transfers,
    step_length,
    stragglers,
    suspects,
)
from preflight.facts.trace.waiting import Waits, measure
from preflight.parsers.torch import TraceSummary
from preflight.parsers.torch.intervals import clipped, total


@dataclass(frozen=True)
class JobTrace:
    """The combined traces of several ranks."""

    ranks: Mapping[int, RankTrace]
    repeated: tuple[str, ...]  # record keys of traces of a rank that already has one
    unnamed: tuple[str, ...]  # record keys of traces of an unknown rank
    refused: tuple[str, ...]  # groups that could not be matched, with the reason
    clocks: Mapping[int, RankClock]  # ranks that share enough collectives with others
    waits: Waits
    stragglers: tuple[Straggler, ...]
    suspects: tuple[Straggler, ...]  # without a straggler: ranks that may be stragglers
    slow_transfers: tuple[SlowTransfers, ...]
    uneven: tuple[UnevenStage, ...]  # without a straggler: stages of pipelines with more work than others
    stalled: Mapping[int, float]  # steps with much idle time of all ranks beyond the usual, in microseconds
    step_us: float | None  # median step
    experts: tuple[ExpertLoad, ...]
    bubbles: tuple[Bubble, ...]  # of pipelines

    @property
    def matched(self) -> int:
        """Collectives that were matched on all of their traced ranks."""
        return sum(self.waits.rows.values())

    def waited(self, rank: int) -> float | None:
        """Return a rank's exposed waiting of any kind, in microseconds, or None."""
        return self._waited.get(rank)

    def waited_at_all(self, rank: int) -> float | None:
        """Return a rank's waiting, hidden or not, in microseconds; None if unknown."""
        return total(self.waits.waited(rank)) if rank in self.compared else None

    @cached_property
    def _waited(self) -> Mapping[int, float]:
        return {rank: self.ranks[rank].exposed(self.waits.waited(rank)) for rank in self.compared}

    @cached_property
    def compared(self) -> frozenset[int]:
        """Ranks whose collectives were compared with those of others."""
        return frozenset(rank for group in self.waits.groups for rank in group.ranks)

    @cached_property
    def missing(self) -> tuple[str, ...]:
        """Descriptions of the groups in which some ranks have no trace."""
        return tuple(
            f"process group {group.description or group.name}: only ranks {', '.join(map(str, group.ranks))}"
            for group in self.waits.groups
            if not group.complete
        )

    def tails_waited(self, rank: int) -> list[float]:
        """Return a rank's waiting in the tail of each of its steps, in microseconds."""
        waits = self.waits.waited(rank)
        return [total(clipped(waits, [tail])) for tail in self.ranks[rank].tails]

    def error_us(self) -> float:
        """Return the largest clock error of the comparison, in microseconds."""
        return max((clock.error for clock in self.clocks.values()), default=0.0)


def join(traces: Mapping[str, TraceSummary]) -> JobTrace:
    """Join the traces of one job, given by record key."""
    ranks, unnamed = [], []
    for key, trace in traces.items():
        document = trace.document
        rank = document["rank"] if document["rank"] is not None else rank_in(key)
        if rank is None:
            unnamed.append(key)
            continue
        ranks.append(RankTrace(key, rank, document["host"], trace.calls, trace.bare, trace.steps,
                               trace.compute, trace.kernels, trace.tails, trace.bare.total, trace.shades,
                               trace.gaps))  # fmt: skip
    by_rank, repeated = distinct(ranks)
    matched, refused = matching.match(by_rank)
    clock = matching.clocks(matched)
    comparable = []
    for series in matched:
        if not matching.on_one_clock(series.members, clock):
            refused.append(f"{series.kind} of ranks {series.members}: fewer than {matching.ENOUGH_MATCHES} collectives "
                           "in common, so their clocks cannot be compared")  # fmt: skip
        elif not matching.ends_agree(series, clock):
            refused.append(
                f"{series.kind} of ranks {series.members}: they do not end together, so "
                "they are not the same collectives"
            )
        else:
            comparable.append(series)
    waits = measure(by_rank, comparable, clock)
    steps, length = common_steps(by_rank), step_length(by_rank)
    compared = compare(by_rank, steps)
    about = by_rank, waits, compared, steps, length
    late = tuple(stragglers(by_rank, waits, late_stages(*about, lambda: _replays(by_rank, comparable, clock))))
    maybe = () if late else (*suspects(by_rank, waits), *suspected_stages(*about))
    stages = () if late or maybe or not length else tuple(uneven(by_rank, compared, OF_A_STEP * length))
    stalled = {step: idle.beyond for step, idle in shared_idle(by_rank.values(), steps, 0).items()
               if length and by_rank and idle.beyond > OF_ONE_STEP * length}  # fmt: skip
    return JobTrace(by_rank, tuple(repeated), tuple(unnamed), tuple(refused), clock, waits, late, maybe,
                    tuple(slow_transfers(by_rank, waits)), stages, stalled, length, loads(comparable),
                    bubbles(by_rank, waits))  # fmt: skip


def _replays(
    ranks: Mapping[int, RankTrace], matched: Sequence[MatchedSeries], clock: Mapping[int, RankClock]
) -> list[Replay]:
    """Return a replay of each part of the job that has a common clock."""
    by_base: dict[int, list[MatchedSeries]] = defaultdict(list)
    for series in matched:
        by_base[clock[series.members[0]].base].append(series)
    return [Replay(ranks, part, clock) for part in by_base.values()]
