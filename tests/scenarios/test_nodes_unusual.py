"""Nodes of unusual design, healthy and with faults: intended differences are not reported."""

from __future__ import annotations

from dataclasses import replace

import pytest

from preflight.expectations import Cluster
from tests.support.machines import Machine
from tests.support.machines.machine import Queues
from tests.support.machines.p5 import EFA_2
from tests.support.machines.unusual import GRACE, NODES, SHARED, TWO_PORTS, gh200, h20_shared_nics, h100_two_ports
from tests.support.whole_nodes import (
    Fault,
    Faults,
    Findings,
    Table,
    both,
    gpu,
    health,
    loud,
    nic,
    node,
    report,
    site,
)


def job(**variables: str) -> Fault:
    """Add to the environment of the collecting process."""
    return lambda machine: replace(machine, env={**machine.env, **variables})


SHARED_FAULTS: Faults = {
    "a NIC without its RDMA driver": (
        nic("mlx5_bond_2", bound=False), {
            ("fail", "rdma.device-count", "mlx5_bond_2"), ("unknown", "rdma.bandwidth-per-gpu", ""),
        },
    ),
    "a bond that lost a leg": (
        nic("mlx5_bond_3", rate="200 Gb/sec (2X NDR)"), {
            ("fail", "rdma.port-rate", "mlx5_bond_3:1"), ("unknown", "rdma.bandwidth-per-gpu", ""),
        },
    ),
    "a NIC in the slot of another GPU's switch": (
        nic("mlx5_bond_4", above=("0000:f0:01.0",), bus=0xF1),
        {("warn", "topology.nearest-nic", f"GPU{index}") for index in (5, 6, 7)}
        | {("warn", "gpudirect.path", f"GPU{index}-mlx5_bond_{bond}") for index, bond in ((5, 3), (6, 3), (7, 4))},
    ),
    "a GPU capped": (
        health(2, power_limit_w=350.0, power_enforced_w=350.0), {("warn", "gpu.power-limit", "0000:43:00.0")},
    ),
    "a rail at MTU 1500": (nic("mlx5_bond_4", netdev_mtu=1500), {("fail", "roce.chain", "mlx5_bond_4:1")}),
}  # fmt: skip

TWO_PORTS_FAULTS: Faults = {
    "a port that the right list names is down": (
        nic("mlx5_10", state="DOWN", physical="Polling"), {
            ("fail", "rdma.port-state", "mlx5_10:1"), ("fail", "rdma.bandwidth-per-gpu", ""),
        },
    ),
    "one port's map forgets the DSCP": (
        nic("mlx5_6", qos=Queues(traffic_class=None, dscp_priority=((10, 1),))), {("fail", "roce.chain", "mlx5_6:1")},
    ),
    "another traffic class in the driver": (
        nic("mlx5_6", qos=Queues(traffic_class=106, dscp_priority=((10, 5), (26, 5)))),
        {("fail", "roce.chain", "mlx5_6:1")},
    ),
    "names that are prefixes": (
        job(NCCL_IB_HCA="mlx5_0,mlx5_1,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_7,mlx5_8,mlx5_9"),
        {("fail", "nccl.ib-hca", "NCCL_IB_HCA"), ("warn", "nccl.ib-hca", "NCCL_IB_HCA")},
    ),
    "the rack saves power": (health(7, event_reasons=0x88), {("fail", "gpu.throttling", "0000:cf:00.0")}),
}  # fmt: skip

GRACE_FAULTS: Faults = {
    "a port at half its rate": (
        nic("mlx5_0", rate="200 Gb/sec (4X HDR)"),
        {
            ("fail", "rdma.port-rate", "mlx5_0:1"),
            ("unknown", "rdma.bandwidth-per-gpu", ""),
        },
    ),
    "NUMA balancing on": (node(numa_balancing=1), {("warn", "kernel.numa-balancing", "")}),
    "few files may be open": (node(open_files=1024), {("warn", "host.open-files", "")}),
}

TABLES = [
    Table(SHARED, h20_shared_nics, SHARED_FAULTS),
    Table(TWO_PORTS, h100_two_ports, TWO_PORTS_FAULTS),
    Table(GRACE, gh200, GRACE_FAULTS),
]

PLANTED = [(table, name) for table in TABLES for name in table.faults]


@pytest.mark.parametrize("name", NODES)
def test_healthy(name: str) -> None:
    found = report(NODES[name][0](name), site(name))
    assert {finding["status"] for finding in found["findings"]} == {"pass", "skip"}


@pytest.mark.parametrize("name", NODES)
def test_without_a_cluster_file_nothing_warns(name: str) -> None:
    assert {status for status, *_ in loud(NODES[name][0](name))} == {"unknown"}


@pytest.mark.parametrize(("table", "name"), PLANTED, ids=lambda one: getattr(one, "node", one))
def test_planted_fault(table: Table, name: str) -> None:
    plant, expected = table.faults[name]
    assert loud(plant(table.describe(table.node)), site(table.node)) == expected


def test_shared_nics_are_reported() -> None:
    found = report(h20_shared_nics(), site(SHARED))["findings"]
    near = next(one["message"] for one in found if one["check"] == "topology.nearest-nic")
    assert near.endswith("by design, GPU1, GPU3, GPU5, GPU7 use another GPU's NIC over NVLink")


def test_an_uneven_board_without_a_cluster_file_has_lost_a_nic() -> None:
    """Seven NICs for eight GPUs, or three for eight: nothing indicates a design."""
    machine = replace(h20_shared_nics(), nics=h20_shared_nics().nics[:-1])
    assert {subject for _, check, subject in loud(machine) if check == "topology.nearest-nic"} >= {"GPU6", "GPU7"}


def test_a_fix_is_where_the_value_is_set() -> None:
    """The driver's own traffic class overrides NCCL_IB_TC, so changing the latter would have no effect."""
    plant, _ = TWO_PORTS_FAULTS["another traffic class in the driver"]
    found = report(plant(h100_two_ports()), site(TWO_PORTS))["findings"]
    broken = next(one for one in found if one["check"] == "roce.chain" and one["status"] == "fail")
    assert "echo 41 > /sys/class/infiniband/mlx5_6/tc/1/traffic_class" in broken["fix"]


def test_a_lost_gpu_takes_no_nic_with_it() -> None:
    """Its NICs are near no GPU that answers, so it is unknown whether they are the job's, and no HCA is missing."""
    cluster = site(TWO_PORTS)
    (name, members), *_ = cluster.classes.items()
    unnamed = replace(members, ports=replace(members.ports, compute=None, management=None))
    machine = replace(gpu(5, on_bus=False)(h100_two_ports()), env={"NCCL_IB_TC": "41"})
    found = _of(machine, replace(cluster, classes={name: unnamed}), "gpu.count", "rdma.device-count")
    assert found == {("fail", "gpu.count", ""), ("unknown", "rdma.device-count", "")}


def test_several_ports_for_each_gpu_add_up() -> None:
    """Without a cluster file 2 x 200 Gb/s are usual for one H100; 2 x 100 Gb/s are not."""
    machine = h100_two_ports()
    assert not _of(machine, None, "rdma.port-rate")
    slow = both(*(nic(one.device, rate="100 Gb/sec (1X NDR)") for one in machine.nics if one.gpu is not None))
    assert _of(slow(machine), None, "rdma.port-rate") == {("warn", "rdma.port-rate", "")}


def test_efa_devices_have_no_interface() -> None:
    """A device without a network interface carries no other traffic over one."""
    machine = gh200()
    efa = replace(machine.nics[0], device="rdmap3s0", here=False, layer="Unspecified", model=EFA_2)
    machine = replace(machine, nics=(efa,))
    assert not _of(machine, None, "rails.isolated")


def _of(machine: Machine, cluster: Cluster | None, *checks: str) -> Findings:
    return {one for one in loud(machine, cluster) if one[1] in checks}
