"""Every id of the catalogue is answered by checks with recordings, or deferred with a reason."""

from __future__ import annotations

import pytest

from preflight.checklist.answers import SUPPLY
from preflight.checklist.item import ChecklistItem
from preflight.checklist.items import ITEMS
from preflight.checks import registry
from tests.support.fixture import cases

#: Id -> the missing kind of evidence, and why this version cannot collect it.
DEFERRED = {
    "NT-SHP-5": ("switch", "the telemetry of the fabric lies in its manager and its switches"),
}

#: Id -> the kind of evidence that its open questions need; its other questions are answered.
IN_PART = {
    "AN-7": "switch",
    "FP-CON-1": "declared", 
    "GS-3": "bench",
    "GS-1": "node", "PA-16": "node",
    "PA-17": "switch",
}  # fmt: skip

KINDS = set(SUPPLY)
BY_ID = {item.id: item for item in ITEMS}
CHECKS = registry().checks


def test_every_id_is_in_one_table_and_each_once() -> None:
    assert len(BY_ID) == len(ITEMS) == 139
    answered = {item for check in CHECKS for item in check.answers}
    assert answered | set(DEFERRED) == set(BY_ID)
    assert answered & set(DEFERRED) == set(), "it is answered now: strike it from DEFERRED"
    assert set(IN_PART) == {item.id for item in ITEMS if item.checks and item.open}


@pytest.mark.parametrize("item", [item for item in ITEMS if item.id not in DEFERRED], ids=lambda item: item.id)
def test_an_answered_id_has_checks_and_these_have_recordings(item: ChecklistItem) -> None:
    bearing = [check for check in CHECKS if item.id in check.answers]
    recorded = {check.id: list(cases(check.id)) for check in bearing}
    assert recorded
    for check, found in recorded.items():
        assert len(found) >= 3, f"{check}: one that passes, one that does not, one without evidence"
        assert all(case.body["origin"] for case in found), "recorded, or made by hand"


@pytest.mark.parametrize("item", DEFERRED)
def test_a_deferred_id_names_what_it_waits_for(item: str) -> None:
    kind, reason = DEFERRED[item]
    assert kind in KINDS & set(BY_ID[item].by)
    assert len(reason.split()) > 4
    assert not [check.id for check in CHECKS if item in check.answers]


@pytest.mark.parametrize("item", IN_PART)
def test_a_part_that_is_not_covered_is_named(item: str) -> None:
    assert IN_PART[item] in KINDS
    assert BY_ID[item].open
    assert [check for check in CHECKS if item in check.answers]
