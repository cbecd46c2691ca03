"""Curves of nccl-tests and of trends: in the report document, and drawn on the page."""

from __future__ import annotations

import json
import re
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from preflight.archive.directory import logs
from preflight.checks import registry
from preflight.evidence.document import COURSE, Evidence
from preflight.facts.node import NodeFacts
from preflight.judge import judge
from preflight.judge.curves import MOST_CURVES, curves
from preflight.reports.curve_svg import draw
from preflight.reports.html_page import render
from tests.support import report_samples as samples
from tests.unit.reports.test_html import Page

#: Made by hand, in the format of nccl-tests.
LOG = """\
# nThread 1 nGpus 1 minBytes 1048576 maxBytes 8388608 step: 2(factor) warmup iters: 5 iters: 20\
 agg iters: 1 validation: 1 graph: 0
#
# Using devices
#  Rank  0 Group  0 Pid   4100 on  gpu001 device  0 [0x1b] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid   4101 on  gpu002 device  0 [0x1b] NVIDIA H100 80GB HBM3
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1    52.43   20.00   20.00      0    52.43   20.00   20.00      0
     2097152        524288     float     sum      -1    69.91   30.00   30.00      0    69.91   30.00   30.00      0
     4194304       1048576     float     sum      -1   104.86   40.00   40.00      0   104.86   40.00   40.00      0
     8388608       2097152     float     sum      -1   186.41   45.00   45.00      0   186.41   45.00   45.00      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 33.75
#
"""


def job(folder: Path, text: str) -> Evidence:
    path = folder / "job.log"
    path.write_text(text)
    run = logs([path], 1 << 20)
    assert run is not None
    return run


def conforms(report: dict[str, Any]) -> None:
    schema = json.loads(resources.files("preflight.schemas").joinpath("report-1.json").read_text("utf-8"))
    jsonschema.Draft202012Validator(schema["properties"]["curves"]).validate(report["curves"])


def test_the_curve_of_a_log(tmp_path: Path) -> None:
    report = judge([], registry().checks, run=job(tmp_path, LOG))
    conforms(report)
    (curve,) = report["curves"]
    assert curve["kind"] == "nccl-tests"
    assert curve["name"].startswith("job.log")
    assert curve["points"] == [[2**20, 20.0], [2**21, 30.0], [2**22, 40.0], [2**23, 45.0]]
    page = Page(render(report | {"run": samples.RUN}))
    assert "20 GB/s at 1 MiB, 45 GB/s at 8 MiB" in page.text
    assert "curves" in page.ids()


@pytest.mark.parametrize(
    "text", ["", "nothing of the kind\n", LOG.split("     2097152")[0]], ids=["empty", "other", "one size"]
)
def test_what_is_no_curve(text: str, tmp_path: Path) -> None:
    report = judge([], registry().checks, run=job(tmp_path, text))
    assert "curves" not in report
    assert 'id="curves"' not in render(report | {"run": samples.RUN})


def node_with(values: list[float], subject: str = "mlx5_0:1", metric: str = "port.symbol_error") -> NodeFacts:
    points = [[f"2026-01-{day:02d}T00:00:00Z", value] for day, value in enumerate(values, 1)]
    value = {metric: {subject: points, "other": points}}
    return NodeFacts(Evidence("n1", "2026-01-09T00:00:00Z", records={COURSE: {"status": "ok", "value": value}}))


def test_the_course_of_what_a_trend_is_about_and_of_nothing_else() -> None:
    finding = samples.finding("trend.links", "warn", ["n1"], "it errs more each day", subject="mlx5_0:1")
    node = node_with([0, 100, 250, 700])
    (curve,) = curves([finding], {"n1": node}, None)
    assert (curve["kind"], curve["node"], curve["name"]) == ("trend", "n1", "mlx5_0:1: symbol error")
    assert curve["points"] == [[-3.0, 0], [-2.0, 100], [-1.0, 250], [0.0, 700]]
    conforms({"curves": [curve]})
    assert curves([finding | {"status": "pass"}], {"n1": node}, None) == []
    assert curves([finding | {"check": "rdma.port-state"}], {"n1": node}, None) == []
    assert curves([finding], {"n1": node_with([5, 5, 5])}, None) == []  # a level line shows nothing
    assert curves([finding], {"n1": NodeFacts(Evidence("n1", "", records={}))}, None) == []


def test_many_trends_are_bounded() -> None:
    findings = [samples.finding("trend.links", "warn", ["n1"], "x", subject=f"mlx5_{number}:1") for number in range(40)]
    points = [["2026-01-01T00:00:00Z", 1.0], ["2026-01-02T00:00:00Z", 2.0]]
    value = {"port.symbol_error": {f"mlx5_{number}:1": points for number in range(40)}}
    node = NodeFacts(Evidence("n1", "2026-01-09T00:00:00Z", records={COURSE: {"status": "ok", "value": value}}))
    assert len(curves(findings, {"n1": node}, None)) == MOST_CURVES


@pytest.mark.parametrize("values", [[0.0, 0.0], [1e300, 5.0], [-4.0, 3.0], [1e-9, 2e-9], [float("nan"), 1.0]])
def test_any_numbers_are_drawn_within_the_picture(values: list[float]) -> None:
    curve = {"kind": "trend", "name": samples.HOSTILE, "node": None, "unit": "", "points": list(enumerate(values))}
    text = str(draw(curve))
    Page(text)
    assert "<script" not in text
    for height in re.findall(r'c[xy]="([-\d.]+)"', text):
        assert -1 <= float(height) <= 501
