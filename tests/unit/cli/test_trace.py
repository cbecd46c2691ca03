"""``preflight trace``: one summary line, then the awaited rank, then the fix; findings as in ``check --log``."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from preflight.cli.app import main
from tests.support import paths
from tests.support.kineto_trace import trace
from tests.support.training_job import JobPlan, Layout, traces


def run(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write the traces of four data-parallel ranks; rank 2 computes a quarter slower."""
    made = tmp_path / "traces"
    made.mkdir()
    for rank, text in enumerate(traces(JobPlan(Layout(data=4), slow={2: 1.25}, jitter=0.01, clock_ms=2))):
        (made / f"rank{rank}.json.gz").write_bytes(gzip.compress(text.encode()))
    (made / "notes.txt").write_text("not a trace")
    return made


def test_the_first_line_is_the_budget_and_the_second_names_the_rank(folder: Path) -> None:
    result = run("trace", str(folder))
    first, second, *rest = result.output.splitlines()
    assert re.fullmatch(
        r"4 ranks: a step takes 6\d\.\d+ ms: 8\d% compute, 1\d% exposed communication "
        r"\(\d% transfer, 1\d% waiting for rank 2\), \d% GPU idle; rank 2 costs 19\.\d% of a step",
        first,
    )
    assert second.startswith("WARN    torch.straggler: ranks 0, 1, 3 wait for rank 2 for 1")
    assert "fix: Check that rank's node" in rest[0]
    assert not any("WARN" in line for line in rest), "healthy ranks are not blamed"
    assert result.exit_code == 0


@pytest.mark.parametrize("plan", [
    JobPlan(Layout(data=4), slow={2: 1.25}),
    JobPlan(Layout(tensor=2, data=2), slow={1: 1.2}, slow_steps=frozenset((2, 5, 6))),
    JobPlan(Layout(stages=4), slow={1: 1.3}, numbered=True, loss_ms=2, microbatches=8),
    JobPlan(Layout(stages=2), paused={1: 1.0}, numbered=True),
    JobPlan(Layout(stages=2), numbered=True, microbatches=12),
])  # fmt: skip
def test_the_first_line_and_the_findings_agree(plan: JobPlan, tmp_path: Path) -> None:
    plan = replace(plan, steps=7, layers=8, jitter=0.01, clock_ms=2)
    for rank, text in enumerate(traces(plan)):
        (tmp_path / f"rank{rank}.json").write_text(text)
    first = run("trace", str(tmp_path)).output.splitlines()[0]
    shares, _, costs = first.partition("; ")
    inside = [
        int(share) for part in re.findall(r"\(([^)]*waiting[^)]*)\)", shares) for share in re.findall(r"\d+(?=%)", part)
    ]
    assert sum(map(int, re.findall(r"(\d+)% (?:comp|exposed|copies|GPU)", shares))) == pytest.approx(100, abs=2)
    assert sum(inside) == pytest.approx(int(re.findall(r"(\d+)% exposed", shares)[0]), abs=2)
    named = [finding for finding in json.loads(run("trace", "--json", str(tmp_path)).output)["findings"]
             if (finding["check"], finding["status"]) == ("torch.straggler", "warn")]  # fmt: skip
    assert costs == "; ".join(f"{finding['subject']} costs {finding['found']}" for finding in named)
    assert bool(named) == bool(plan.slow or plan.paused)
    for finding in named:
        lost, step, share = map(float, re.findall(r"([\d.]+) of ([\d.]+) ms \(([\d.]+)%\)", finding["message"])[0])
        assert 100 * lost / step == pytest.approx(share, abs=0.1)
        assert f"{share:g}% of a step" in finding["found"].replace(".0%", "%")
        assert f" {step:.4g} ms" in shares
        if "between stages" in shares:  # what the schedule costs in any case is not charged to the rank
            assert int(re.findall(r"(\d+)% waiting for rank", shares)[0]) <= share


def test_the_findings_are_those_of_check(folder: Path) -> None:
    names = [str(folder / f"rank{rank}.json.gz") for rank in range(4)]
    shown = json.loads(run("trace", "--json", *names).output)
    logs = [word for name in names for word in ("--log", name)]
    checked = json.loads(run("check", "--only", "torch.*", "--json", "-", *logs).output)
    assert shown["findings"] == checked["findings"]
    assert shown["findings"]


def test_the_page_and_the_groups(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "steps.html"
    result = run("trace", str(folder), "--html", str(page), "--group", "dp")
    assert result.exit_code == 0
    second = result.output.splitlines()[1]
    assert second.startswith("        data-parallel group of ranks 0, 1, 2, 3: its ranks wait for 1")
    assert "rank 2 causes" in second
    text = page.read_text()
    assert 'id="timelines"' in text
    assert "late: rank 2" in text
    result = run("trace", str(folder), "--group", "tp")
    assert result.exit_code == 2
    assert "--group tp: the traces show no such group; they have dp" in result.output


def test_one_rank_and_an_idle_gpu(tmp_path: Path) -> None:
    path = tmp_path / "rank0.json"
    path.write_text(trace(compute_ms=30, talk_at_ms=10, talk_ms=10))
    result = run("trace", str(path))
    assert result.output.startswith("1 rank: a step takes 100 ms: 30% compute, 0% exposed communication, 70% GPU")
    assert "WARN    torch.idle" in result.output
    assert result.exit_code == 3, "who is waited for is unknown"


def test_dumps_of_the_flight_recorder() -> None:
    names = [str(paths.DATA / "outside" / "torch" / f"behind_rank_{rank}.json") for rank in range(4)]
    result = run("trace", *names)
    assert result.output.startswith("FAIL    torch.hang")
    assert result.exit_code == 1, "the dumps are given to be judged"
    result = run("trace", *names, "--json")
    assert (result.exit_code, json.loads(result.output)["exit_status"]) == (1, 1)


def test_a_hang_that_may_be_one_is_no_success() -> None:
    """The rank that others wait for left no dump: `read` exits 3 as well; dumps without a hang exit 0."""
    waiting = [str(paths.DATA / "outside" / "torch" / f"behind_rank_{rank}.json") for rank in (0, 2, 3)]
    result = run("trace", *waiting)
    assert (result.exit_code, "UNKNOWN torch.hang: the dumps: ranks" in result.output) == (3, True), result.output


def test_what_is_neither(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("a note")
    result = run("trace", str(tmp_path / "notes.txt"))
    assert result.exit_code == 3
    assert result.output.endswith("notes.txt: no complete profiler trace, flight-recorder dump or text of `ncclras` or "
                                  "`py-spy`\n")  # fmt: skip
    (tmp_path / "empty.json").touch()
    assert run("trace", str(tmp_path / "empty.json")).output.endswith("empty.json: the file is empty\n")
    (tmp_path / "empty.json").unlink()
    assert run("trace", str(tmp_path)).exit_code == 3
    (tmp_path / "notes.txt").rename(tmp_path / "notes.md")
    result = run("trace", str(tmp_path))
    assert result.exit_code == 2
    assert "no trace or dump in it" in result.output


def test_stacks_in_a_folder(tmp_path: Path) -> None:
    cases = json.loads((paths.ROOT / "fixtures" / "torch.stacks" / "cases.json").read_text())["cases"]
    for case, differs in (("one-rank-reads-a-file", True), ("all-wait", False)):
        for name, text in cases[case]["records"].items():
            (tmp_path / name.removeprefix("log:")).write_text(text)
        result = run("trace", str(tmp_path))
        assert ("but rank 2 is in read" in result.output) == differs, result.output


def test_text_of_a_trace_does_not_steer_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "rank0.json"
    path.write_text(trace(backend="gloo").replace("gloo:", "mpi\\u001b[31m:"))
    assert "\x1b" not in run("trace", str(path)).output
