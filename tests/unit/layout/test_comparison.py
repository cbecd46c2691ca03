"""Measured steps next to planned ones: calls of collectives belong to the axis of their ranks."""

from __future__ import annotations

import random

import pytest

from preflight.evidence.document import Evidence
from preflight.expectations import Cluster
from preflight.facts.job import RUN, RunFacts
from preflight.facts.job_description import RECORD, record
from preflight.layout.comparison import MeasuredStep, compare
from preflight.layout.job import LayoutError
from preflight.layout.plan import Plan
from preflight.layout.rank_map import RankMap
from tests.support.training_job import JobPlan, Layout, traces

_SCRIPT = (
    "torchrun pretrain_gpt.py --num-layers 8 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 "
    "--vocab-size 32000 --micro-batch-size 1 --global-batch-size 16 --bf16"
)


def compared(job: JobPlan, **settings: object) -> MeasuredStep:
    """Compare simulated traces with a plan."""
    site = Cluster().run_site([])
    described = {"train.sh": _SCRIPT}
    stated = {"gpus": job.layout.ranks, "tensor": job.layout.tensor, "pipeline": job.layout.stages, **settings}
    logs = {f"log:rank{rank}.json": {"status": "ok", "out": text} for rank, text in enumerate(traces(job))}
    run = RunFacts(Evidence(RUN, "", {**logs, RECORD: record(described, stated, "2 x HGX H100")}))
    assert run.description is not None
    return compare(Plan(run.description, site), run.job_trace)


def measured(step: MeasuredStep) -> dict[str, float]:
    return {part.name: part.measured for part in step.parts}


_LAYOUTS = {
    "tensor and data": Layout(tensor=2, data=2),
    "tensor and pipeline": Layout(tensor=2, stages=2),
    "all three": Layout(tensor=2, data=2, stages=2),
    "wide data": Layout(data=4),
}
_AXES = {"tp": "tensor", "dp": "data", "pp": "pipeline"}


@pytest.mark.parametrize("name", _LAYOUTS)
def test_a_slow_group_shows_in_its_axis(name: str) -> None:
    layout = _LAYOUTS[name]
    job = JobPlan(layout, steps=3, layers=4, jitter=0.02, numbered=True, overlapped=False, seed=11)
    healthy = measured(compared(job))
    assert healthy.get("other", 0.0) == 0.0
    for kind, axis in _AXES.items():
        if len(layout.group(kind, 0)) == 1:
            assert healthy.get(axis, 0.0) == 0.0
            continue
        slow = JobPlan(layout, steps=3, layers=4, jitter=0.02, numbered=True, overlapped=False, seed=11,
                       slow_groups={(kind, rank): 60.0 for rank in range(layout.ranks)})  # fmt: skip
        step = measured(compared(slow))
        growth = {row: step[row] - healthy.get(row, 0.0) for row in step if row != "compute"}
        assert max(growth, key=growth.__getitem__) == axis
        assert step["compute"] == pytest.approx(healthy["compute"], rel=0.1)


def test_experts_and_gradients_on_the_same_ranks_are_distinguished() -> None:
    job = JobPlan(Layout(data=4, experts=True), steps=3, layers=4, numbered=True, overlapped=False)
    stated = {"experts": 8, "active_experts": 2, "expert": 4, "expert_tensor": 1}
    step = compared(job, **stated)
    assert {"expert", "data"} <= set(measured(step))
    assert measured(step).get("other", 0.0) == 0.0
    slow = JobPlan(Layout(data=4, experts=True), steps=3, layers=4, numbered=True, overlapped=False,
                   slow_groups={("ep", 0): 40.0})  # fmt: skip
    assert measured(compared(slow, **stated))["expert"] > 10 * measured(step)["expert"]


def test_a_late_rank_is_waiting_and_not_transfer() -> None:
    step = compared(JobPlan(Layout(tensor=4), steps=5, layers=8, jitter=0.01, numbered=True, slow={2: 1.5}))
    (tensor,) = (part for part in step.parts if part.name == "tensor")
    assert tensor.waiting > 0.8 * tensor.measured
    assert step.late == (2,)


def test_the_parts_of_a_step_do_not_exceed_it() -> None:
    for seed in range(6):
        chance = random.Random(seed)
        layout = chance.choice(list(_LAYOUTS.values()))
        job = JobPlan(layout, steps=3, layers=4, jitter=0.1, numbered=True, overlapped=seed % 2 == 0, seed=seed)
        step = compared(job)
        assert sum(measured(step).values()) + step.idle == pytest.approx(step.seconds, rel=0.05)


def test_traces_of_another_layout_are_refused() -> None:
    job = JobPlan(Layout(tensor=4, data=2), steps=3, layers=4, numbered=True)
    with pytest.raises(LayoutError, match="process groups of the traces are not those of the layout: all_reduce of"):
        compared(job, tensor=2, pipeline=4)
    with pytest.raises(LayoutError, match="rank 4 has a trace, but the plan has only 4 ranks"):
        compared(job, gpus=4)


def test_the_group_of_a_rank_is_one_of_the_groups() -> None:
    ranks = RankMap({"tp": 2, "cp": 3, "dp": 4, "pp": 2})
    for axes in (("tp",), ("cp",), ("dp",), ("pp",), ("cp", "dp"), ("tp", "dp"), ("tp", "pp")):
        groups = [frozenset(group) for group in ranks.groups(*axes)]
        for rank in range(ranks.world):
            assert ranks.group_of(rank, *axes) in groups
            assert rank in ranks.group_of(rank, *axes)
