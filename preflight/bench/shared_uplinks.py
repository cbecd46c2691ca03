"""Comparison of all pairs running over the uplinks at once with one pair alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import mean, median
from typing import TYPE_CHECKING

from preflight.bench import campaign
from preflight.bench.observation import QUIET, SHARED, Observation

if TYPE_CHECKING:
    from preflight.bench.campaign import BenchLaunch, Campaign, PlannedRound
    from preflight.bench.planner import Round
    from preflight.parsers.nccl_tests.model import Report

#: Seconds for which a run over shared uplinks measures, since launches start some seconds apart; and maximum fraction
#: of the run limit, because a run over shared uplinks may take several times as long.
_SECONDS, _OF_LIMIT = 15.0, 0.25

#: Maximum number of iterations of a run.
_MOST_ITERATIONS = 100_000

_Reports = Mapping[str, Sequence["Report"]]


@dataclass(frozen=True)
class LeafPair:
    """Two leaves whose nodes ran in pairs, all at once."""

    leaves: tuple[str, ...]
    runs: int  # number of completed runs
    share: float  # mean bandwidth of the pairs, as a fraction of one pair alone


@dataclass(frozen=True)
class SharedRuns:
    """The runs of a campaign over shared uplinks."""

    pairs: tuple[LeafPair, ...]
    largest: int  # number of runs in the largest round
    alone: int  # number of runs that had the uplinks to themselves
    busbw: float | None  # median bandwidth of those runs in GB/s; None if there are none
    together: float  # fraction of a round's longest run during which all of its runs ran; lowest of all rounds
    stopped: int  # number of runs that failed
    absent: tuple[str, ...]  # nodes without a completed run


def planned(done: Campaign, reports: _Reports, made: Round, left_out: Mapping[str, str]) -> PlannedRound:
    """Return a round for the journal; runs that share uplinks have more iterations."""
    iterations = _iterations(done, reports) if made.load == SHARED else None
    return campaign.PlannedRound(made.number, made.purpose, made.load, made.runs, left_out, iterations)


def _iterations(done: Campaign, reports: _Reports) -> int | None:
    """Return the iterations of a run over shared uplinks; None for the plan's number."""
    times = [time for launch in done.launches for time in _times_us(done, launch, reports, QUIET)]
    if not times:
        return None
    seconds = min(_SECONDS, _OF_LIMIT * done.plan.run_limit_s)
    count = min(math.ceil(seconds * 1e6 / 2 / median(times)), _MOST_ITERATIONS)  # half of the time is in place
    return count if count > done.plan.iterations else None


def shared_runs(done: Campaign, reports: _Reports) -> SharedRuns | None:
    """Return the runs of a campaign over shared uplinks; None without any."""
    observed = campaign.observations(done, reports)
    shared = [run for run in observed if run.kind.load == SHARED]
    if not shared:
        return None
    size = done.plan.bytes
    alone = [run.busbw[size] for run in observed if run.kind.load == QUIET and run.complete and size in run.busbw]
    middle = median(alone) if alone else None
    groups: dict[tuple[str, ...], list[float]] = {}
    for run in shared:
        if run.complete and size in run.busbw:
            groups.setdefault(_leaves(run), []).append(run.busbw[size])
    measured = {node for run in shared if run.complete for node in run.nodes}
    return SharedRuns(
        tuple(LeafPair(leaves, len(rates), mean(rates) / middle) for leaves, rates in sorted(groups.items()) if middle),
        max(len(made.runs) for made in done.rounds if made.load == SHARED), len(alone), middle,
        min(_together(done, made.number, reports) for made in done.rounds if made.load == SHARED),
        sum(not run.complete for run in shared),
        tuple(node for node in done.plan.nodes if node not in measured),
    )  # fmt: skip


def _leaves(run: Observation) -> tuple[str, ...]:
    return tuple(sorted({end.leaf for end in run.ends if end.leaf is not None}))


def _together(done: Campaign, number: int, reports: _Reports) -> float:
    """Return the fraction of a round's longest run during which all of its runs ran.

    The journal has the time at which each launch ended, and its output shows for how long it measured.
    """
    begins, ends, longest = [], [], 0.0
    for launch in done.launches:
        if launch.round != number or launch.status != campaign.OK:
            continue
        seconds = sum(_times_us(done, launch, reports, SHARED)) * _count(launch, reports) / 1e6
        end = _timestamp(launch.at)
        if end is None or not seconds:
            return 0.0
        begins.append(end - seconds)
        ends.append(end)
        longest = max(longest, seconds)
    return max(0.0, min(ends) - max(begins)) / longest if ends else 0.0


def _times_us(done: Campaign, launch: BenchLaunch, reports: _Reports, load: str) -> Iterator[float]:
    """Yield the times of an operation in µs, if the launch ran under this load."""
    if launch.status == campaign.OK and done.rounds[launch.round - 1].load == load:
        for report in reports.get(launch.output, ())[-1:]:
            yield from (half.time_us for row in report.rows for half in row.halves if 0 < half.time_us < math.inf)


def _count(launch: BenchLaunch, reports: _Reports) -> int:
    return next((report.iterations or 0 for report in reports.get(launch.output, ())[-1:]), 0)


def _timestamp(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text.removesuffix("Z") + "+00:00").timestamp()
    except (ValueError, OverflowError):
        return None
