"""`preflight read DIR` and `judge DIR`: runs over pairs of nodes, compared across files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from preflight.reports.html_page import render as render_page
from preflight.schemas import conform
from tests.support.in_process import run
from tests.support.pair_runs import CASES


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
    assert text.startswith("FAIL: node gpu003: 7 of its 7 runs")
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
    )  # no bandwidth is expected of it
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
    assert ("gpu001 and gpu003: 2" in page) is (case == "one-node")  # its share, about 27 %


def test_a_name_of_a_node_is_no_markup(tmp_path: Path) -> None:
    pairs = folder(tmp_path, "bench.factor", "healthy")
    for path in pairs.iterdir():
        path.write_text(path.read_text().replace("gpu003", "<b>x</b>"))
    report = tmp_path / "report.json"
    run("judge", str(pairs), "--only", "bench.*", "--json", str(report), expect=(0,))
    assert "<b>x</b>" not in render_page(json.loads(report.read_text()))
