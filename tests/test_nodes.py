"""Whole nodes: a healthy one raises nothing, each planted fault gives exactly its findings."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from preflight.checks import MODULES, in_module
from preflight.cluster import Cluster, load
from preflight.evidence import from_document
from preflight.judge import judge
from preflight.model import Check, Scope
from tests import machines
from tests.fixture import FIXTURES, whole_node
from tests.machines import Machine, hgx_h100, with_gpu, with_nic
from tests.machines.files import files

CHECKS: list[Check] = [
    check
    for name in MODULES
    for check in in_module(__import__(f"preflight.checks.{name}", fromlist=["_"]))
    if check.scope is Scope.NODE
]

NODES = ("hgx-h100", "hgx-h100-roce")


def loud(machine: Machine, cluster: Cluster) -> set[tuple[str, str, str]]:
    """Return what a node's report says apart from passes and skips."""
    report = judge([from_document(machines.evidence(machine), machine.name)], CHECKS, cluster)
    return {
        (finding["status"], finding["check"], finding["subject"])
        for finding in report["findings"]
        if finding["status"] not in ("pass", "skip")
    }


def site(name: str) -> Cluster:
    return load(FIXTURES / "nodes" / f"{name}.toml")


@pytest.mark.parametrize("name", NODES)
def test_healthy_node_raises_nothing(name: str) -> None:
    report = judge([from_document(whole_node(name), name)], CHECKS, site(name))
    assert {finding["status"] for finding in report["findings"]} == {"pass"} | (
        {"skip"} if name == "hgx-h100" else set()
    )
    assert report["exit_status"] == 0
    assert report["nodes"][0]["part"] == "HGX H100"


@pytest.mark.parametrize("name", NODES)
def test_healthy_node_without_a_cluster_file_has_no_fail_and_no_warn(name: str) -> None:
    report = judge([from_document(whole_node(name), name)], CHECKS)
    assert not [f for f in report["findings"] if f["status"] in ("fail", "warn")]
    asks = {f["check"] for f in report["findings"] if f["status"] == "unknown"}
    assert asks == {"rdma.device-count"} | ({"roce.pfc", "roce.ecn"} if "roce" in name else set())
    assert report["exit_status"] == 3


Fault = Callable[[Machine], Machine]


def env(**variables: str) -> Fault:
    return lambda machine: replace(machine, env=variables)


def nic(device: str, **changes: Any) -> Fault:
    return lambda machine: with_nic(machine, device, **changes)


def gpu(index: int, **changes: Any) -> Fault:
    return lambda machine: with_gpu(machine, index, **changes)


def node(**changes: Any) -> Fault:
    return lambda machine: replace(machine, **changes)


BOTH: dict[str, tuple[Fault, set[tuple[str, str, str]]]] = {
    "GPU fell off the bus": (gpu(3, on_bus=False), {("fail", "gpu.count", "")}),
    "driver lost a GPU": (gpu(3, answers=False), {("fail", "gpu.driver", "0000:61:00.0")}),
    "driver not loaded": (
        node(driver_loaded=False),
        {("fail", "gpu.driver", ""), ("unknown", "topology.nvlink", ""), ("unknown", "topology.nearest-nic", "")},
    ),
    "a GPU without NVLink": (gpu(6, nvlink=False), {("fail", "topology.nvlink", "GPU6")}),
    "port down": (nic("mlx5_5", state="DOWN", physical="Polling"), {("fail", "rdma.port-state", "mlx5_5:1")}),
    "slow port": (nic("mlx5_9", rate="200 Gb/sec (2X NDR)"), {("fail", "rdma.port-rate", "mlx5_9:1")}),
    "HCA without driver": (nic("mlx5_4", bound=False), {
        ("fail", "rdma.device-count", "mlx5_4"), ("fail", "rdma.registered", ""),
        ("warn", "topology.nearest-nic", "GPU2"),
    }),
    "no uverbs device": (nic("mlx5_11", uverbs=False), {
        ("fail", "rdma.device-nodes", "mlx5_11"), ("unknown", "rdma.active-mtu", "mlx5_11:1"),
    }),
    "uverbs not usable": (nic("mlx5_0", mode="0600"), {("fail", "rdma.device-nodes", "mlx5_0")}),
    "NCCL_P2P_DISABLE left over": (
        env(NCCL_P2P_DISABLE="1"), {("fail", "nccl.left-over-disables", "NCCL_P2P_DISABLE")},
    ),
    "NCCL_IB_DISABLE left over": (env(NCCL_IB_DISABLE="1"), {("fail", "nccl.left-over-disables", "NCCL_IB_DISABLE")}),
    "NCCL_SOCKET_IFNAME of another machine": (
        env(NCCL_SOCKET_IFNAME="bond0"), {("fail", "nccl.socket-ifname", "NCCL_SOCKET_IFNAME")},
    ),
    "NCCL_IB_HCA of another machine": (env(NCCL_IB_HCA="=mlx5_20"), {("fail", "nccl.ib-hca", "NCCL_IB_HCA")}),
    "low memlock": (node(memlock="8388608"), {("fail", "host.memlock", "")}),
    "small /dev/shm": (node(shm_gib=0.0625), {("fail", "host.shm", "")}),
    "narrow port range": (node(ports="60000\t60999\n"), {("warn", "host.local-ports", "")}),
    "bound to one socket": (node(allowed_cpus="0-55"), {("fail", "numa.affinity", "")}),
    "storage port up": (nic("mlx5_1", state="ACTIVE", physical="LinkUp"), set()),
}  # fmt: skip

ROCE: dict[str, tuple[Fault, set[tuple[str, str, str]]]] = {
    "interface left at MTU 1500": (nic("mlx5_4", netdev_mtu=1500), {
        ("fail", "rdma.active-mtu", "mlx5_4:1"), ("fail", "roce.netdev-mtu", "enp79s0"),
    }),
    "PFC off on one port": (nic("mlx5_9", pfc=()), {("fail", "roce.pfc", "enp192s0")}),
    "PFC on a second priority": (nic("mlx5_9", pfc=(3, 4)), {("fail", "roce.pfc", "enp192s0")}),
    "ECN off on one port": (nic("mlx5_10", ecn=False), {("fail", "roce.ecn", "enp206s0")}),
}  # fmt: skip

PLANTED = [(name, *case) for name in NODES for case in BOTH.items()]
PLANTED += [("hgx-h100-roce", *case) for case in ROCE.items()]


@pytest.mark.parametrize(("name", "fault", "case"), PLANTED, ids=lambda value: value if isinstance(value, str) else "")
def test_planted_fault(name: str, fault: str, case: tuple[Fault, set[tuple[str, str, str]]]) -> None:
    plant, expected = case
    assert loud(plant(hgx_h100(name, roce="roce" in name)), site(name)) == expected, fault


def test_rendered_files_are_up_to_date() -> None:
    for path, text in files():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run python -m tests.machines"


def test_node_documents_say_that_they_are_made_by_hand() -> None:
    for path in sorted((FIXTURES / "nodes").glob("*.json")):
        assert json.loads(path.read_text())["origin"].startswith(("made by hand", "recorded")), path
