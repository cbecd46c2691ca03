"""Combinations of planted faults give their expected incidents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import pytest

from preflight.checks import registry
from preflight.evidence.document import from_document
from preflight.expectations.cluster_file import decode
from preflight.judge import judge
from preflight.reports.sanitize import fold
from tests.scenarios.incidents.combinations import FLEET, MORE, NODE, ONE_NODE, PLANTED
from tests.scenarios.incidents.random_pairs import problems
from tests.support import whole_nodes
from tests.support.machines import hgx_h100
from tests.support.machines.fleet import fleet
from tests.support.planted_fleet import CLUSTER
from tests.support.whole_nodes import both

FAULTS = {**MORE, **PLANTED}


def _named(report: Mapping[str, Any], incident: Mapping[str, Any]) -> str:
    check = report["findings"][incident["findings"][0]]["check"]
    return f"{check} {','.join(incident['subjects'])}".strip()


def _ids(faults: Iterable[str]) -> str:
    return " + ".join(faults)


def test_there_are_enough_of_them() -> None:
    assert len(ONE_NODE) + len(FLEET) >= 60
    assert len({frozenset(faults) for faults, _ in ONE_NODE}) == len(ONE_NODE)


@pytest.mark.parametrize(("faults", "expected"), ONE_NODE, ids=lambda value: _ids(value))
def test_faults_on_one_node(faults: tuple[str, ...], expected: tuple[str, ...]) -> None:
    machine = both(*(FAULTS[name] for name in faults))(hgx_h100(NODE, roce=True))
    report = whole_nodes.report(machine, whole_nodes.site(NODE))
    assert sorted(_named(report, incident) for incident in report["incidents"]) == sorted(expected)


@pytest.mark.parametrize(
    ("count", "faults", "expected"), [pytest.param(*row, id=_ids(dict.fromkeys(row[1].values()))) for row in FLEET]
)
def test_faults_of_a_fleet(count: int, faults: Mapping[int, str], expected: tuple[str, ...]) -> None:
    planted = {f"gpu{number:03d}": FAULTS[name] for number, name in faults.items()}
    documents = fleet(partial(hgx_h100, roce=True)(""), count, 7, planted)
    evidences = [from_document(document, document["node"]) for document in documents]
    report = judge(evidences, registry().checks, decode(CLUSTER.encode(), "cluster.toml"))
    given = [f"{_named(report, incident)} @{fold(incident['nodes'])}" for incident in report["incidents"]]
    assert sorted(given) == sorted(expected)


def test_random_pairs_give_what_each_fault_gives_alone() -> None:
    """``python -m tests.scenarios.incidents.random_pairs`` runs 1,000 of them."""
    assert not list(problems(40))
