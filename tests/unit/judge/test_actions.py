"""The action of a finding: its own, its check's, or its status's; the strongest one for a node."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest

from preflight.checks.gpu.xid_judgement import judged
from preflight.checks.gpu.xid_policy import POLICY, RECOVERY
from preflight.evidence.document import from_document, no_answer
from preflight.expectations import Cluster
from preflight.expectations.cluster_file import from_data
from preflight.facts.xid import Events, XidEvent
from preflight.gate import evaluate, verdict
from preflight.gate.verdict import UnusableVerdict, Verdict
from preflight.judge import judge
from preflight.judge.actions import strongest
from preflight.model import ACTIONS, Check, Finding, Status, check
from preflight.schemas.conform import find_error
from tests.support import paths
from tests.support.fixture import evidence, whole_node


def made(status: Status, declared: str = "", own: str = "", id: str = "site.made") -> Check:
    @check(id, title="made", source="made", fix="made", action=declared)
    def run(node: Any, site: Any) -> Iterator[Finding]:
        """Yield a finding of the given status.

        A test needs it.
        """
        yield Finding(status, "made", action=own)

    return run


def report(*checks: Check, cluster: Cluster | None = None) -> dict[str, Any]:
    return judge([evidence("n1", {"records": {}})], checks, cluster)


@pytest.mark.parametrize(
    ("status", "declared", "own", "action"),
    [
        (Status.PASS, "reset", "replace", "none"),
        (Status.SKIP, "reset", "", "none"),
        (Status.FAIL, "", "", "isolate"),
        (Status.FAIL, "reset", "", "reset"),
        (Status.FAIL, "reset", "replace", "replace"),
        (Status.FAIL, "reset", "no such word", "reset"),
        (Status.WARN, "", "", "monitor"),
        (Status.WARN, "reset", "", "monitor"),
        (Status.WARN, "fix-site", "", "fix-site"),
        (Status.WARN, "fix-job", "", "fix-job"),
        (Status.WARN, "reset", "replace", "replace"),
        (Status.UNKNOWN, "reset", "", "monitor"),
        (Status.UNKNOWN, "fix-site", "", "monitor"),
    ],
)
def test_word_of_a_finding(status: Status, declared: str, own: str, action: str) -> None:
    document = report(made(status, declared, own))
    assert document["findings"][0]["action"] == document["nodes"][0]["action"] == action


def test_node_has_the_strongest_of_its_findings() -> None:
    document = report(made(Status.FAIL, "reset", id="a.b"), made(Status.FAIL, "reboot", id="a.c"), made(Status.PASS))
    assert document["nodes"][0]["action"] == "reboot"
    assert strongest([]) == "none"
    assert strongest(ACTIONS) == "replace"


def test_waived_failure_is_to_be_watched() -> None:
    waiver = {"check": "site.made", "reason": "known", "owner": "ops"}
    cluster = from_data({"waiver": [{**waiver, "until": date(2099, 1, 1)}]}, "cluster.toml")
    (finding, *_) = report(made(Status.FAIL, "replace"), cluster=cluster)["findings"]
    assert (finding["status"], finding["action"]) == ("warn", "monitor")


def test_word_that_is_none_is_refused_in_a_declaration() -> None:
    with pytest.raises(ValueError, match="explode"):
        made(Status.FAIL, "explode")


def test_node_without_an_answer_is_to_be_watched() -> None:
    silent = judge([no_answer("n1", "connect", "refused", "2026-01-01T00:00:00Z")], [made(Status.FAIL)])
    assert silent["nodes"][0]["action"] == "monitor"


def test_report_of_an_older_version_is_read() -> None:
    document = report(made(Status.FAIL))
    document["run"] = {"at": "2026", "version": "1", "command": "", "seconds": 1, "cluster_file": None}
    assert find_error(document, "report-1", exact=True) == ""
    older = copy.deepcopy(document)
    del older["findings"][0]["action"], older["nodes"][0]["action"]
    assert find_error(older, "report-1") == find_error(older, "report-1", exact=True) == ""
    document["findings"][0]["action"] = "explode"
    assert "action" in find_error(document, "report-1")


@pytest.mark.parametrize(
    ("code", "text", "action"),
    [
        (154, "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", "reboot"),
        (154, "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", "reset"),
        (154, "GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)", "reset"),
        (154, "GPU recovery action changed from 0x0 (None) to 0x9 (Brand New Word)", "monitor"),
        (145, "RLW_REMAP Fatal XC0 i0 Link 02", "reset"),
        (145, "RLW_REMAP Nonfatal XC0 i0 Link 02", "none"),
        (145, "RLW_REMAP", "monitor"),
        (74, "NVLink: fatal error detected on link 2", "monitor"),
        (999, "a code of tomorrow", "monitor"),
    ],
)
def test_xid_that_its_line_decides(code: int, text: str, action: str) -> None:
    event = XidEvent(1.0, "0000:1b:00.0", code, text, text)
    assert judged(event, Events((event,), ())).action == action


def test_nvlink_error_that_repeats_requires_a_reset() -> None:
    events = tuple(XidEvent(at, "0000:1b:00.0", 74, "NVLink", "") for at in (1.0, 900.0))
    assert judged(events[0], Events(events, ())).action == "reset"


def test_driver_that_wants_no_recovery_any_more_leaves_only_watching() -> None:
    event = XidEvent(1.0, "0000:1b:00.0", 119, "", "")
    assert judged(event, Events((event,), ()), "None").action == "monitor"


def test_every_policy_has_a_word() -> None:
    assert {policy.action for policy in (*POLICY.values(), *RECOVERY.values())} <= set(ACTIONS)


def test_words_of_the_verdict_and_of_the_page() -> None:
    assert verdict.ACTIONS == ACTIONS
    page = paths.ROOT / "docs" / "actions.md"
    rows = [line.split("`")[1] for line in page.read_text().split("## Xids")[0].splitlines() if line.startswith("| `")]
    assert tuple(rows) == ACTIONS


def test_gate_requires_what_the_failure_does() -> None:
    node = json.loads(json.dumps(whole_node("hgx-h100")))
    checks = [made(Status.FAIL, "reboot", id="a.b"), made(Status.WARN, "fix-site", id="a.c")]
    selection = evaluate.CheckSelection(tuple(checks), (), ())
    document = from_document(node, "n1")
    result = evaluate.evaluate_node(document, Cluster(), selection, hook="ci", expects=False, gpus=None)
    assert (result.status, result.action) == ("fail", "reboot")
    assert "[node] action: reboot" in result.lines[0]


def test_verdict_of_an_older_version_is_read() -> None:
    failed = Verdict("n1", "fail", 7, cause="gpu.count", causes=("gpu.count",), reason="preflight: gpu.count: found 7")
    document = verdict.to_document(failed)
    assert document.pop("action") == "isolate"
    assert find_error(document, "verdict-1", exact=True) == ""
    assert verdict.from_document(document).action == "isolate"
    assert verdict.from_document(verdict.to_document(Verdict("n1", "pass", 7))).action == "none"
    with pytest.raises(UnusableVerdict, match="action"):
        verdict.from_document({**document, "action": "explode"})
    with pytest.raises(UnusableVerdict, match="passes"):
        Verdict("n1", "pass", 7, action="reset")
