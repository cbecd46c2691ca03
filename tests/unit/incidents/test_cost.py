"""Cost of an incident: the remaining share of what a job uses."""

from __future__ import annotations

import pytest

from tests.scenarios.incidents.combinations import MORE, NODE, PLANTED
from tests.support import whole_nodes
from tests.support.machines import hgx_h100


@pytest.mark.parametrize(
    ("fault", "cost"),
    [
        ("slow port", "all-reduce between nodes at about 50 %"),
        ("port down", "all-reduce between nodes at about 50 %"),  # two GPUs share a port
        ("NIC with half its PCIe lanes", "all-reduce between nodes at about 63 %"),  # 252 of 400 Gb/s
        ("one NVLink down", "all-reduce in the node at about 94 %"),
        ("GPU with half its PCIe lanes", "copies between GPU and host at about 50 %"),
        ("another application clock", "compute at about 71 %"),
        ("power brake", "compute at 50 % or less"),
        ("GPU4 too hot", "compute at 50 % or less"),  # with the hardware's slowdown
        ("power capped", None),  # the clocks at lower power depend on the job
        ("HCA without driver", "all-reduce between nodes at about 50 %"),  # its GPU uses another GPU's HCA
        ("a GPU without NVLink", None),  # PCIe carries it at an unknown rate
        ("low memlock", None),
    ],
)
def test_cost(fault: str, cost: str | None) -> None:
    machine = {**MORE, **PLANTED}[fault](hgx_h100(NODE, roce=True))
    (incident,) = whole_nodes.report(machine, whole_nodes.site(NODE))["incidents"]
    assert incident["cost"] == cost
