"""Comparison of a job's measured steps with its plan.

The collectives in profiles are assigned to the axes of the layout by the ranks of their process groups. Times are
seconds per step, averaged over the traced ranks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from preflight._startup.lightclass import dataclass
from preflight.facts.step_times import timed
from preflight.facts.trace.job import JobTrace
from preflight.facts.trace.ranks import RankTrace
from preflight.facts.training_run import TrainingRun
from preflight.layout.job import LayoutError
from preflight.layout.plan import Plan
from preflight.layout.rank_map import RankMap
from preflight.parsers.torch.collective_calls import CallKey
from preflight.parsers.torch.intervals import Coverage

#: Rows of a comparison, with the plan's parts that each contains. Receives include waiting for other stages: the
#: bubble.
ROWS = {
    "compute": ("compute", "optimizer"),
    "tensor": ("tensor",),
    "context": ("context",),
    "expert": ("expert",),
    "pipeline": ("pipeline", "bubble"),
    "data": ("data",),
    "other": (),
}

#: Rows to which collectives and messages may belong.
_COMMUNICATION = frozenset(ROWS) - {"compute", "other"}

#: Minimum number of steps in a log for a comparison of their median.
_ENOUGH_STEPS = 4

#: Maximum number of ranks of a group that a message lists.
_MOST_SHOWN = 8

#: Kinds of collectives that belong to experts if the same ranks also reduce gradients.
_OF_EXPERTS = frozenset({"alltoall"})
_MESSAGES = frozenset({"send", "recv"})

#: Words in the process group descriptions of Megatron and torchtitan, with the axis; the first match is used.
_WORDS = (("expert_data", "data"), ("expert", "expert"), ("pipeline", "pipeline"), ("context", "context"),
          ("data", "data"), ("tensor", "tensor"))  # fmt: skip


@dataclass(frozen=True)
class MeasuredPart:
    """One row of a comparison: planned and measured exposed seconds per step."""

    name: str
    planned: float
    measured: float
    waiting: float = 0.0  # upper bound on the part of ``measured`` that waits for late ranks


@dataclass(frozen=True)
class MeasuredStep:
    """The measured step, with its parts beside the planned ones."""

    ranks: int  # number of ranks with traces; 0 for a step from a log
    seconds: float  # median length of a step
    parts: Sequence[MeasuredPart]
    late: tuple[int, ...]  # ranks that delay their peers
    foreign: tuple[str, ...] = ()  # process groups that are not groups of the layout

    @property
    def idle(self) -> float:
        """The seconds of a step that belong to none of the parts."""
        return max(0.0, self.seconds - sum(part.measured for part in self.parts))


def compare(plan: Plan, trace: JobTrace) -> MeasuredStep:
    """Compare traces with a plan. Raises LayoutError if they are from different jobs."""
    job, step = plan.job, plan.step
    if job is None or isinstance(step, str):
        raise LayoutError(plan.why_no_job if job is None else str(step))
    if beyond := [rank for rank in trace.ranks if rank >= job.gpus]:
        raise LayoutError(f"rank {beyond[0]} has a trace, but the plan has only {job.gpus} ranks")
    if trace.step_us is None:
        raise LayoutError("the traces mark no steps (ProfilerStep), so a step's length is unknown")
    axes, exposed_of = _Axes(plan), {}
    for rank, own in trace.ranks.items():
        if length := sum(end - begin for begin, end in own.steps.values()):
            exposed_of[rank] = (length, _exposed(own, axes, Coverage(trace.waits.waited(rank))))
    seconds, ranks = trace.step_us / 1e6, len(exposed_of)

    def mean(name: str, column: int) -> float:
        return seconds * sum(rows[name][column] / length for length, rows in exposed_of.values()) / ranks

    parts = [
        MeasuredPart(name, sum(part.seconds for part in step.parts if part.name in names), mean(name, 0), mean(name, 1))
        for name, names in ROWS.items()
    ]  # fmt: skip
    present = {name for _, rows in exposed_of.values() for name in rows if rows[name][2]}
    expected = {part.name for part in step.parts if part.seconds + part.hidden > 0} & _COMMUNICATION
    if expected and not expected & present and axes.foreign:
        raise LayoutError(f"the process groups of the traces are not those of the layout: {sorted(axes.foreign)[0]}")
    return MeasuredStep(ranks, seconds, [part for part in parts if part.planned or part.measured],
                      tuple(straggler.rank for straggler in trace.stragglers), tuple(sorted(axes.foreign)))  # fmt: skip


def logged(plan: Plan, trainings: Mapping[str, TrainingRun]) -> MeasuredStep:
    """Return the median step in a job's logs.

    Raises LayoutError if a log is from a different job, or has too few steps.
    """
    job = plan.job
    if job is None or isinstance(plan.step, str):
        raise LayoutError(plan.why_no_job if job is None else str(plan.step))
    times: list[float] = []
    for key, run in trainings.items():
        if run.ranks not in (None, job.gpus):
            raise LayoutError(f"{key.removeprefix('log:')} has {run.ranks} ranks, but the plan has {job.gpus}")
        _, log = max(run.logs, key=lambda written: len(written[1].steps))
        batches = {step.batch for step in log.steps if step.batch}
        if batches and batches != {job.schedule.global_batch}:
            raise LayoutError(f"{key.removeprefix('log:')} has a global batch of {sorted(batches)[0]}, but the plan "
                              f"has {job.schedule.global_batch}")  # fmt: skip
        of_log = [time for time, step in timed(log.steps) if step.step_time_s][1:]  # the first one includes compilation
        times = max(times, of_log, key=len)
    if len(times) < _ENOUGH_STEPS:
        raise LayoutError(f"the log states the time of fewer than {_ENOUGH_STEPS + 1} steps")
    return MeasuredStep(0, median(times), (), ())


def _exposed(own: RankTrace, axes: _Axes, waits: Coverage) -> Mapping[str, tuple[float, float, int]]:
    """Return (exposed µs, waiting µs, number of calls) of each row.

    Collectives that run at the same time share their exposed time, so the sum is the time that the GPU spent without
    arithmetic.
    """
    exposed: dict[str, float] = defaultdict(float)
    waited: dict[str, float] = defaultdict(float)
    calls: dict[str, int] = defaultdict(int)
    for key, series in own.calls:
        name = axes.of(key, own.rank)
        for begin, end, step in zip(series.begins, series.ends, series.steps, strict=True):
            if step in own.steps:
                bare = own.bare.within(begin, end)
                exposed[name] += bare
                waited[name] += min(bare, waits.within(begin, end))
                calls[name] += 1
    spent, counted = sum(own.bare.within(*span) for span in own.steps.values()), sum(exposed.values())
    share = min(1.0, spent / counted) if counted else 1.0
    rows = {name: (share * exposed[name], share * waited[name], calls[name]) for name in ROWS}
    return {**rows, "compute": (sum(own.compute.values()), 0.0, 0)}


class _Axes:
    """The axes of a layout, by the ranks of their groups."""

    def __init__(self, plan: Plan) -> None:
        assert plan.dense is not None
        assert plan.experts is not None
        dense, experts = plan.dense, plan.experts
        #: In order of precedence, for axes with the same ranks.
        self._axes: Sequence[tuple[str, RankMap, tuple[str, ...]]] = (
            ("tensor", dense, ("tp",)), ("expert", experts, ("ep",)), ("expert", experts, ("tp", "ep")),
            ("context", dense, ("cp",)), ("pipeline", dense, ("pp",)), ("data", dense, ("dp",)),
            ("data", dense, ("cp", "dp")), ("data", experts, ("dp",)),
        )  # fmt: skip
        self._has_experts = experts.sizes["ep"] > 1
        self._known: dict[tuple[CallKey, int], str] = {}
        #: Process groups that do not belong to the layout.
        self.foreign: set[str] = set()

    def of(self, key: CallKey, rank: int) -> str:
        """Return the row to which a rank's series of calls belongs."""
        if (name := self._known.get((key, rank))) is None:
            name = self._known[key, rank] = self._find(key, rank)
        return name

    def _find(self, key: CallKey, rank: int) -> str:
        group = key.group
        if not group.ranks:
            described = group.description.lower()
            return next((axis for word, axis in _WORDS if word in described), "other")
        if key.kind in _MESSAGES:
            return self._of_message(key, rank)
        names = [name for name, ranks, axes in self._axes if ranks.group_of(rank, *axes) == frozenset(group.ranks)]
        if "expert" in names and len(set(names)) > 1:  # the same ranks also reduce gradients
            names = ["expert"] if key.kind in _OF_EXPERTS else [name for name in names if name != "expert"]
        if not names:
            self.foreign.add(f"{key.kind} of ranks {fold_ranks(group.ranks)}")
        return names[0] if names else "other"

    def _of_message(self, key: CallKey, rank: int) -> str:
        """Return the axis of a send or receive, by its peer."""
        ranks = key.group.ranks
        peer = ranks[key.peer] if key.peer is not None and key.peer < len(ranks) else None
        peers = frozenset((peer,) if peer is not None else ranks)
        for name in ("context", "pipeline"):
            for axis, rank_map, axes in self._axes:
                if axis == name and peers <= rank_map.group_of(rank, *axes):
                    return name
        self.foreign.add(f"{key.kind} between ranks {fold_ranks({rank, *peers})}")
        return "other"


def fold_ranks(ranks: Iterable[int]) -> str:
    """Return the first ranks of a group as text: ``0, 1, 2 ...``."""
    first = sorted(ranks)
    return ", ".join(map(str, first[:_MOST_SHOWN])) + (" ..." if len(first) > _MOST_SHOWN else "")
