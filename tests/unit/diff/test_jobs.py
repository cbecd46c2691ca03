"""Two jobs compared: traces, logs with step times, and what is neither."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from preflight.commands.diff import load_job
from preflight.diff.jobs import compare_jobs, render_jobs
from preflight.facts.job import RunFacts
from tests.support.training_job import JobPlan, Layout, traces

JOB = JobPlan(Layout(data=2), layers=8, steps=4)


def job(folder: Path, plan: JobPlan) -> RunFacts:
    folder.mkdir()
    for rank, text in enumerate(traces(plan)):
        (folder / f"rank{rank}.json").write_text(text, "utf-8")
    loaded = load_job(folder)
    assert loaded is not None
    return loaded


def log(path: Path, milliseconds: float, prefix: str = "") -> RunFacts:
    lines = (
        f"{prefix} iteration {step:8d}/     100 | elapsed time per iteration (ms): {milliseconds + step % 3:.1f} | "
        f"lm loss: 2.{step:03d}E+00 |\n"
        for step in range(1, 41)
    )
    path.write_text("".join(lines), "utf-8")
    loaded = load_job(path)
    assert loaded is not None
    return loaded


def test_traces_of_a_job_with_a_slow_rank(tmp_path: Path) -> None:
    before = job(tmp_path / "before", JOB)
    after = job(tmp_path / "after", JobPlan(Layout(data=2), layers=8, steps=4, slow={1: 1.4}))
    comparison = compare_jobs(before, after)
    assert (comparison["exit_status"], comparison["late_ranks"]) == (1, {"before": [], "after": [1]})
    figures = {figure["name"]: figure["after"] - figure["before"] for figure in comparison["figures"]}
    assert figures["step"] == pytest.approx(figures["computing"] + figures["exposed communication"], rel=0.05)
    assert render_jobs(comparison).endswith("  new: its peers wait for rank 1\n")
    assert compare_jobs(after, before)["exit_status"] == compare_jobs(before, before)["exit_status"] == 0


def test_logs_of_two_jobs(tmp_path: Path) -> None:
    fast, slow = log(tmp_path / "a.log", 500), log(tmp_path / "b.log", 600)
    assert compare_jobs(fast, slow)["exit_status"] == 1
    assert render_jobs(compare_jobs(fast, slow)).startswith("WORSE: a step takes 20.0% longer\n")
    assert compare_jobs(slow, fast)["exit_status"] == 0


@pytest.mark.parametrize("prefix", ["[2026-05-11 09:00:00]", "[rank0]:", "[2026-05-11 09:00:00,101] [INFO] [Rank 0]"])
def test_logs_that_begin_with_a_bracket_are_no_json(prefix: str, tmp_path: Path) -> None:
    fast, slow = log(tmp_path / "a.log", 500, prefix), log(tmp_path / "b.log", 600, prefix)
    assert compare_jobs(fast, slow)["exit_status"] == 1
    assert compare_jobs(slow, fast)["exit_status"] == 0


def test_reports_and_evidence_are_no_jobs(tmp_path: Path) -> None:
    """A report may quote step lines, and is still a report."""
    (tmp_path / "report.json").write_text(json.dumps({"schema": "preflight.report/1", "message": "step 3 loss 2.1"}))
    (tmp_path / "list.json").write_text(json.dumps(["step 3 loss 2.1", {"a": 1}], indent=1))
    for path in (tmp_path, tmp_path / "report.json", tmp_path / "list.json", tmp_path / "absent"):
        assert load_job(path) is None
