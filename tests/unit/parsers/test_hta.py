"""Idle, overlapped and exposed time agree with HolisticTraceAnalysis (HTA) within a percentage point.

The traces are generated; the figures are those of HTA 0.5.0 for them, which ``HTA=PYTHON pytest -m hta`` computes again
(CONTRIBUTING.md): its installation takes 500 MB, so it is not part of every run. With ``HTA_TRACES=DIR``, traces of
other jobs are compared as well, reduced to what HTA counts.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from preflight.parsers import torch
from tests.support import paths
from tests.support.kineto_trace import trace
from tests.support.training_job import JobPlan, Layout, traces

JOBS: Mapping[str, JobPlan] = {
    "overlapped": JobPlan(Layout(data=2), jitter=0.03, seed=1),
    "after the backward pass": JobPlan(Layout(data=2), overlapped=False, megabytes=100),
    "tensor-parallel": JobPlan(Layout(tensor=2), megabytes=50, jitter=0.03, seed=2),
    "a slow rank": JobPlan(Layout(tensor=2, data=2), slow={1: 1.4}, clock_ms=2, megabytes=20, seed=3),
    "experts": JobPlan(Layout(data=2, experts=True), tokens={1: 2.0}, megabytes=20, seed=4),
    "a pipeline with bubbles": JobPlan(Layout(stages=4), jitter=0.02, clock_ms=2, seed=5),
}
#: Single traces with idle GPUs.
SINGLE: Mapping[str, Callable[[], str]] = {
    "a slow data loader": lambda: trace(
        steps=8, step_ms=82, compute_ms=22, loader_ms=60, data_ms=60, talk_at_ms=61, talk_ms=20
    ),
    "idle at the end of each step": lambda: trace(steps=8, compute_ms=60, talk_at_ms=40, talk_ms=35),
    "busy": lambda: trace(steps=8, compute_ms=96, talk_at_ms=40, talk_ms=30),
}
_GPU_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
NAMES = (*JOBS, *SINGLE)
#: HTA's percentages of each rank: idle, overlap, exposed.
FIGURES: Mapping[str, Sequence[tuple[float, float, float]]] = {
    "overlapped": [(0.05, 90.45, 0.34), (0.05, 90.78, 0.64)],
    "after the backward pass": [(0.04, 0.01, 14.22), (0.03, 0.02, 14.22)],
    "tensor-parallel": [(0.04, 0.47, 15.26), (0.05, 0.45, 15.65)],
    "a slow rank": [(0.04, 6.39, 31.82), (0.04, 31.79, 4.66), (0.02, 57.14, 31.84), (0.02, 57.14, 31.84)],
    "experts": [(0.05, 4.92, 29.69), (0.05, 19.6, 6.32)],
    "a pipeline with bubbles": [(0.12, 1.27, 43.2), (0.12, 0.36, 42.49), (0.12, 0.45, 41.78), (0.12, 1.3, 40.86)],
    "a slow data loader": [(70.04, 100.0, 0.0)],
    "idle at the end of each step": [(22.22, 57.14, 15.56)],
    "busy": [(3.45, 100.0, 0.0)],
}


def texts_of(name: str) -> list[str]:
    """Return the traces of a job's ranks, or the single one."""
    return list(traces(JOBS[name])) if name in JOBS else [SINGLE[name]()]


def ours(name: str) -> list[tuple[float, float, float]]:
    """Return the same percentages by preflight."""
    figures = []
    for text in texts_of(name):
        read = torch.parse(text).trace
        assert read is not None
        gpu = read.document["gpu"]
        figures.append((100 * gpu["idle_ms"] / gpu["span_ms"], 100 * gpu["overlap"], 100 * gpu["exposed_share"]))
    return figures


@pytest.mark.parametrize("name", NAMES)
def test_within_a_point_of_its_figures(name: str) -> None:
    for rank, (own, theirs) in enumerate(zip(ours(name), FIGURES[name], strict=True)):
        assert own == pytest.approx(theirs, abs=1), (rank, own, theirs)


@pytest.mark.hta
@pytest.mark.parametrize("name", NAMES)
def test_its_figures_are_those_recorded(name: str, tmp_path: Path) -> None:
    files = []
    for rank, text in enumerate(texts_of(name)):
        files.append(str(tmp_path / f"rank{rank}.json"))
        Path(files[-1]).write_text(text, "utf-8")
    rows = theirs_of(*files)
    assert rows == [pytest.approx(theirs, abs=0.02) for theirs in FIGURES[name]], rows


@pytest.mark.hta
def test_other_traces_by_its_definition() -> None:
    """HTA's exposed time includes copies. A trace that HTA cannot read, or without GPU work, is left out."""
    folder = os.environ.get("HTA_TRACES")
    if not folder:
        pytest.skip("HTA_TRACES is not set")
    compared = 0
    for path in sorted(Path(folder).glob("*.json.gz")):
        read = torch.parse(json.dumps(counted(json.loads(gzip.decompress(path.read_bytes()))))).trace
        if read is None or read.document["gpu"] is None:
            continue
        try:
            ((idle, overlap, exposed),) = theirs_of(str(path))
        except subprocess.CalledProcessError:
            continue
        gpu = read.document["gpu"]
        own = tuple(
            100 * share
            for share in (
                gpu["idle_ms"] / gpu["span_ms"],
                math.nan if gpu["overlap"] is None else gpu["overlap"],
                (gpu["span_ms"] - gpu["idle_ms"] - gpu["compute_ms"]) / gpu["span_ms"],
            )
        )
        print(path.name, f"idle, overlap, exposed: {own} here, {(idle, overlap, exposed)} by HTA")
        assert own == pytest.approx((idle, overlap, exposed), abs=1, nan_ok=True), path.name
        compared += 1
    assert compared


def counted(trace: dict[str, Any]) -> dict[str, Any]:
    """Return a trace with only the GPU work that HTA counts.

    It is the work launched before the last marked step, if several steps are marked. Starts are rounded up to
    microseconds, and ends down.
    """
    events = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    work = [event for event in events if event.get("cat", "").lower() in _GPU_WORK]
    calls = [event for event in events if event.get("cat", "").lower() not in (*_GPU_WORK, "gpu_user_annotation")]
    steps = {event["ts"] for event in calls if event["name"].startswith("ProfilerStep")}
    if len(steps) > 1:
        launched = {event["args"].get("correlation") for event in calls if event["ts"] < max(steps) and "args" in event}
        work = [event for event in work if event["args"]["correlation"] in launched]
    if any(isinstance(event["ts"], float) for event in events):
        for event in work:
            begin, end = math.ceil(event["ts"]), math.floor(event["ts"] + event["dur"])
            event |= {"ts": begin, "dur": max(0, end - begin)}
    return {**trace, "traceEvents": work}


def theirs_of(*files: str) -> list[tuple[float, float, float]]:
    """Return HTA's percentages for each trace."""
    script = paths.TESTS / "support" / "hta_figures.py"
    result = subprocess.run(
        [os.environ["HTA"], str(script), *files], capture_output=True, text=True, timeout=200, check=True
    )
    return [(row["idle"], row["overlap"], row["exposed"]) for row in json.loads(result.stdout.splitlines()[-1])]
