"""Every check on its fixtures: one test runs them all."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from preflight.checklist.items import KNOWN
from preflight.checks import MODULES, in_module
from preflight.judge import findings, judge
from preflight.model import Check, Scope
from tests.scenarios.test_switches import SITE
from tests.support.clos import Clos
from tests.support.fixture import Case, cases

CHECKS = {
    check.id: check for name in MODULES for check in in_module(__import__(f"preflight.checks.{name}", fromlist=["_"]))
}


def findings_of(check: Check, case: Case) -> list[dict[str, Any]]:
    """Judge a case with one check; return its findings."""
    if check.scope is Scope.RUN:
        run, nodes = case.run()
        return findings(nodes, [check], case.cluster(), run=run)
    return findings(case.evidences(), [check], case.cluster())


#: One of something, with the noun of several.
_PLURAL = re.compile(
    r"(?<!\bof )(?<![\w.,:/+=#-])1 (?:(?:active )?(?!of )[A-Za-z-]+ )?"
    r"(?:nodes|ports|cables|switches|leaves|GPUs|HCAs|NICs|CPUs|rails|pairs"
    r"|rounds|buckets|traces|dumps|stacks|settings|records|lines|files|hosts|ranks|runs|steps|processes|kinds|channels"
    r"|connections|mounts|modules|sessions|packets|interfaces|links|receivers|directions|networks|devices|functions"
    r"|containers|errors|uplinks|libraries|seconds|hours|minutes|rows)\b"
)


def _plurals(judged: list[dict[str, Any]]) -> list[object]:
    """Return the messages with one of something in the plural."""
    return [finding["message"] for finding in judged if _PLURAL.search(str(finding["message"]))]


def test_one_of_anything_is_singular() -> None:
    clos = Clos()
    clos.heard = {"gpu001": clos.heard["gpu001"]}
    for switch in ("leaf2", "leaf3", "leaf4", "spine1", "spine2"):
        clos.without(switch)
    assert _plurals(judge(clos.evidences(), list(CHECKS.values()), SITE)["findings"]) == []


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_fixture(case: Case) -> None:
    assert case.check in CHECKS, f"{case.path} belongs to no check"
    assert re.match(r"(recorded|made by hand)\b", case.body["origin"]), "write where the fixture comes from"
    judged = findings_of(CHECKS[case.check], case)
    left = list(judged)
    for wanted in case.body["findings"]:
        match = next((found for found in left if _is(found, wanted)), None)
        assert match is not None, f"no finding like {wanted} among {_short(judged)}"
        left.remove(match)
    assert not left, f"not expected: {_short(left)}"
    assert _plurals(judged) == []
    for finding in judged:
        if finding["status"] in ("fail", "warn"):
            _assert_actionable(finding)


def _assert_actionable(finding: dict[str, Any]) -> None:
    """L48, L49: found and expected values, their evidence, the next step; and no format marks."""
    assert finding["fix"]
    assert finding["why"]
    # A scale check or a waiver depends on the cluster file, and names the key; a layout check on the job's description
    assert finding["evidence"] or finding["check"].startswith(("scale.", "site.", "layout."))
    assert finding["found"] or finding["expected"] or re.search(r"\d|\bis\b|\bare\b", finding["message"])
    assert not re.search(r"\{[a-z_.]*\}|%[sd]\b|\bNone\b|<[a-z_.]+ object", finding["message"])


def _is(found: dict[str, object], wanted: dict[str, str]) -> bool:
    for key, value in wanted.items():
        if key in ("message", "found", "expected", "fix"):
            if not re.search(value, str(found[key])):
                return False
        elif found[key] != value:
            return False
    return True


def _short(findings: list[dict[str, object]]) -> list[object]:
    return [(f["status"], f["subject"], f["message"], f["nodes"]) for f in findings]


@pytest.mark.parametrize("check", CHECKS.values(), ids=lambda check: check.id)
def test_every_check_can_pass_fail_and_be_unsure(check: Check) -> None:
    statuses = Counter(finding["status"] for case in cases(check.id) for finding in case.body["findings"])
    assert statuses["pass"], "no fixture passes"
    assert statuses["fail"] + statuses["warn"], "no fixture fails"
    assert statuses["unknown"], "no fixture lacks evidence"


@pytest.mark.parametrize("check", CHECKS.values(), ids=lambda check: check.id)
def test_every_check_explains_itself(check: Check) -> None:
    assert check.why, "the second paragraph of the docstring is why it hurts"
    assert check.source
    assert check.fix
    assert set(check.answers) <= KNOWN, f"no such checklist item: {set(check.answers) - KNOWN}"


@pytest.mark.parametrize("check", CHECKS.values(), ids=lambda check: check.id)
def test_a_check_has_a_title_for_its_fault(check: Check) -> None:
    assert check.fault not in ("", check.title)
    assert len(check.fault) <= 80
    assert not check.fault.endswith(".")
