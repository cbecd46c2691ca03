"""Joined traces of several ranks: clocks, waiting and its cause, for random jobs.

The jobs are made up (``tests.support.training_job``). ``pytest -m many_jobs`` draws 200 of each.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from preflight.facts.trace.job import JobTrace, join
from preflight.facts.trace.ranks import rank_in
from preflight.facts.trace.timeline import timelines
from preflight.parsers import torch
from tests.support.training_job import BYTES_PER_MS, JobPlan, Layout, simulate, traces

#: Jobs drawn in each direction.
FEW, MANY = 10, 200
MANY_JOBS = pytest.mark.many_jobs
SEEDS = [*range(FEW), *(pytest.param(seed, marks=MANY_JOBS) for seed in range(FEW, MANY))]


def joined(plan: JobPlan, ranks: tuple[int, ...] | None = None, name: str = "log:rank{}.json") -> JobTrace:
    """Join the traces of a job, or of some of its ranks."""
    read = {}
    for rank, text in enumerate(traces(plan)):
        trace = torch.parse(text).trace
        assert trace is not None
        if ranks is None or rank in ranks:
            read[name.format(rank)] = trace
    return join(read)


def drawn(seed: int) -> tuple[JobPlan, random.Random]:
    """Draw a healthy job: its groups, sizes and clocks; kernels differ by 3%."""
    chance = random.Random(f"job {seed}")
    size = chance.choice((2, 4, 8))
    layout = chance.choice((
        Layout(tensor=size), Layout(data=size), Layout(data=size, experts=True), Layout(stages=size),
        chance.choice((Layout(2, 2), Layout(2, 4), Layout(4, 2), Layout(2, 2, 2), Layout(1, 2, 2), Layout(2, 1, 2))),
    ))  # fmt: skip
    return JobPlan(
        layout, steps=chance.choice((6, 8, 10)), layers=chance.choice((4, 8, 16)), jitter=0.03, clock_ms=2, seed=seed,
        overlapped=chance.random() < 0.7, numbered=chance.random() < 0.5, megabytes=chance.choice((1, 4.3, 40)),
        gradient_norm=chance.random() < 0.5, ahead_ms=chance.choice((0, 20)),
    ), chance  # fmt: skip


def with_straggler(plan: JobPlan, chance: random.Random) -> tuple[JobPlan, int]:
    """Make one rank slow enough to cost the job five hundredths of its step time."""
    rank = chance.randrange(plan.layout.ranks)
    kind = "tokens" if plan.layout.experts else "slow"
    healthy = step_ms(plan)
    factor = 1.02
    while step_ms(sick := replace(plan, **{kind: {rank: factor}})) < 1.05 * healthy:  # type: ignore[arg-type]
        factor += 0.02
    return sick, rank


def step_ms(plan: JobPlan) -> float:
    """Return the duration of a step of the job."""
    return simulate(plan)[0].steps[-1] / plan.steps


@pytest.mark.parametrize("seed", SEEDS)
def test_a_healthy_job_names_no_rank(seed: int) -> None:
    plan, _ = drawn(seed)
    assert not joined(plan).stragglers


@pytest.mark.parametrize("seed", SEEDS)
def test_the_rank_that_costs_a_twentieth_is_named_and_no_other(seed: int) -> None:
    sick, rank = with_straggler(*drawn(seed))
    assert [late.rank for late in joined(sick).stragglers] == [rank]


def test_clocks_are_recovered() -> None:
    plan = JobPlan(Layout(2, 2, 2), clock_ms=2, jitter=0.03)
    chance = random.Random(f"{plan.seed}:clock")
    offsets = [chance.uniform(-2000, 2000) for _ in range(8)]
    job = joined(plan)
    for rank, clock in job.clocks.items():
        assert clock.offset == pytest.approx(offsets[0] - offsets[rank], abs=max(10, 4 * clock.error))
    assert job.error_us() < 20


def test_few_collectives_of_several_pairs_join_clocks() -> None:
    """Each pair of two pipelines has six all-reduces in common, or twelve."""
    plan = JobPlan(Layout(data=2, stages=2), steps=6, layers=2, layer_ms=4, jitter=0.03, clock_ms=2, numbered=True)
    job = joined(plan)
    assert {rank: clock.base for rank, clock in job.clocks.items()} == {0: 0, 2: 0, 1: 1, 3: 1}
    assert {group.description for group in job.waits.groups} == {"PIPELINE_MODEL_PARALLEL_GROUP"}
    assert "all_reduce of ranks (0, 1): fewer than 20 collectives in common" in " ".join(job.refused)
    assert [row["same_clock"] for row in timelines(job)[0]["rows"]] == [True, False, True, False]
    together = joined(replace(plan, layers=4))
    assert {clock.base for clock in together.clocks.values()} == {0}
    assert not together.refused
    assert not joined(replace(plan, steps=3)).clocks


def test_a_rank_that_waits_elsewhere_is_not_blamed() -> None:
    """Rank 3 is late in its data-parallel group because it waits for rank 2 in its tensor-parallel group."""
    (late,) = joined(JobPlan(Layout(tensor=2, data=2), slow={2: 1.3}, jitter=0.03, clock_ms=2)).stragglers
    assert (late.rank, late.group.description, late.group.ranks) == (2, "TENSOR_MODEL_PARALLEL_GROUP", (2, 3))


@pytest.mark.parametrize("rank", [None, 0, 5])
def test_stages_arrive_at_a_collective_of_all_ranks_at_different_times(rank: int | None) -> None:
    """The CPU is half a step ahead of the GPU, so that a step's kernels run in the next one."""
    plan = JobPlan(Layout(2, 2, 2), overlapped=False, gradient_norm=True, ahead_ms=40, megabytes=40, jitter=0.03,
                   slow={} if rank is None else {rank: 1.2})  # fmt: skip
    assert [late.rank for late in joined(plan).stragglers] == ([] if rank is None else [rank])


def test_other_stages_of_a_slow_one_are_not_blamed() -> None:
    plan = JobPlan(Layout(data=2, stages=4), steps=6, microbatches=8, jitter=0.03, numbered=True, slow={6: 1.09})
    assert [late.rank for late in joined(plan).stragglers] == [6]


def test_a_rank_that_is_late_in_one_step() -> None:
    for layout in (Layout(data=4), Layout(stages=4)):  # stages by the time they compute
        plan = JobPlan(layout, slow={1: 1.6}, slow_steps=frozenset([3]), jitter=0.03, gradient_norm=True)
        (late,) = joined(plan).stragglers
        assert (late.rank, late.steps) == (1, (3,))


def test_a_transfer_is_measured_without_waiting() -> None:
    plan = JobPlan(Layout(tensor=4), slow={1: 1.5}, clock_ms=2)
    job = joined(plan)
    ((_, sample),) = job.waits.transfers.items()
    sample.sort()
    assert sample[len(sample) // 2] == pytest.approx(1000 * plan.megabytes * 1e6 / BYTES_PER_MS, rel=0.15)


def test_steps_that_are_not_marked() -> None:
    plan = JobPlan(Layout(tensor=4), slow={1: 1.3}, jitter=0.03, clock_ms=2)
    read = {}
    for rank, text in enumerate(traces(plan)):
        raw = json.loads(text)
        raw["traceEvents"] = [event for event in raw["traceEvents"] if not event["name"].startswith("ProfilerStep")]
        read[f"log:rank{rank}.json"] = torch.parse(json.dumps(raw)).trace
    job = join({key: trace for key, trace in read.items() if trace})
    assert [late.rank for late in job.stragglers] == [1]
    assert job.step_us is None


def test_few_calls_of_several_kinds_are_enough_together() -> None:
    plan = JobPlan(Layout(data=4), steps=10, layers=1, layer_ms=9, jitter=0.03, clock_ms=2, gradient_norm=True)
    assert not joined(plan).refused
    assert not joined(plan).stragglers
    assert [late.rank for late in joined(replace(plan, slow={3: 1.2})).stragglers] == [3]


def test_the_peers_of_a_slow_expert_rank_are_not_blamed() -> None:
    """Ranks 1 to 3 wait for rank 0 in each all-to-all, so they are late in the all-reduces of ranks 0 to 7."""
    layout = Layout(data=8, experts=True, expert_ranks=4)
    plan = JobPlan(layout, steps=4, slow={0: 1.1}, jitter=0.03, megabytes=80, layers=24, layer_ms=1.7)
    assert [late.rank for late in joined(plan).stragglers] == [0]


def test_a_rank_is_not_blamed_again_for_each_earlier_wait() -> None:
    """Two tensor-parallel ranks are late in turn; the one that was first is not the cause of the rest."""
    job = joined(JobPlan(Layout(tensor=2), steps=6, layers=32, jitter=0.03, megabytes=1, seed=5))
    of_ranks = [sum(charges[rank] for charges in job.waits.caused.values()) for rank in (0, 1)]
    assert max(of_ranks) < 1.5 * min(of_ranks)


def test_what_is_missing_is_stated() -> None:
    plan = JobPlan(Layout(tensor=4), jitter=0.03, clock_ms=2)
    job = joined(plan, (0, 1))
    assert job.missing == ("process group TENSOR_MODEL_PARALLEL_GROUP: only ranks 0, 1",)
    job = joined(plan, (0,))
    assert (job.matched, job.compared) == (0, frozenset())
    assert "only rank 0 has a trace" in job.refused[0]
    job = joined(replace(plan, layers=1, steps=3), (0, 1))
    assert "fewer than 20 collectives in common" in job.refused[0]


def test_two_traces_of_one_rank_are_not_compared() -> None:
    text = traces(JobPlan(Layout(data=2)))[0]
    both = {name: torch.parse(text).trace for name in ("log:a.json", "log:b.json")}
    assert join({key: trace for key, trace in both.items() if trace}).repeated == ("log:b.json",)


def test_groups_of_which_only_a_name_is_known_must_end_together() -> None:
    """Ranks 0 and 1, and 2 and 3, are groups of one name; without their members they look like one group."""
    plan = JobPlan(Layout(tensor=2, data=2), jitter=0.03, overlapped=False)
    read = {}
    for rank, text in enumerate(traces(plan)):
        raw = json.loads(text)
        for event in raw["traceEvents"]:
            if "Group size" in event["args"]:
                event["args"] = {key: value for key, value in event["args"].items() if "Process Group" not in key}
                event["args"]["Group size"] = 4
        read[f"log:rank{rank}.json"] = torch.parse(json.dumps(raw)).trace
    job = join({key: trace for key, trace in read.items() if trace})
    assert not job.stragglers
    assert any("they do not end together" in reason for reason in job.refused)


@pytest.mark.parametrize(("name", "rank"), [
    ("log:rank3.json", 3), ("log:rank-12.Jul_15.1074.pt.trace.json", 12), ("log:job_worker_7.json", 7),
    ("log:trace.json", None), ("log:rank1-of-rank8.json", None), ("log:frank3.json", None),
])  # fmt: skip
def test_the_rank_in_a_name(name: str, rank: int | None) -> None:
    assert rank_in(name) == rank
