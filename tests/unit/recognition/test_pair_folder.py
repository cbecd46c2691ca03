"""`preflight read DIR` and `judge DIR`: runs over pairs of nodes, compared across files."""

from __future__ import annotations

import json
import os
from itertools import combinations
from pathlib import Path

import pytest

from preflight.reports.html_page import render as render_page
from preflight.schemas import conform
from tests.support.in_process import run
from tests.support.pair_runs import CASES, GIB, NODES, RAILS, log


def folder(tmp_path: Path, check: str, case: str) -> Path:
    target = tmp_path / "pairs"
    target.mkdir()
    for name, text in CASES[check][case][0].items():
        (target / name.removeprefix("log:")).write_text(str(text))
    return target


def test_read_a_folder(tmp_path: Path) -> None:
    pairs = folder(tmp_path, "bench.factor", "one-node")
    (pairs / ".hidden").write_text("no output of a tool")
    document = json.loads(run("read", "--json", str(pairs), expect=(1,)))
    assert len(document["sources"]) == 28
    failed = [finding for finding in document["findings"] if finding["status"] == "fail"]
    assert [finding["subject"] for finding in failed] == ["node gpu003"]
    assert conform.find_error(document["bench"], "bench-1", exact=True) == ""
    (factor,) = document["bench"]["factors"]
    assert (factor["kind"], factor["of"], factor["slow"], factor["runs"]) == ("node", "gpu003", 7, 7)
    assert not any(finding["check"].startswith("bench.") for source in document["sources"]
                   for part in source["parts"] for finding in part["findings"])  # fmt: skip


def test_text_and_markdown_begin_with_the_part(tmp_path: Path) -> None:
    pairs = folder(tmp_path, "bench.factor", "one-node")
    text = run("read", str(pairs), expect=(1,))
    assert text.startswith("FAIL: node gpu003: all 7 of its runs")
    assert "  gpu001 \\.2....." in text
    assert "  gpu003 22\\22222" in text
    assert "slow runs by rail:" in text
    assert run("read", "--format", "md", str(pairs), expect=(1,)).startswith("**FAIL** node gpu003")


def test_a_run_that_stops_is_no_slow_run(tmp_path: Path) -> None:
    text = run("read", str(folder(tmp_path, "bench.pairs", "two-that-do-not-run")), expect=(1,))
    assert "gpu002 and gpu006: alltoall over 2 GPUs on 2 nodes does not run" in text
    assert "  gpu002 .\\...x.." in text


def test_one_run_has_no_findings_of_all_sources(tmp_path: Path) -> None:
    document = json.loads(
        run("read", "--json", str(folder(tmp_path, "bench.pairs", "one-run")), expect=(3,))
    )  # it has no expected bandwidth
    assert "bench" not in document
    assert "findings" not in document


def test_an_empty_folder_is_a_usage_error(tmp_path: Path) -> None:
    run("read", str(tmp_path), expect=(2,))


def test_a_pipe_in_a_folder_is_left_out(tmp_path: Path) -> None:
    pairs = folder(tmp_path, "bench.pairs", "four-pairs")
    os.mkfifo(pairs / "pipe")
    assert len(json.loads(run("read", "--json", str(pairs), expect=(3,)))["sources"]) == 4


@pytest.mark.parametrize("case", ["one-node", "healthy"])
def test_judge_a_folder(tmp_path: Path, case: str) -> None:
    pairs = folder(tmp_path, "bench.factor", case)
    report = tmp_path / "report.json"
    status = 1 if case == "one-node" else 0
    run("judge", str(pairs), "--only", "bench.*", "--json", str(report), expect=(status,))
    document = json.loads(report.read_text())
    assert conform.find_error(document, "report-1", exact=True) == ""
    (drawn,) = document["pairs"]
    assert len(drawn["rows"]) == 8
    assert len(drawn["cells"]) == 28
    assert drawn["named"] == (["node gpu003"] if case == "one-node" else [])
    page = render_page(document)
    assert 'id="pairs"' in page
    assert page.count('class="p-slow"') >= (14 if case == "one-node" else 0)
    assert ("gpu001 and gpu003: 2" in page) is (case == "one-node")  # its share, about 27%


def test_a_name_of_a_node_is_no_markup(tmp_path: Path) -> None:
    pairs = folder(tmp_path, "bench.factor", "healthy")
    for path in pairs.iterdir():
        path.write_text(path.read_text().replace("gpu003", "<b>x</b>"))
    report = tmp_path / "report.json"
    run("judge", str(pairs), "--only", "bench.*", "--json", str(report), expect=(0,))
    assert "<b>x</b>" not in render_page(json.loads(report.read_text()))


@pytest.mark.parametrize("rate", ["nan", "inf", "1e400", "-42.00"])
def test_a_rate_that_is_none_is_unknown(tmp_path: Path, rate: str) -> None:
    text = log("alltoall", {"gpu001": RAILS[:1], "gpu002": RAILS[:1]}, {GIB: 42.0}).replace("42.00", rate)
    (path := tmp_path / "run.out").write_text(text)
    assert f" {rate} " in text
    shown = " ".join(run("read", str(path), expect=(3,)).split())
    assert "the row for 1 GiB is ignored: a time or a rate is negative or not a number" in shown
    report = json.loads(run("judge", str(tmp_path), "--only", "nccl-tests.wrong-values", "--json", expect=(3,)))
    assert [item["status"] for item in report["findings"]] == ["unknown"]


def test_wrong_values_of_one_pair_are_exit_status_1(tmp_path: Path) -> None:
    pairs = folder(tmp_path, "bench.factor", "healthy")
    path = min(pairs.iterdir())
    path.write_text(path.read_text().replace("       0", "      17", 1).replace("values : 0 OK", "values : 1 FAILED"))
    report = json.loads(run("judge", str(pairs), "--only", "bench.*", "--json", expect=(1,)))
    (failed,) = [item for item in report["findings"] if item["status"] == "fail"]
    assert (failed["check"], failed["subject"]) == ("bench.pairs", "gpu001 - gpu002")


def test_the_gpus_of_a_slow_node_are_one_rival(tmp_path: Path) -> None:
    for a, b in combinations(NODES, 2):
        rate = 20.0 if "gpu003" in (a, b) else 40.0
        (tmp_path / f"{a}-{b}.out").write_text(log("alltoall", {a: RAILS, b: RAILS}, {GIB: rate}))
    report = json.loads(run("judge", str(tmp_path), "--only", "bench.factor", "--json", expect=(1,)))
    assert report["findings"][0]["message"].endswith("the cause may also be one of the 8 GPUs of gpu003, or its port")
