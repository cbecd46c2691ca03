"""Honesty rules: silence, absence, garbage and crashes are never a pass."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.evidence.document import from_document, no_answer
from preflight.expectations import Cluster
from preflight.judge import judge
from preflight.model import Check, Finding, Scope, Status, check, failed, passed, worst
from tests.support.fixture import whole_node
from tests.support.node_documents import CHECKS, document, statuses


def test_no_evidence_at_all() -> None:
    report = judge([document({})], CHECKS)
    undeclared = {"host.mounts", "host.services", "host.processes"}  # the cluster file decides that they do not apply
    assert {name: status for name, status in statuses(report).items() if status != "unknown"} == dict.fromkeys(
        undeclared, "skip"
    )
    fleet = [f for f in report["findings"] if f["check"].startswith("fleet.")]
    assert fleet
    assert all("fewer than two nodes answered" in f["message"] for f in fleet)
    assert report["exit_status"] == 3


def test_no_node_at_all() -> None:
    report = judge([], CHECKS)
    assert report["exit_status"] == 3
    assert report["coverage"]["planned"] == 0


def _made(name: str, *findings: Finding, error: BaseException | None = None, **scope: Any) -> Check:
    @check(f"made.{name}", title=name, source="test", fix="none", answers=("NT-FAB-1",), **scope)
    def function(node: object, site: object) -> Iterator[Finding]:
        """Yield the findings of the test.

        It does not hurt.
        """
        yield from findings
        if error:
            raise error

    return function


def test_a_crash_is_unknown_logged_and_preserves_earlier_results(caplog: pytest.LogCaptureFixture) -> None:
    report = judge(
        [document({"file:x": "y"})], [_made("crash", passed("one"), error=TypeError("boom")), _made("ok", passed("x"))]
    )
    assert [(f["status"], f["message"]) for f in report["findings"] if f["check"] == "made.crash"] == [
        ("unknown", "the check itself crashed: TypeError: boom"), ("pass", "one"),
    ]  # fmt: skip
    assert "Traceback" in caplog.text
    assert "TypeError: boom" in caplog.text
    assert report["exit_status"] == 3


@pytest.mark.parametrize(
    "error", [SystemExit(0), SystemExit("bye"), SystemExit(2), GeneratorExit(), BaseException("x")]
)
@pytest.mark.parametrize("scope", ["node", "fleet"])
def test_a_check_that_exits_sets_no_status_of_the_run(error: BaseException, scope: Any) -> None:
    """``sys.exit(0)`` in a plug-in used to end `judge` with 0: nothing was printed, and a scheduler read a pass."""
    nodes = [document({"file:x": "y"}, name) for name in ("a", "b")]
    report = judge(nodes, [_made("exit", error=error, scope=scope), _made("ok", passed("x"))])
    crashed = [f for f in report["findings"] if f["check"] == "made.exit"]
    assert {f["status"] for f in crashed} == {"unknown"}
    assert all(f"the check itself crashed: {type(error).__name__}" in f["message"] for f in crashed)
    assert report["exit_status"] == 3


def test_an_interrupt_ends_the_run() -> None:
    with pytest.raises(KeyboardInterrupt):
        judge([document({"file:x": "y"})], [_made("stop", error=KeyboardInterrupt())])


def test_what_is_no_finding_is_a_crash_of_its_check() -> None:
    """Preflight itself used to fail, without the name of the check."""
    wrong: Any = 7
    report = judge([document({"file:x": "y"})], [_made("wrong", wrong), _made("ok", passed("x"))])
    (finding,) = (f for f in report["findings"] if f["check"] == "made.wrong")
    assert (finding["status"], report["exit_status"]) == ("unknown", 3)
    assert finding["message"] == "the check itself crashed: TypeError: it yielded int, not a finding"


def test_silence_is_unknown() -> None:
    report = judge([document({"file:x": "y"})], [_made("silent")])
    assert report["findings"][0]["message"] == "the check returned no finding"
    assert report["exit_status"] == 3


@pytest.mark.parametrize(
    ("findings", "gating", "expected"),
    [
        ([passed("a")], True, 0),
        ([failed("a")], True, 1),
        ([failed("a")], False, 0),
        ([failed("a") for _ in range(256)], True, 1),
        ([failed("a") for _ in range(257)], True, 1),
    ],
)
def test_exit_status(findings: list[Finding], gating: bool, expected: int) -> None:
    from dataclasses import replace

    made = replace(_made("exit", *findings), gating=gating)
    assert judge([document({"file:x": "y"})], [made])["exit_status"] == expected


def test_a_node_without_an_answer_is_unknown() -> None:
    report = judge(
        [document({"file:x": "y"}), no_answer("node2", "connect", "refused", "")], [_made("ok", passed("x"))]
    )
    assert report["exit_status"] == 3
    assert report["nodes"][1]["no_answer"] == {"phase": "connect", "reason": "refused"}


@given(st.lists(st.sampled_from(Status)))
def test_overall_is_never_better_than_any_finding(found: list[Status]) -> None:
    overall = worst(found)
    if Status.FAIL in found:
        assert overall is Status.FAIL
    elif Status.UNKNOWN in found or not found:
        assert overall is Status.UNKNOWN
    else:
        assert overall in found


def test_coverage_adds_up() -> None:
    evidences = [
        from_document(dict(whole_node("hgx-h100"), node="a1"), "a1"),
        from_document(dict(whole_node("hgx-h100-roce"), node="a2"), "a2"),
        document({}, "a3"), no_answer("a4", "connect", "refused", ""),
    ]  # fmt: skip
    report = judge(evidences, CHECKS, Cluster())
    coverage = report["coverage"]
    ran = coverage["passed"] + coverage["warned"] + coverage["failed"] + coverage["unknown"]
    assert coverage["ran"] == ran
    assert coverage["planned"] == ran + coverage["skipped"] + coverage["no_answer"]
    everywhere = [c for c in CHECKS if c.scope is not Scope.RUN and not c.sweep and not c.pair and not c.history
                  and not c.switches]  # fmt: skip
    everywhere = [c for c in everywhere if c.id != "site.waivers"]  # no file, no waivers
    assert coverage["planned"] == 4 * len(everywhere)
    assert coverage["nodes"] == {"planned": 4, "answered": 3, "no_answer": 1}


def test_judging_twice_gives_the_same_bytes() -> None:
    evidence = from_document(whole_node("hgx-h100-roce"), "x")
    assert json.dumps(judge([evidence], CHECKS)) == json.dumps(judge([evidence], CHECKS))


def test_checklist_never_passes_while_a_check_is_unknown() -> None:
    report = judge([from_document(whole_node("hgx-h100"), "x")], CHECKS)
    roll_up: dict[str, str] = report["nodes"][0]["checks"]
    for item in report["checklists"]:
        if item["status"] == "pass":
            assert item["checks"]
            # without switches, checks of switches are not planned
            assert all(roll_up.get(c, "skip") in ("pass", "warn", "skip") for c in item["checks"]), item
        if item["status"] == "unknown":
            assert item["missing"], item


def test_probe_table_is_read_only() -> None:
    """Commands are argument vectors of tools that only print; nothing is written, reset or set (L42, L60)."""
    from preflight.probes.node import PROBES

    allowed = {
        "chronyc",
        "dcb",
        "df",
        "dmesg",
        "ethtool",
        "find",
        "ibstat",
        "ibv_devinfo",
        "ip",
        "lspci",
        "lldpcli",
        "mlnx_qos",
        "mlxlink",
        "nv-fabricmanager",
        "nvidia-smi",
        "ofed_info",
        "systemctl",
        "head",
        "nvidia-ctk",
        "timedatectl",
    }
    for probe in PROBES:
        assert probe.why
        assert 0 < probe.timeout_s <= 60
        if probe.kind == "cmd":
            assert probe.argv[0] in allowed, f"{probe.key}: is it read-only? then add it here"
            assert not set(probe.argv) & {
                "set",
                "-r",
                "-R",
                "--reset",
                "-pm",
                "-pl",
                "-lgc",
                "--pfc",
                "replace",
                "add",
                "-exec",
                "-delete",
                "makestep",
            }
            assert not set("|;&$`<>") & set(probe.target)


def test_a_finding_speaks_only_of_its_own_checklist_items() -> None:
    records = {**whole_node("hgx-h100")["records"], "env:process": {"status": "ok", "value": {"NCCL_P2P_DISABLE": "1"}}}
    items = {item["id"]: item["status"] for item in judge([document(records)], CHECKS)["checklists"]}
    assert items["NT-ENV-5"] == items["NT-LENS-4"] == "fail"
    assert items["NT-ENV-4"] == items["NT-ENV-6"] == "pass"
    assert items["NT-LENS-5"] == "unknown"  # no log shows the ranks of a node
