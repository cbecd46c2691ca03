"""Data moved by a job's collectives: rates, loads of experts, bubbles of pipelines; exact on made-up traces."""

from __future__ import annotations

from statistics import median

import pytest

from preflight.facts.trace import pipelines
from preflight.facts.trace.job import JobTrace, join
from preflight.facts.trace.pipelines import Bubble
from preflight.parsers import torch
from preflight.parsers.nccl_tests.collective import factor
from tests.support.training_job import BYTES_PER_MS, JobPlan, Layout, traces


def joined(plan: JobPlan) -> JobTrace:
    read = {f"log:rank{rank}.json": torch.parse(text).trace for rank, text in enumerate(traces(plan))}
    return join({key: trace for key, trace in read.items() if trace})


@pytest.mark.parametrize("layout", [Layout(tensor=2), Layout(tensor=4), Layout(data=4, experts=True)])
def test_the_rate_of_a_transfer_is_exact_to_one_per_cent(layout: Layout) -> None:
    job = joined(JobPlan(layout, megabytes=800, steps=4, layers=8, jitter=0.01, clock_ms=2, overlapped=False))
    assert job.waits.transfers
    for (number, kind, size), sample in job.waits.transfers.items():
        ranks = len(job.waits.groups[number].ranks)
        wire = factor(kind, ranks)
        assert wire is not None
        if len(sample) >= 20:
            assert size * wire / median(sample) == pytest.approx(BYTES_PER_MS * wire / 1000, rel=0.01)


@pytest.mark.parametrize("factor_of_one", [1.0, 1.3, 2.0])
def test_the_load_of_experts(factor_of_one: float) -> None:
    job = joined(JobPlan(Layout(data=4, experts=True), steps=4, layers=4, tokens={3: factor_of_one}, clock_ms=2))
    (load,) = job.experts
    assert load.load[3] == pytest.approx(4 * factor_of_one / (3 + factor_of_one), rel=0.001)
    assert factor_of_one == 1 or load.most == 3


@pytest.mark.parametrize("gradient_norm", [False, True])  # stages drain until the next step, or in a collective
@pytest.mark.parametrize(("stages", "microbatches"), [(2, 4), (2, 16), (4, 8)])
def test_the_bubble_of_a_pipeline_is_that_of_its_schedule(stages: int, microbatches: int, gradient_norm: bool) -> None:
    plan = JobPlan(Layout(stages=stages), microbatches=microbatches, steps=6, layers=8, layer_ms=20, numbered=True,
                   gradient_norm=gradient_norm)  # fmt: skip
    (bubble,) = joined(plan).bubbles
    assert bubble.messages == microbatches
    assert bubble.share == pytest.approx(bubble.ideal, abs=0.03)


@pytest.mark.parametrize(
    ("activations", "gradients", "chunks"), [(8, 0, 1), (16, 8, 2), (24, 16, 3), (8, 8, 1), (9, 2, 1), (4, 6, 1)]
)
def test_the_chunks_of_interleaved_stages(activations: int, gradients: int, chunks: int) -> None:
    assert pipelines.chunks_of(activations, gradients) == chunks


def test_the_bubble_of_interleaved_stages() -> None:
    bubble = Bubble((0, 1, 2, 3), 0.2, 16, 2)
    assert bubble.microbatches == 8
    assert bubble.ideal == pytest.approx(3 / 19)


def test_a_pipeline_without_its_stages_has_no_bubble() -> None:
    assert not joined(JobPlan(Layout(data=2))).bubbles
    assert not joined(JobPlan(Layout(data=2))).experts
