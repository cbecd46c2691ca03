"""Removing any check of a node makes a test fail: each detects a fault planted in a full node.

The faults are those of every table in ``tests/scenarios/test_nodes*.py`` (:func:`tests.support.whole_nodes.tables`), so
the table of a new node is included automatically.
"""

from __future__ import annotations

from collections import defaultdict

import pytest

from preflight.model import Check
from tests.support.fixture import FIXTURES
from tests.support.whole_nodes import CHECKS, Table, loud, site, tables

#: Check -> the faults that it must detect, fail and warn first, then unknown.
HITS: dict[str, list[tuple[bool, Table, str]]] = defaultdict(list)
for table in tables():
    for fault, (_plant, expected) in table.faults.items():
        for status, check, _ in expected - table.always:
            HITS[check].append((status == "unknown", table, fault))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_taking_the_check_out_is_noticed(check: Check) -> None:
    hits = sorted(HITS[check.id], key=lambda hit: hit[0])
    assert hits, f"no planted fault of any full node expects a finding of {check.id}"
    vague, table, fault = hits[0]
    assert not vague, f"planted faults only make {check.id} unsure, none makes it fail or warn"
    plant, expected = table.faults[fault]
    machine, cluster = plant(table.describe(table.node)), site(table.node)
    assert loud(machine, cluster) == expected | table.always
    others = [other for other in CHECKS if other is not check]
    assert loud(machine, cluster, others) != expected | table.always


def test_every_node_with_a_cluster_file_has_a_table() -> None:
    """A node with a cluster file is healthy by that file; a table has its faults."""
    named = {table.node for table in tables()}
    recorded = {"soft-roce"}  # recorded in a guest: test_nodes.py has its findings
    assert {path.stem for path in (FIXTURES / "nodes").glob("*.toml")} - recorded == named
