"""The first screen: names can be redacted, foreign text is harmless, machines with nothing to judge get three lines."""

from __future__ import annotations

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from preflight.redact import Redactor
from preflight.reports import incident_text
from preflight.reports.summary_text import render
from tests.support.in_process import run


@cache
def _demo() -> Any:
    return json.loads(run("demo", "--json", "-", expect=(1,)))


def demo() -> Any:
    return copy.deepcopy(_demo())


def test_redacted_screen_names_no_node() -> None:
    text = render(demo())
    assert "gpu007" in text
    redactor = Redactor(b"key")
    redactor.learn(text)
    assert "gpu0" not in redactor.text(text)
    assert "GPUs on the PCI bus: found 7" in redactor.text(text)


def test_what_a_node_sent_cannot_steer_the_terminal() -> None:
    report = demo()
    report["incidents"][0]["title"] = "a\x1b[31mb\u202ec\nd"
    report["incidents"][0]["next"] = "x\x07"
    for text in (render(report), incident_text.render(report, [0], colour=False, width=80),
                 incident_text.lines(report, [0]), incident_text.markdown(report, [0])):  # fmt: skip
        assert not {"\x1b", "\x07", "\u202e"} & set(text)
    assert incident_text.lines(report, [0]).count("\n") == 1
    report["incidents"][0]["title"] = "<img src=x> [a](javascript:b) *c*"
    assert "<img" not in incident_text.markdown(report, [0]).replace("\\<", "")


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_is_wider_than_the_screen(width: int) -> None:
    table = [line for line in render(demo(), width=width).splitlines() if "job  " in line]
    assert max(map(len, table)) <= max(width, 62)


def test_many_incidents_are_counted() -> None:
    report = demo()
    report["incidents"] *= 3
    text = render(report)
    assert "and 20 more" in text
    assert len(text.splitlines()) < 30


def test_show(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps(_demo()))
    source = ("--from", str(path))
    assert "roce.chain" in run("show", "6", *source)
    assert run("show", "gpu005", *source, "--format", "line").count("\n") == 2
    fingerprint = _demo()["incidents"][3]["fingerprint"]
    assert "mlx5_5:1 is DOWN" in run("show", fingerprint[:6], *source)
    assert json.loads(run("show", *source, "--format", "json")) == _demo()["incidents"]
    assert run("show", "--bad", *source) == "gpu[002-008]\n"
    assert run("show", "--by", "owner", *source).index("network") > 0
    assert "owner: network" in run("show", "4", *source, "--format", "md")
    for words in (("99", *source), ("nope", *source), ("1", "--from", str(tmp_path / "no"))):
        run("show", *words, expect=(2,))
