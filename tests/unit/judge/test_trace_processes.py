"""Traces of many ranks, read in several processes: the same findings, and little memory per trace."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from preflight.archive.directory import logs
from preflight.checks import registry
from preflight.evidence.document import Evidence
from preflight.facts.streamed_log import LogFile
from preflight.judge import judge, process_pool
from preflight.parsers import torch
from tests.support.training_job import JobPlan, Layout, traces, write_long

CHECKS = [check for check in registry().checks if check.id.startswith("torch.")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write the traces of three ranks (rank 1 is slow), a damaged one, a job's log, and a pickle of code."""
    for rank, text in enumerate(traces(JobPlan(Layout(data=3), slow={1: 1.25}, jitter=0.01))):
        (tmp_path / f"rank{rank}.json").write_text(text)
    (tmp_path / "rank3.json").write_text('{"traceEvents": [{"ph": "X", ')
    (tmp_path / "train.log").write_text("iteration 1\n")
    (tmp_path / "nccl_trace_rank_7").write_bytes(pickle.dumps({"entries": [], "code": Path("/")}))
    return tmp_path


def run_of(folder: Path) -> Evidence:
    run = logs(sorted(folder.iterdir()), 64_000_000)
    assert run is not None
    return run


def test_the_findings_are_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = judge([], CHECKS, run=run_of(folder), processes=1)
    assert any(finding["check"] == "torch.straggler" and finding["status"] == "warn" for finding in alone["findings"])
    monkeypatch.setattr(process_pool, "WORTH_SHARING", 0)
    run = run_of(folder)
    process_pool.read_traces(run, 2)
    read = {key for key, raw in run.records.items() if isinstance(raw, LogFile) and "pytorch" in vars(raw)}
    assert read == {f"log:rank{rank}.json" for rank in range(4)}
    assert json.dumps(judge([], CHECKS, run=run, processes=2)) == json.dumps(alone)


def test_small_traces_are_read_by_one_process(folder: Path) -> None:
    run = run_of(folder)
    process_pool.read_traces(run, 2)
    assert not any("pytorch" in vars(raw) for raw in run.records.values() if isinstance(raw, LogFile))


def test_what_is_stored_of_a_trace_does_not_grow_with_its_events(tmp_path: Path) -> None:
    """Its kernels, operators and launches are dropped."""
    sizes = []
    for events in (2_000, 20_000):
        path = tmp_path / f"{events}.json"
        with path.open("w") as stream:
            write_long(stream, events)
        parsed = torch.parse(path.read_text())
        assert parsed.trace is not None
        assert parsed.trace.document["events"] == events
        sizes.append(len(pickle.dumps(parsed)))
    assert sizes[1] < sizes[0] + 200


def test_of_a_trace_only_the_beginning_is_quoted(tmp_path: Path) -> None:
    path = tmp_path / "rank0.json"
    with path.open("w") as stream:
        write_long(stream, 1_000)
    log = LogFile(path)
    assert log.pytorch.trace is not None
    assert len(log.excerpt_text) <= 4096 < path.stat().st_size
