"""Campaigns as documents: evidence from launches, and damaged journals."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from preflight.bench import campaign
from preflight.bench.observation import FAILED, RAN, UNFINISHED, WRONG
from preflight.parsers import nccl_tests
from tests.support.pair_runs import GIB, NODES, RAILS, log
from tests.support.pair_runs import campaign as records

ENDS = {NODES[0]: [RAILS[0]], NODES[1]: [RAILS[0]]}


def document() -> dict[str, Any]:
    record: Any = records()["bench:campaign"]
    value: dict[str, Any] = copy.deepcopy(record["value"])
    return value


def outcome(text: str, status: str = "ok", why: str = "") -> tuple[str, str]:
    """Return the outcome of a campaign's first launch with this output."""
    value = document()
    value["journal"][2] |= {"status": status, "why": why}
    done = campaign.read_record(value)
    run = campaign.observations(done, {"0001.txt": nccl_tests.text.parse(text)})[0]
    return run.outcome, run.why


def test_outputs_of_a_launch() -> None:
    good = log("alltoall", ENDS, {GIB: 44.0})
    assert outcome(good) == (RAN, "")
    assert (
        outcome(good.replace("       0    ", "      14    ", 1).replace(": 0 OK", ": 1 FAILED"), "failed")[0] == WRONG
    )
    assert outcome("", "failed", "ssh: connect to host gpu002: timed out") == (
        FAILED, "ssh: connect to host gpu002: timed out",
    )  # fmt: skip
    assert outcome(log("alltoall", ENDS, {GIB: None}, "cut"), "timeout", "no end within 60 s") == (
        UNFINISHED, "no end within 60 s",
    )  # fmt: skip


def test_a_run_on_other_hosts_measures_nothing_of_these() -> None:
    others = log("alltoall", {"gpu007": [RAILS[0]], "gpu008": [RAILS[0]]}, {GIB: 44.0})
    assert outcome(others)[0] == RAN  # named by address: ranks are in host order
    alone = log("alltoall", {NODES[0]: [RAILS[0], RAILS[1]]}, {GIB: 400.0})
    assert outcome(alone)[0] == FAILED
    more = log("alltoall", {node: [RAILS[0], RAILS[1]] for node in NODES[:2]}, {GIB: 44.0})
    assert outcome(more)[0] == FAILED


def test_a_binary_without_mpi() -> None:
    alone = [log("all_reduce", {node: [RAILS[0]]}, {GIB: 44.0}) for node in NODES[:2]]
    assert outcome("".join(alone))[0] == FAILED


def test_a_cut_launch_is_open_again() -> None:
    value = document()
    value["journal"][2]["status"] = "cut"
    done = campaign.read_record(value)
    assert done.open_runs(1) == [0]
    assert len(campaign.observations(done, {})) == 1
    value["journal"] = value["journal"][:4]  # the second was started and never ended
    assert campaign.read_record(value).open_runs(1) == [0, 1]


@pytest.mark.parametrize("damage", [
    lambda value: value["plan"].update(nodes=["-oProxyCommand=x", "gpu002"]),
    lambda value: value["plan"].update(binary="sh -c 'x'"),
    lambda value: value["plan"].pop("seed"),
    lambda value: value["journal"][0].update(round=2),
    lambda value: value["journal"][1].update(run=7),
    lambda value: value["journal"][1].update(state="ended"),
    lambda value: value["journal"].insert(0, []),
    lambda value: value["journal"].insert(0, {"schema": []}),
    lambda value: value.update(journal={}),
])  # fmt: skip
def test_damage_is_refused(damage: Any) -> None:
    value = document()
    campaign.read_record(value)
    damage(value)
    with pytest.raises(ValueError, match=r"."):
        campaign.read_record(value)


def test_a_plan_survives_its_document() -> None:
    plan = campaign.read_plan(document()["plan"])
    assert campaign.read_plan(campaign.plan_document(plan)) == plan
