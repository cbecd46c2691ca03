"""Items of the checklists that one node answers: each is proved by a recording that passes and by one that does not."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from preflight.checklist_items import ITEMS
from preflight.checks import registry
from preflight.evidence import from_document
from preflight.judge import judge
from preflight.model import Check, Scope
from tests.fixture import Case, cases, whole_node
from tests.whole_nodes import site

CHECKS = [check for check in registry().checks if check.scope is Scope.NODE]

#: Item -> what of it a node cannot answer; such an item never passes. Empty: a node answers all of it.
PROVED = {
    "PA-01": "", "PA-02": "", "PA-04": "", "PA-05": "", "PA-16": "",
    "PA-26": "", "FP-BW-2": "", "FP-OBS-1": "", "FP-LOSS-4": "", "NT-FAB-2": "", "NT-CTR-1": "", "NT-CTR-2": "",
    "NT-CTR-3": "",
    "NT-CTR-4": "", "NT-GDR-1": "", "NT-PIT-3": "", "NT-PIT-5": "",
    "NT-PIT-6": "registration cache, allocator fragmentation", "NT-DDP-1": "", "NT-INF-7": "", "NT-LENS-6": "",
    **{f"NT-ENV-{number}": "" for number in range(1, 14)}, "PA-15": "", "NT-LENS-4": "", "NT-LENS-5": "",
    "FP-LOSS-1": "", "FP-LOSS-2": "the switch's side", "FP-CON-2": "the switch's buffers",
    "FP-CON-3": "the switch's thresholds", "PA-12": "", "PA-13": "", "PA-14": "",
    "FP-BW-4": "", "FP-LOSS-3": "", "FP-CON-4": "", **{f"FP-OBS-{number}": "" for number in range(3, 7)}, "PA-19": "",
    "FP-CON-1": "", "FP-CON-5": "", "NT-CPU-1": "", "NT-CNT-1": "", "NT-LENS-7": "", "NT-LENS-8": "",
    "FP-BW-1": "", "NT-FAB-1": "", "NT-FAB-3": "", "NT-ROL-1": "", "AN-4": "", "AN-7": "",
    "AN-6": "", "AN-8": "",
    "AN-2": "", "AN-3": "", "AN-11": "", "GS-1": "", "GS-5": "memory bandwidth and FLOPs as measured",
}  # fmt: skip

#: Items that a healthy node at rest does not have: it is in no pod, and no job runs on it.
ONLY_IN_A_POD_OR_JOB = {"NT-CTR-2", "NT-CTR-3", "NT-DDP-1"}


def answering(item: str) -> list[Check]:
    return [check for check in CHECKS if item in check.answers]


@cache
def recordings(check: str) -> tuple[Case, ...]:
    return tuple(cases(check))


def answers(item: str) -> Iterator[tuple[Case, dict[str, Any], set[str]]]:
    """Judge every fixture of the checks that bear on an item with all of these checks: its line, all statuses."""
    checks = answering(item)
    for check in checks:
        for case in recordings(check.id):
            report = judge(case.evidences(), checks, case.cluster())
            line = next(line for line in report["checklists"] if line["id"] == item)
            yield case, line, {finding["status"] for finding in report["findings"]}


@pytest.mark.parametrize("item", PROVED)
def test_a_recording_passes_the_item(item: str) -> None:
    assert answering(item), "no check answers it"
    rest = PROVED[item]
    assert next(one.uncovered for one in ITEMS if one.id == item) == rest
    for _, line, statuses in answers(item):
        if rest and line["missing"] == f"no check of this version covers: {rest}" and statuses <= {"pass", "skip"}:
            assert line["status"] == "unknown"
            return
        if not rest and line["status"] == "pass":
            assert not line["missing"]
            return
    pytest.fail("no fixture makes it pass")


@pytest.mark.parametrize("item", PROVED)
def test_a_recording_fails_the_item(item: str) -> None:
    """A warning counts, but on an item that is answered in part: there, only a fail outweighs what is not known."""
    bad = {"fail"} if PROVED[item] else {"fail", "warn"}
    assert any(line["status"] in bad for _, line, _ in answers(item)), "no fixture makes it fail or warn"


@pytest.mark.parametrize("item", PROVED)
def test_a_healthy_whole_node_passes_the_item(item: str) -> None:
    """With all checks, not only those that bear on it."""
    found = set()
    for name in ("hgx-h100", "hgx-h100-roce"):
        report = judge([from_document(whole_node(name), name)], CHECKS, site(name))
        line = next(line for line in report["checklists"] if line["id"] == item)
        found.add(line["status"])
        if PROVED[item]:
            assert line["missing"] == f"no check of this version covers: {PROVED[item]}"
    if item in ONLY_IN_A_POD_OR_JOB:
        assert found == {"skip"}
    else:
        assert ("unknown" if PROVED[item] else "pass") in found
        assert found <= {"pass", "skip", "unknown" if PROVED[item] else "pass"}


#: Items of the fabric: some of their checks look at several nodes, at a pair, at a sweep or at a log.
FABRIC = (
    "FP-BW-1", "FP-BW-3", "FP-BW-4", *(f"FP-LOSS-{n}" for n in range(1, 4)), *(f"FP-CON-{n}" for n in range(1, 6)),
    *(f"FP-OBS-{n}" for n in range(3, 7)), "FP-LAT-3", "NT-FAB-1", "NT-FAB-3", "NT-FAB-4", "NT-SHP-1", "NT-SHP-2",
    "NT-CNT-1", "NT-CPU-1", "NT-ROL-1", "NT-GDR-2", "NT-LENS-7", "NT-LENS-8", "PA-12", "PA-13", "PA-14", "PA-19",
    "AN-1", "AN-4", "AN-6", "AN-7", "AN-8",
)  # fmt: skip


@pytest.mark.parametrize("item", FABRIC)
def test_every_check_of_an_item_of_the_fabric_has_recordings(item: str) -> None:
    """Alone, each check makes it pass by some recording, and one of them makes it fail or warn."""
    bearing = [check for check in registry().checks if item in check.answers]
    rest = next(one.uncovered for one in ITEMS if one.id == item)
    assert not rest or "switch" in rest, "what a host, the fabric or a pair can tell is covered"
    bad = False
    for check in bearing:
        good = False
        for case in recordings(check.id):
            run, nodes = case.run() if check.scope is Scope.RUN else (None, case.evidences())
            report = judge(nodes, [check], case.cluster(), run=run)
            said = {finding["status"] for finding in report["findings"]}
            line = next(line for line in report["checklists"] if line["id"] == item)
            good = good or line["status"] == "pass" or bool(rest and said == {"pass"})
            bad = bad or line["status"] == "fail" or "warn" in said
        assert good, f"no recording of {check.id} passes it"
    assert bad, "no recording fails it"


def test_what_a_job_needs_is_part_of_the_headroom() -> None:
    """PA-05: the node says what is free, the cluster file what is needed."""
    case = next(case for case in recordings("gpu.memory-headroom") if case.path.stem == "less-free-than-the-job-needs")
    report = judge(case.evidences(), answering("PA-05"), case.cluster())
    assert next(line["status"] for line in report["checklists"] if line["id"] == "PA-05") == "fail"
