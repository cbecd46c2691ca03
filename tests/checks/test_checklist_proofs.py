"""Answers are proved: for each item of a check, one recording passes and another fails or warns."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import chain

import pytest

from preflight.checklist.items import ITEMS
from preflight.checks import registry
from preflight.evidence.document import from_document
from preflight.judge import _judged, judge
from preflight.model import Check, Scope
from tests.support.fixture import cases, whole_node
from tests.support.whole_nodes import site

CHECKS = {check.id: check for check in registry().checks}
NODE = [check for check in CHECKS.values() if check.scope is Scope.NODE]

PAIRS = [(item.id, check) for item in ITEMS for check in item.checks]

#: Items for which a check only shows that something is visible, so it never fails.
NO_FAULT = {("FP-OBS-2", "torch.collective-share"), ("FP-OBS-8", "torch.steps"), ("GS-3", "nccl-tests.collectives")}

#: Items that pass on a healthy InfiniBand or RoCE node, from the evidence of one node.
PASS = {
    "FP-BW-1", "FP-BW-2", "FP-LOSS-1", "FP-LOSS-3", "FP-LOSS-4", *(f"FP-OBS-{number}" for number in (1, 3, 4, 5, 6)),
    "PA-01", "PA-02", "PA-04", "PA-12", "PA-14", "PA-15", "PA-16", "GS-1",
    *(f"NT-FAB-{number}" for number in range(1, 5)), "NT-GDR-1", "NT-PIT-4", "NT-PIT-5",
    *(f"NT-ENV-{number}" for number in range(1, 14)),
    *(f"NT-LENS-{number}" for number in (7,)), "NT-CNT-1", "NT-CPU-1", "AN-2", "AN-3", "AN-6",
}  # fmt: skip

#: Items that do not apply to such nodes, which are not in a container and have no peer.
SKIP = {*(f"NT-CTR-{number}" for number in range(1, 5)), "NT-PIT-3", "NT-ENV-14", "NT-INF-4"}

#: Items that do not apply without RoCE.
ROCE_ONLY = {"FP-LOSS-2", "FP-CON-2", "FP-CON-3", "FP-CON-4", "FP-OBS-5", "FP-OBS-6", "AN-3", "AN-4"}


@cache
def judged_cases(check_id: str) -> tuple[dict[str, set[str]], Iterator[None]]:
    """Return the statuses of each item so far, and an iterator over the fixtures."""
    check, statuses_of = CHECKS[check_id], dict[str, set[str]]()

    def judge_each() -> Iterator[None]:
        for case in cases(check_id):
            run, nodes = case.run() if check.scope is Scope.RUN else (None, case.evidences())
            for (_, item), status in _judged(nodes, [check], case.cluster(), run, (), 1).folded.by_item().items():
                statuses_of.setdefault(item, set()).add(str(status))
            yield

    return statuses_of, judge_each()


def has_a_recording(check: str, item: str, wanted: set[str]) -> bool:
    """Judge fixtures of a check until the item has one of the wanted statuses."""
    statuses_of, more = judged_cases(check)
    return any(statuses_of.get(item, set()) & wanted for _ in chain([None], more))


@pytest.mark.parametrize(("item", "check"), PAIRS)
def test_a_recording_passes_the_check_for_the_item(item: str, check: str) -> None:
    assert has_a_recording(check, item, {"pass"})


@pytest.mark.parametrize(("item", "check"), [pair for pair in PAIRS if pair not in NO_FAULT])
def test_a_recording_fails_the_check_for_the_item(item: str, check: str) -> None:
    assert has_a_recording(check, item, {"fail", "warn"})


def statuses(name: str, checks: list[Check]) -> dict[str, str]:
    report = judge([from_document(whole_node(name), name)], checks, site(name))
    return {line["id"]: line["status"] for line in report["checklists"]}


def test_healthy_nodes_pass_what_their_checks_answer_in_full() -> None:
    checks = list(CHECKS.values())
    infiniband, roce = statuses("hgx-h100", checks), statuses("hgx-h100-roce", checks)
    passing = {item for item in infiniband if "pass" in (infiniband[item], roce[item])}
    assert passing == PASS
    assert {item for item in infiniband if infiniband[item] == "skip"} == SKIP | ROCE_ONLY
    assert {item for item in roce if roce[item] == "skip"} == SKIP | {"NT-SHP-1", "NT-SHP-2"}  # of InfiniBand
    assert set(infiniband.values()) | set(roce.values()) == {"pass", "skip", "unknown"}


def test_what_a_job_needs_is_part_of_the_headroom() -> None:
    """PA-05: the node shows the free memory, the cluster file the required amount."""
    case = next(case for case in cases("gpu.memory-headroom") if case.path.stem == "less-free-than-the-job-needs")
    answering = [check for check in NODE if "PA-05" in check.answers]
    report = judge(case.evidences(), answering, case.cluster())
    assert next(line["status"] for line in report["checklists"] if line["id"] == "PA-05") == "fail"
