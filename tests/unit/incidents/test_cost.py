"""Cost of an incident: the remaining share of what a job uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from preflight.incidents.cost import cost_of
from tests.scenarios.incidents.combinations import MORE, NODE, PLANTED
from tests.support import whole_nodes
from tests.support.machines import hgx_h100


@pytest.mark.parametrize(
    ("fault", "cost"),
    [
        ("slow port", "all-reduce between nodes at about 50%"),
        ("port down", "all-reduce between nodes at about 50%"),  # two GPUs share a port
        ("NIC with half its PCIe lanes", "all-reduce between nodes at about 63%"),  # 252 of 400 Gb/s
        ("one NVLink down", "all-reduce in the node at about 94%"),
        ("GPU with half its PCIe lanes", "copies between GPU and host at about 50%"),
        ("another application clock", "compute at about 71%"),
        ("power brake", "compute at 50% or less"),
        ("GPU4 too hot", "compute at 50% or less"),  # with the hardware's slowdown
        ("power capped", None),  # the clocks at lower power depend on the job
        ("HCA without driver", "all-reduce between nodes at about 50%"),  # its GPU uses another GPU's HCA
        ("a GPU without NVLink", None),  # PCIe carries it at an unknown rate
        ("low memlock", None),
    ],
)
def test_cost(fault: str, cost: str | None) -> None:
    machine = {**MORE, **PLANTED}[fault](hgx_h100(NODE, roce=True))
    (incident,) = whole_nodes.report(machine, whole_nodes.site(NODE))["incidents"]
    assert incident["cost"] == cost


def node(gpus: int, nics: int) -> dict[str, Any]:
    """Return a node with one PCIe switch for each GPU."""
    switches = [
        {"gpus": [{"name": f"GPU{gpu}"}],
         "nics": [{"name": f"nic{nic}", "compute": True, "label": ""} for nic in range(nics) if nic % gpus == gpu]}
        for gpu in range(gpus)
    ]  # fmt: skip
    return {"topology": {"numa": [{"switches": switches}]}}


def finding(check: str, subject: str = "", measured: str = "", expected: str = "", on: str = "n1") -> dict[str, Any]:
    return {"check": check, "status": "fail", "subject": subject, "message": "", "found": measured,
            "expected": expected, "nodes": [on]}  # fmt: skip


def down(*numbers: int, on: str = "n1") -> list[dict[str, Any]]:
    return [finding("rdma.port-state", f"nic{number}:1", on=on) for number in numbers]


@pytest.mark.parametrize(
    ("gpus", "nics", "findings", "percent"),
    [
        (8, 8, down(3), "50"),  # two GPUs share a NIC
        (8, 8, down(3) + down(3, on="n2"), "50"),
        (8, 4, down(3), "50"),
        (8, 32, down(3), "75"),
        (8, 32, down(3, 4), "75"),  # of two GPUs
        (8, 32, down(3, 11), "50"),  # of one GPU
        (8, 32, down(3, 11, 19, 27), "50"),  # all of one GPU
        (8, 32, down(3) + down(3, 11, on="n2"), "50"),
        (8, 32, [finding("rdma.registered"), finding("rdma.bandwidth-per-gpu", "", "387.5 Gb/s", "400 Gb/s")], "75"),
        (8, 8, [finding("rdma.registered"), finding("rdma.bandwidth-per-gpu", "", "350 Gb/s", "400 Gb/s")], "50"),
        (8, 8, [finding("nvlink.links", "GPU0", "17 of 18", "18"), finding("nvlink.links", "GPU1", "12", "18")], "67"),
        # a GPU without links uses PCIe, at an unknown rate
        (8, 8, [finding("nvlink.links", "GPU0", "17", "18"), finding("nvlink.links", "GPU1", "0", "18")], None),
    ],
)
def test_cost_of_several_parts(gpus: int, nics: int, findings: Sequence[dict[str, Any]], percent: str | None) -> None:
    nodes = {"n1": node(gpus, nics), "n2": node(gpus, nics)}
    cost = cost_of(findings, ["n1", "n2"], nodes)
    assert (cost and cost.rpartition(" at about ")[2]) == (percent and f"{percent}%")


@pytest.mark.parametrize("more", [[], down(3, on="n2"), [finding("rdma.registered")]])
def test_cost_without_ports(more: Sequence[dict[str, Any]]) -> None:
    nodes = {name: node(8, 8) for name in ("n1", "n2")}
    assert cost_of([*down(*range(8)), *more], ["n1"], nodes) == "8 of 16 GPUs; all-reduce between nodes without RDMA"
