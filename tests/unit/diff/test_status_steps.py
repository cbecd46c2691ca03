"""``preflight diff``: every step from one status to another, of a check and of a node, with each side's message."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from preflight.diff import Snapshot, compare, render
from preflight.diff.change import ABSENT
from preflight.diff.render import _difference

STATUSES = ("pass", "skip", "warn", "unknown", "fail", ABSENT)

#: Before, after -> exit status; 0 for all others.
STEPS = {
    **dict.fromkeys(product(("pass", "skip", "warn"), ("fail",)), 1),
    **dict.fromkeys(product(("pass", "skip"), ("warn",)), 1),
    ("unknown", "fail"): 1,
    **dict.fromkeys(product(("pass", "skip", "warn", "fail"), ("unknown",)), 3),
    **dict.fromkeys(product(("pass", "warn", "unknown", "fail"), (ABSENT,)), 3),
    **dict.fromkeys(product(("warn", "fail"), ("skip",)), 3),
    (ABSENT, "fail"): 3,
}

#: States of a node in a run.
NODES = ("missing", "silent", "healthy", "sick")
NODE_STEPS = {
    **dict.fromkeys(product(("missing", "silent", "healthy"), ("sick",)), 1),
    ("missing", "silent"): 3, ("healthy", "silent"): 3, ("sick", "silent"): 3,
    ("healthy", "missing"): 3, ("sick", "missing"): 3, ("silent", "missing"): 3,
}  # fmt: skip


def side(of: str, nodes: dict[str, dict[str, str]], silent: tuple[str, ...] = ()) -> Snapshot:
    """Make a report of statuses by node and check; a name that begins with @ is a run's logs."""
    findings = [
        {"check": check, "status": status, "gating": True, "nodes": [name], "subject": "", "found": None,
         "message": f"{of} {check} {status}"}
        for name, checks in nodes.items() for check, status in checks.items() if status != ABSENT
    ]  # fmt: skip
    listed: list[dict[str, Any]] = [
        {"name": name, "checks": {check: status for check, status in checks.items() if status != ABSENT}}
        for name, checks in nodes.items() if not name.startswith("@")
    ]  # fmt: skip
    listed += [{"name": name, "no_answer": {"phase": "connect", "reason": "refused"}, "checks": {}} for name in silent]
    return Snapshot(of, {"nodes": listed, "findings": findings, "exit_status": 0}, None, of)


@pytest.mark.parametrize("name", ["gpu001", "@run"])
@pytest.mark.parametrize(("before", "after"), list(product(STATUSES, STATUSES)))
def test_every_step_of_a_check(before: str, after: str, name: str) -> None:
    same = {"gpu009": {"a.same": "pass"}}
    result = compare(side("FIRST", {**same, name: {"a.b": before}}), side("SECOND", {**same, name: {"a.b": after}}))
    expected = STEPS.get((before, after), 0)
    assert result["exit_status"] == expected
    text = render(result)
    assert text.startswith({0: "NO WORSE", 1: "WORSE", 3: "UNKNOWN"}[expected])
    if expected:
        assert "a.b" in text
    for line in text.splitlines():
        assert not ("SECOND" in line and line.startswith("    before:")), text
        assert not ("FIRST" in line and line.startswith("    after:")), text
    for finding in result["findings"]:
        assert finding["was"] is None or finding["was"].startswith("FIRST")
        assert finding["now"] is None or finding["now"].startswith("SECOND")


@pytest.mark.parametrize(("before", "after"), list(product(NODES, NODES)))
def test_every_step_of_a_node(before: str, after: str) -> None:
    sides = []
    for of, what in (("FIRST", before), ("SECOND", after)):
        nodes = {"gpu009": {"a.b": "pass"}}
        if what in ("healthy", "sick"):
            nodes["gpu001"] = {"a.b": "pass" if what == "healthy" else "fail"}
        sides.append(side(of, nodes, ("gpu001",) if what == "silent" else ()))
    result = compare(*sides)
    assert result["exit_status"] == NODE_STEPS.get((before, after), 0)
    assert ("gpu001" in render(result)) is (before != after or before == "silent")


def test_a_fault_that_is_gone_is_quoted_as_it_was() -> None:
    result = compare(side("FIRST", {"n": {"a.b": "fail"}}), side("SECOND", {"n": {"a.b": "pass"}}))
    assert render(result).splitlines()[3:6] == [
        "gone  n  a.b: fail -> pass", "    before: FIRST a.b fail", "    after: SECOND a.b pass",
    ]  # fmt: skip


def test_a_fault_on_a_part_that_is_not_looked_at_any_more_is_not_gone() -> None:
    """The subject failed before; now the check is unknown for the node, or does not apply."""
    for now, expected in (("unknown", 3), ("skip", 3), ("pass", 0)):
        before = side("FIRST", {"n": {"a.b": "fail"}})
        before.report["findings"][0]["subject"] = "mlx5_3:1"
        result = compare(before, side("SECOND", {"n": {"a.b": now}}))
        assert result["exit_status"] == expected, now


def test_all_devices_that_vanish_are_no_improvement() -> None:
    for check in ("gpu.count", "rdma.device-count"):
        result = compare(side("FIRST", {"n": {check: "pass"}}), side("SECOND", {"n": {check: "skip"}}))
        assert result["exit_status"] == 3


def test_no_node_in_both_runs() -> None:
    result = compare(side("FIRST", {"a": {"a.b": "pass"}}), side("SECOND", {"b": {"a.b": "pass"}}))
    assert result["exit_status"] == 3
    assert render(result).startswith("NOT COMPARED")
    result = compare(side("FIRST", {"a": {"a.b": "pass"}}), side("SECOND", {"b": {"a.b": "fail"}}))
    assert result["exit_status"] == 1
    assert render(result).startswith("WORSE")


def _value(of: str, status: str, found: str, undecided: bool = False) -> Snapshot:
    made = side(of, {"n": {"fleet.driver-equal": status}})
    made.report["findings"][0] |= {"found": found, "undecided": undecided}
    return made


@pytest.mark.parametrize("status", ["fail", "warn"])
def test_a_tie_that_is_decided_against_a_node_is_worse(status: str) -> None:
    tie, decided = _value("FIRST", status, "a on 2; b on 2", True), _value("SECOND", status, "a")
    result = compare(tie, decided)
    assert (result["exit_status"], [one["change"] for one in result["findings"]]) == (1, ["worse"])
    assert render(result).startswith("WORSE: 1 node compared, 1 worse")
    assert compare(decided, tie)["exit_status"] == 0, "what was decided is open again: no worse"
    assert compare(tie, tie)["findings"] == []


def test_a_failure_with_another_value_still_fails() -> None:
    result = compare(_value("FIRST", "fail", "570.1"), _value("SECOND", "fail", "570.2"))
    assert result["exit_status"] == 0
    text = render(result).splitlines()
    assert text[0] == "NO WORSE: 1 node compared, 1 still failing, with another value"
    assert text[3:6] == [
        "still failing  n  fleet.driver-equal: fail -> fail", "    before: FIRST fleet.driver-equal fail",
        "    now: SECOND fleet.driver-equal fail",
    ]  # fmt: skip
    assert compare(_value("FIRST", "fail", "1"), _value("SECOND", "fail", "1"))["findings"] == []


@pytest.mark.parametrize(
    ("check", "was", "now", "change"),
    [
        ("gpu.count", "7", "6", "worse"), ("gpu.count", "6", "7", "still"), ("nvlink.links", "12", "4", "worse"),
        ("rdma.registered", "7 RDMA devices", "5 RDMA devices", "worse"), ("counters.loss", "7", "6", "still"),
        ("gpu.count", "none", "6", "still"),
        ("rdma.port-rate", "200 Gb/s", "100 Gb/s", "worse"), ("rdma.port-rate", "100 Gb/s", "200 Gb/s", "still"),
        ("gpu.pcie-link", "x8", "x4", "worse"), ("gpu.pcie-link", "x8", "4", "still"),
        ("gpu.pcie-link", "4", "3", "still"),  # a generation, which varies with the load
        ("gpu.ecc-uncorrected", "0 SRAM, 1 DRAM", "0 SRAM, 9 DRAM", "worse"),
        ("gpu.ecc-uncorrected", "0 SRAM, 9 DRAM", "1 SRAM, 2 DRAM", "still"),  # counted since a reset
        ("gpu.ecc-uncorrected", "0 SRAM, 9 DRAM", "SRAM threshold exceeded", "still"),
        ("gpu.row-remap", "512", "513", "worse"), ("gpu.row-remap", "failure", "pending", "still"),
        ("gpu.retired-pages", "60 single-bit, 0 double-bit", "60 single-bit, 2 double-bit", "worse"),
        ("gpu.row-remap", "3 low, 0 none", "0 low, 3 none", "worse"),
        ("gpu.row-remap", "0 low, 1 none", "4 low, 0 none", "still"),
        ("pcie.nic-link", "x16 at 16.0 GT/s", "x16 at 8.0 GT/s", "worse"),
        ("pcie.nic-link", "x8 at 16.0 GT/s", "x4 at 32.0 GT/s", "still"),  # the same bandwidth
        ("gpu.temperature-margin", "-1", "-4", "still"),  # varies from run to run
        ("rdma.bandwidth", "92 Gb/s", "91 Gb/s", "still"), ("counters.loss", "1 in 2 s", "9 in 2 s", "still"),
    ],
)  # fmt: skip
def test_fewer_devices_and_more_defects_are_worse(check: str, was: str, now: str, change: str) -> None:
    before, after = side("FIRST", {"n": {check: "fail"}}), side("SECOND", {"n": {check: "fail"}})
    for made, figure in ((before, was), (after, now)):
        made.report["findings"][0] |= {"found": figure}
    (finding,) = compare(before, after)["findings"]
    assert finding["change"] == change


def test_of_two_lists_only_what_differs_is_shown() -> None:
    assert _difference("a 1; b 2; c 3", "a 1; c 4") == ("b 2; c 3", "c 4")
    assert _difference("a 1; b 2", "a 1") == ("b 2", "none")
    assert _difference("a; b", "b; a") == ("a; b", "b; a")  # another order
    assert _difference("550.90", "570.124") == ("550.90", "570.124")
