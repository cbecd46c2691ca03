"""Planted faults of training jobs with their expected findings; rank, group and kind are random."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import NamedTuple

import pytest

from preflight.checks import registry
from preflight.evidence.document import Evidence
from preflight.judge import judge
from tests.support.kineto_trace import trace
from tests.support.training_job import JobPlan, Layout, traces

CHECKS = [check for check in registry().checks if check.id.startswith("torch.")]

Texts = Mapping[str, str]


class Planted(NamedTuple):
    """Traces of a job, and their expected findings."""

    texts: Texts
    warns: frozenset[str]  # checks
    message: str = ""  # part of one of their messages
    passes: frozenset[str] = frozenset()


def job(plan: JobPlan, *warns: str, message: str = "", passes: str = "") -> Planted:
    texts = {f"log:rank{rank}.json": text for rank, text in enumerate(traces(plan))}
    return Planted(texts, frozenset(warns), message, frozenset(passes.split()))


def single(text: str, *warns: str, message: str = "", passes: str = "") -> Planted:
    return Planted({"log:rank0.json": text}, frozenset(warns), message, frozenset(passes.split()))


def straggler(chance: random.Random, kind: str) -> Planted:
    size = chance.choice((2, 4, 8))
    layout = {"tensor": Layout(tensor=size), "data": Layout(data=size), "experts": Layout(data=size, experts=True)}[
        kind
    ]
    rank = chance.randrange(size)
    slow = {rank: 1 + chance.choice((0.1, 0.25, 0.3))}
    plan = JobPlan(layout, layers=8, jitter=0.03, clock_ms=2, seed=chance.randrange(1000), slow=slow)
    if kind == "experts":
        plan = JobPlan(layout, layers=8, jitter=0.03, clock_ms=2, seed=chance.randrange(1000), tokens={rank: 2.0})
    return job(plan, "torch.straggler", message=f"for rank {rank} for", passes="torch.steps torch.synchronisation")


PLANTED: Mapping[str, Callable[[random.Random], Planted]] = {
    "healthy": lambda chance: job(
        JobPlan(Layout(data=chance.choice((2, 4, 8))), jitter=0.03, clock_ms=2, seed=chance.randrange(1000)),
        passes="torch.straggler torch.overlap torch.idle torch.steps torch.synchronisation torch.launch-bound",
    ),
    "all-reduce after the backward pass": lambda chance: job(
        JobPlan(Layout(data=chance.choice((2, 4))), jitter=0.01, overlapped=False, megabytes=100), "torch.overlap",
        "torch.bucket-start", passes="torch.straggler",
    ),
    "a slow data-parallel rank": lambda chance: straggler(chance, "data"),
    "a slow tensor-parallel rank": lambda chance: straggler(chance, "tensor"),
    "an expert rank with twice the tokens": lambda chance: straggler(chance, "experts"),
    "a pipeline of four stages with few parts": lambda chance: job(
        JobPlan(Layout(stages=4), jitter=0.02, steps=chance.choice((6, 8, 10)), clock_ms=2), "torch.bubble",
        message="4 stages",
    ),
    ".item() three times a step": lambda chance: single(
        trace(steps=8, compute_ms=80, items=3, item_ms=2), "torch.synchronisation"
    ),
    ".item() of tensors on the CPU": lambda chance: single(
        trace(steps=8, compute_ms=96, items=3, item_ms=0), passes="torch.synchronisation torch.idle"
    ),
    "a slow data loader": lambda chance: single(
        trace(steps=8, step_ms=82, compute_ms=22, loader_ms=60, data_ms=60, talk_at_ms=61, talk_ms=20),
        "torch.data-loader", "torch.idle", message="73.2% of the steps' time",
    ),
    "a slow data loader without a name": lambda chance: single(
        trace(steps=8, step_ms=82, compute_ms=22, loader_ms=None, data_ms=60, talk_at_ms=61, talk_ms=20), "torch.idle",
        message="the GPU is idle for",
    ),
    "a step that takes a quarter longer": lambda chance: single(
        trace(steps=8, lengths=(100.0,) * 7 + (125.0,), compute_ms=95, talk_ms=30), "torch.steps",
        message="the worst takes 25%",
    ),
    "a long first step of the profile": lambda chance: single(
        trace(steps=8, lengths=(300.0,) + (100.0,) * 7, compute_ms=95, talk_ms=30), passes="torch.steps"
    ),
    "a long first step, and another": lambda chance: single(
        trace(steps=8, lengths=(300.0,) + (100.0,) * 6 + (130.0,), compute_ms=95, talk_ms=30), "torch.steps",
        message="after a first step of 300 ms",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_gives_its_finding(name: str) -> None:
    planted = PLANTED[name](random.Random(name))
    records = {key: {"status": "ok", "out": text} for key, text in planted.texts.items()}
    report = judge([], CHECKS, run=Evidence("@run", "", records))
    by_check: dict[str, set[str]] = {}
    for finding in report["findings"]:
        by_check.setdefault(finding["check"], set()).add(finding["status"])
    warned = [finding for finding in report["findings"] if finding["status"] in ("warn", "fail")]
    assert planted.warns <= {finding["check"] for finding in warned}, by_check
    assert not planted.message or any(planted.message in finding["message"] for finding in warned), warned
    for check in planted.passes:
        assert by_check[check] == {"pass"}, (check, by_check[check])
