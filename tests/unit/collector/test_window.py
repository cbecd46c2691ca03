"""Two readings: the plan, the time limit of the run, and the record of both."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from preflight.cli.app import main
from preflight.collect.options import DEADLINE_S, FLEET_DEADLINE_S, MARGIN_S, CollectOptions, plans
from preflight.evidence.document import Evidence, EvidenceError
from preflight.facts.two_readings import twice
from preflight.probes.node import PROBES
from preflight.probes.probe import Probe, plan
from preflight.terminal import UsageError
from tests.integration.local.test_collector import PLAN


def test_the_window_travels_in_the_plan() -> None:
    made = plans(PROBES, None, CollectOptions(window_s=60))("n", 120)
    jsonschema.validate(made, PLAN)
    assert made["window_s"] == 60
    wanted = {probe["key"] for probe in made["probes"] if probe.get("twice")}
    assert {
        "files:/sys/class/infiniband/*/ports/*/{counters,hw_counters}",
        "cmd:ethtool -S {}",
        "file:/proc/stat",
    } <= wanted
    assert "window_s" not in plan((Probe("file", "/x", "y"),), node="", deadline_s=1)


def test_a_window_comes_on_top_of_the_usual_time() -> None:
    assert CollectOptions(window_s=60).limits(DEADLINE_S) == DEADLINE_S + 60
    assert CollectOptions(window_s=60).limits(FLEET_DEADLINE_S) == FLEET_DEADLINE_S + 60
    assert CollectOptions(None).limits(DEADLINE_S) == DEADLINE_S
    assert CollectOptions(30).limits(DEADLINE_S) == 30
    assert CollectOptions(60 + MARGIN_S, window_s=60).limits(DEADLINE_S) == 60 + MARGIN_S
    with pytest.raises(UsageError, match="--window 60 does not fit into --deadline 69"):
        CollectOptions(69, window_s=60).limits(DEADLINE_S)


def test_a_window_that_does_not_fit_ends_before_any_node_is_contacted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("preflight.transport.local.node.collect", lambda *a, **k: pytest.fail("the node was contacted"))
    result = CliRunner().invoke(main, ["check", "--window", "60", "--deadline", "20"])
    assert result.exit_code == 2
    assert "set at least 70 seconds" in result.output.replace("\n", " ")
    assert CliRunner().invoke(main, ["check", "--window", "0"]).exit_code == 2


# --- the record ------------------------------------------------------------------------------------


def test_a_second_reading_has_no_second_reading() -> None:
    inner = {"status": "ok", "out": "2", "at_s": 61.0, "again": {"status": "ok", "out": "3", "at_s": 121.0}}
    evidence = Evidence("n", "", {"file:x": {"status": "ok", "out": "1", "at_s": 1.0, "again": inner}})
    with pytest.raises(EvidenceError, match=r"again\.again must not be there"):
        twice(evidence, "file:x", lambda one: int(one.out))


@pytest.mark.parametrize("broken", [
    {"at_s": "soon"}, {"at_s": True}, {"again": "later"}, {"again": {}}, {"again": {"status": "ok", "out": 5}},
])  # fmt: skip
def test_a_malformed_second_reading_is_no_reading(broken: dict[str, Any]) -> None:
    record = {"status": "ok", "out": "1", "at_s": 1.0, "again": {"status": "ok", "out": "2", "at_s": 2.0}} | broken
    with pytest.raises(EvidenceError):
        twice(Evidence("n", "", {"file:x": record}), "file:x", lambda one: int(one.out))


@pytest.mark.parametrize("later", [None, 1.0, 0.5, float("nan"), float("inf")])
def test_readings_without_a_time_between_them_show_no_growth(later: float | None) -> None:
    second = {"status": "ok", "out": "2"} | ({} if later is None else {"at_s": later})
    evidence = Evidence("n", "", {"file:x": {"status": "ok", "out": "1", "at_s": 1.0, "again": second}})
    with pytest.raises(EvidenceError, match=r"the time between its two readings is unknown|at_s is not of type number"):
        twice(evidence, "file:x", lambda one: int(one.out))
