"""Items of the checklists that logs, benchmarks and traces of a run answer, or several nodes: proved like those of one.

Each has a recording that passes it and one that fails it, or warns.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from preflight.checklist_items import ITEMS
from preflight.checks import registry
from preflight.judge import judge
from preflight.model import Check, Scope
from tests.fixture import Case, cases

#: Item -> what of it no check covers yet; such an item never passes. Empty: all of it is answered.
RUN = dict.fromkeys(
    (
        "FP-LAT-1", "FP-LAT-4", "FP-OBS-2", "FP-OBS-8", "GS-2", "GS-3", "GS-4", "NT-NCCL-1", "NT-NCCL-2", "NT-NCCL-3",
        "NT-NCCL-4", "NT-PIT-1", "NT-PIT-2", "NT-SHP-3", "NT-SHP-4", "NT-COM-1", "NT-COM-2", "NT-LENS-1", "NT-LENS-2",
        "NT-LENS-3", "NT-LENS-9", "NT-TRN-1", "NT-TRN-2", "NT-TRN-3", "NT-TRN-4", "NT-DDP-2", "PA-17", "PA-18",
        "PA-20", "PA-21", "PA-22", "PA-23", "PA-25", "PA-N1",
    ),
    "",
)  # fmt: skip
FLEET = ("NT-PIT-4", "NT-ENV-14", "PA-03")

CHECKS = registry().checks

#: Of a run there may be that the trace tells only that steps are there; it cannot fail.
NO_FAULT = {"FP-OBS-8"}

#: What is asked for is measured in part: these may warn, and never pass.
IN_PART = {"NT-DDP-2"}


def answering(item: str) -> list[Check]:
    return [check for check in CHECKS if item in check.answers]


@cache
def recordings(check: str) -> tuple[Case, ...]:
    return tuple(cases(check))


def lines(item: str) -> Iterator[tuple[Case, dict[str, Any]]]:
    """Judge every fixture of the checks that bear on an item, with all of these."""
    checks = answering(item)
    for check in checks:
        for case in recordings(check.id):
            if check.scope is Scope.RUN:
                run, nodes = case.run()
                report = judge(nodes, checks, case.cluster(), run=run)
            else:
                report = judge(case.evidences(), checks, case.cluster())
            yield case, next(line for line in report["checklists"] if line["id"] == item)


@pytest.mark.parametrize("item", [item for item in RUN if item not in IN_PART])
def test_a_recording_passes_the_item(item: str) -> None:
    assert answering(item), "no check answers it"
    assert next(one.uncovered for one in ITEMS if one.id == item) == RUN[item]
    assert any(line["status"] == "pass" for _, line in lines(item)), "no fixture makes it pass"


@pytest.mark.parametrize("item", [item for item in RUN if item not in NO_FAULT])
def test_a_recording_fails_the_item(item: str) -> None:
    assert any(line["status"] in ("fail", "warn") for _, line in lines(item)), "no fixture makes it fail or warn"


@pytest.mark.parametrize("item", FLEET)
def test_several_nodes_answer_the_item(item: str) -> None:
    """Its checks each pass and fail; the item as a whole waits for all of them."""
    checks = answering(item)
    assert {check.scope for check in checks} >= {Scope.FLEET}
    for check in checks:
        statuses = {finding["status"] for case in recordings(check.id) for finding in case.body["findings"]}
        assert "pass" in statuses
        assert statuses & {"fail", "warn"}, check.id
    assert any(line["status"] in ("fail", "warn") for _, line in lines(item))
