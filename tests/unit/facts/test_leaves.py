"""The leaf of a node: sweeps, LLDP, host names of logs; and unknown leaves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from preflight.evidence.document import Evidence
from preflight.expectations import Cluster
from preflight.facts.fabric import leaves
from preflight.facts.node import NodeFacts
from preflight.parsers.infiniband import ibnetdiscover
from preflight.parsers.network.lldp import LLDP
from tests.support.fabric.ibsim import fat_tree
from tests.support.fixture import whole_node

RAILS = ("leaf-a", "leaf-b", "leaf-c", "leaf-d")


@pytest.mark.parametrize(
    ("connected", "named"),
    [
        ({"a": ["s1"], "b": ["s1"], "c": ["s2"]}, {"a": "s1", "b": "s1", "c": "s2"}),
        ({"a": ["s1", "s2"], "b": ["s2", "s1"]}, {"a": "s1, s2", "b": "s1, s2"}),
        ({"a": RAILS, "b": RAILS[1:]}, dict.fromkeys("ab", "leaf-a and 3 more")),  # a port of b is down
        ({"a": ["s1", "s2"], "b": ["s1", "s3"], "c": ["s1"]}, {"a": "s1, s2", "b": "s1, s3"}),  # c: either
        ({"a": [], "b": ["s1"]}, {"b": "s1"}),
        # the short names would be the same
        (
            {"a": ["s1", "s2", "s3"], "b": ["s1", "s4", "s5"]},
            {"a": "s1, s2, s3", "b": "s1, s4, s5"},
        ),
    ],
)
def test_nodes_on_the_same_switches_are_one_group(connected: Mapping[str, Any], named: Mapping[str, str]) -> None:
    assert leaves.name_groups(connected) == named


def test_a_sweep_names_hosts_and_leaves() -> None:
    net = ibnetdiscover.parse(fat_tree(12, down=4, aggregation=True))
    assert leaves.from_sweep(net) == {f"gpu{number:03d}": f"leaf{number // 4:02d}" for number in range(12)}


def test_host_names_of_logs() -> None:
    nodes = {"gpu001.a.example": "l1", "gpu002": "l2", "GPU003": "l1"}
    assert leaves.of_hosts(["gpu001", "gpu002.b.example", "gpu003"], nodes) == {
        "gpu001": "l1", "gpu002.b.example": "l2", "gpu003": "l1",
    }  # fmt: skip
    assert leaves.of_hosts(["gpu001", "gpu009"], nodes) == {}  # not of all
    assert leaves.of_hosts(["gpu001"], {"gpu001.a.example": "l1", "gpu001.b.example": "l2"}) == {}


def _nodes(switch: Mapping[str, str], port: Mapping[str, str]) -> dict[str, str]:
    """Return the leaves of nodes whose cables all end at one switch and port."""
    facts = []
    for name, leaf in switch.items():
        document = whole_node("h100-two-ports")
        records = dict(document["records"])
        heard = json.loads(records[LLDP]["out"])
        for entry in heard["lldp"][0]["interface"]:
            entry["chassis"][0]["name"][0]["value"] = leaf
            entry["port"][0]["id"][0]["value"] = f"{port[name]}/{entry['rid']}"
        records[LLDP] = {**records[LLDP], "out": json.dumps(heard)}
        facts.append(NodeFacts(Evidence(name, "", records)))
    cluster = Cluster()
    return leaves.from_evidence(facts, lambda node: cluster.site(node).roles(node).compute)


def test_the_switches_that_lldp_names() -> None:
    assert _nodes({"a": "l1", "b": "l1", "c": "l2"}, {"a": "1", "b": "2", "c": "1"}) == {
        "a": "l1",
        "b": "l1",
        "c": "l2",
    }


def test_switches_with_one_name_are_not_one_leaf() -> None:
    """Unnamed switches use the vendor's default name, so two nodes seem to be on the same port."""
    assert _nodes({"a": "sonic", "b": "sonic"}, {"a": "1", "b": "1"}) == {}
