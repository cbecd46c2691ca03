"""The picture of the longest step: as data in the report, and drawn on the page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

import jsonschema
import pytest

from preflight.checks import registry
from preflight.evidence.document import Evidence
from preflight.facts.job import RunFacts
from preflight.facts.trace import timeline
from preflight.facts.trace.job import JobTrace
from preflight.facts.trace.timeline import group_waits, timelines
from preflight.judge import judge
from preflight.reports.html_page import render
from preflight.reports.timeline_svg import draw, summary
from tests.support import report_samples as samples
from tests.support.kineto_trace import trace
from tests.support.training_job import JobPlan, Layout, traces
from tests.unit.reports.test_html import Page


def joined(texts: Mapping[int, str]) -> JobTrace:
    run = Evidence("@run", "", {f"log:rank{rank}.json": {"status": "ok", "out": text} for rank, text in texts.items()})
    return RunFacts(run).job_trace


def job(plan: JobPlan, without: int | None = None) -> JobTrace:
    return joined({rank: text for rank, text in enumerate(traces(plan)) if rank != without})


def share(row: Mapping[str, Any], kind: str) -> float:
    parts: list[int] = row["parts"].get(kind, [0])
    return sum(parts) / len(parts) / 100


@pytest.fixture(scope="module")
def slow() -> JobTrace:
    return job(JobPlan(Layout(tensor=2, data=2), layers=6, steps=4, slow={3: 1.25}, clock_ms=2, numbered=True))


def test_the_late_rank_does_not_wait_and_its_peers_do(slow: JobTrace) -> None:
    (longest,) = timelines(slow)
    schema = json.loads(resources.files("preflight.schemas").joinpath("report-1.json").read_text("utf-8"))
    jsonschema.Draft202012Validator({"$ref": "#/$defs/timeline", "$defs": schema["$defs"]}).validate(longest)
    rows = {row["rank"]: row for row in longest["rows"]}
    assert [rank for rank, row in rows.items() if row["late"]] == [3]
    assert share(rows[3], "waiting") < 0.01
    assert share(rows[2], "waiting") > 0.05
    assert longest["length_ms"] == pytest.approx((slow.step_us or 0) / 1000, rel=0.05)
    assert all(row["same_clock"] and row["begin"] < 0.01 for row in rows.values()), "clocks differ by up to 4 ms"


def test_the_parts_add_up_to_the_budget_of_the_step() -> None:
    stages = job(JobPlan(Layout(tensor=2, stages=2), layers=6, steps=4, numbered=True))  # compute is counted for stages
    (longest,) = timelines(stages)
    for row in longest["rows"]:
        rank = stages.ranks[row["rank"]]
        begin, end = rank.steps[longest["step"]]
        assert share(row, "compute") == pytest.approx(rank.compute[longest["step"]] / (end - begin), abs=0.005)
        exposed = sum(share(row, kind) for kind in ("transfer", "waiting", "communication"))
        assert exposed == pytest.approx(rank.bare.within(begin, end) / (end - begin), abs=0.005)
        assert all(sum(parts) <= 101 for parts in zip(*row["parts"].values(), strict=True))


def test_process_groups_of_one_kind(slow: JobTrace) -> None:
    first, second = group_waits(slow, "tp")
    assert first.startswith("tensor-parallel group of ranks 2, 3: its ranks wait for ")
    assert first.endswith("; rank 3 causes 100% of it")
    assert second.startswith("tensor-parallel group of ranks 0, 1: ")
    (longest,) = timelines(slow, "tp")
    assert [row["group"] for row in longest["rows"]][::2] == [
        "tensor-parallel group of ranks 0, 1",
        "tensor-parallel group of ranks 2, 3",
    ]
    complete = {row["rank"]: row for row in timelines(slow)[0]["rows"]}
    rows = {row["rank"]: row for row in longest["rows"]}
    assert share(rows[0], "waiting") < share(complete[0], "waiting"), "rank 0 waits in its data-parallel group"
    assert not timelines(slow, "ep")
    assert not group_waits(slow, "ep")


def test_one_long_step_is_drawn_beside_the_median_one() -> None:
    drawn = timelines(job(JobPlan(Layout(data=2), layers=4, steps=5, slow={1: 2.0}, slow_steps=frozenset((3,)))))
    assert [(picture["which"], picture["step"] == 3) for picture in drawn] == [("longest", True), ("median", False)]
    assert summary(drawn[0]).startswith("step 3, the longest one: ")


def test_without_all_ranks_waiting_and_transfer_are_one_share() -> None:
    (longest,) = timelines(job(JobPlan(Layout(data=3), layers=4, steps=4, overlapped=False), without=1))
    assert all("communication" in row["parts"] and "waiting" not in row["parts"] for row in longest["rows"])
    assert "exposed communication" in draw(longest)


def test_a_profile_without_marked_steps() -> None:
    (only,) = timelines(joined({0: trace(mark=False)}))
    assert only["step"] is None
    assert summary(only) == f"the complete profile: {only['length_ms']:.4g} ms, rank 0"


def test_the_picture_does_not_grow_with_the_events() -> None:
    pictures = [
        draw(timelines(job(JobPlan(Layout(data=2), layers=layers, steps=4, jitter=0.02)))[0]) for layers in (6, 48)
    ]
    few, many = (Page(f"<main>{picture}</main>").tags for picture in pictures)
    assert len(few) == len(many) < 40
    assert len(pictures[1]) < 30_000


def test_of_many_ranks_the_late_one_is_drawn(slow: JobTrace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "MOST_RANKS", 2)
    (longest,) = timelines(slow)
    assert [(row["rank"], row["late"]) for row in longest["rows"]] == [(0, False), (3, True)]
    assert ", 2 of 4 ranks" in summary(longest)


def test_the_page_shows_it_and_a_hostile_host_is_text(slow: JobTrace) -> None:
    (longest,) = timelines(slow)
    longest["rows"][0]["host"] = '</title><script>x</script>\x1b"'
    text = render(samples.healthy() | {"timelines": [longest]})
    page = Page(text)
    assert "timelines" in page.ids()
    assert "#timelines" in [attrs.get("href") for _, attrs in page.tags]
    assert page.count("script") == 2
    assert "\x1b" not in text
    assert 'id="timelines"' not in render(samples.healthy())


def test_a_log_that_is_not_in_the_document_has_no_picture() -> None:
    cut = {"status": "cut", "why": "larger than 64 MB"}
    report = judge([], registry().checks, run=Evidence("@run", "", {"log:rank0.json": cut}))
    assert "timelines" not in report
