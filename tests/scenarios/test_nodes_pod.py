"""A DGX H100 seen from a pod: missing devices are reported, invisible parts are not blamed."""

from __future__ import annotations

from typing import Any

import pytest

from preflight.facts.container import ANNOTATIONS, GPU_NODES
from preflight.facts.node import TOPO
from preflight.facts.nvidia.model import Process
from preflight.facts.nvidia.query import NVML, QUERY
from preflight.facts.nvidia.smi_xml import XML
from preflight.facts.pod import POD
from preflight.parsers.nvidia.nvlink_errors import NVLINK_ERRORS
from preflight.parsers.nvidia.nvlink_status import NVLINK
from tests.support.machines import Machine
from tests.support.machines.pod import HIDDEN, NAME, NETWORKS, NO_TOOL, RESOURCE, given, pod, requesting
from tests.support.machines.records import MISSING, ran
from tests.support.whole_nodes import (
    NEED_THE_DRIVER,
    Fault,
    Faults,
    Findings,
    Table,
    both,
    health,
    loud,
    nic,
    node,
    report,
    set_too,
    site,
)

#: Facts that no pod of this image can determine, as reported.
ALWAYS: frozenset[tuple[str, str, str]] = frozenset({
    ("unknown", "nvlink.fabric-manager", ""), ("unknown", "xid.gpu", ""), ("unknown", "xid.nvswitch", ""),
    ("unknown", "kernel.events", ""),
    ("unknown", "gpudirect.path", ""), ("unknown", "pcie.max-read-request", ""), ("unknown", "host.time-sync", ""),
})  # fmt: skip

RAILS = ("mlx5_0", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_9", "mlx5_10", "mlx5_11")


def records(changes: dict[str, Any]) -> Fault:
    """Replace records that the pod sees."""
    return lambda machine: node(records={**machine.records, **changes})(machine)


def attached(*networks: str) -> Fault:
    """Attach the pod to these networks."""
    return lambda machine: given(machine, networks)


NO_NVIDIA = records(
    dict.fromkeys((NVML, QUERY, XML, TOPO, NVLINK, NVLINK_ERRORS), NO_TOOL) | {GPU_NODES: ran("")}
)  # fmt: skip


def without_driver() -> Findings:
    """Unknown results in a container without the driver's tools and libraries."""
    blind = {"gpu.driver", "topology.nvlink", "topology.nearest-nic", *NEED_THE_DRIVER}
    return {("unknown", check, "") for check in blind}


def not_here(port: str) -> Findings:
    """Unknown results of a port with its interface in another network namespace."""
    counted = ("loss", "link-quality", "receiver", "visible", "congestion", "traffic-class")
    checks = ("roce.chain", *(f"counters.{name}" for name in counted), "optics.module", "optics.fec")
    return {("unknown", check, port) for check in checks}


FAULTS: Faults = {
    "pod without GPUs": (NO_NVIDIA, {("fail", "container.gpu-devices", ""), *without_driver()}),
    "nvidia-uvm was not given": (
        records({GPU_NODES: ran("".join(f"/dev/nvidia{number}\n" for number in range(8)) + "/dev/nvidiactl\n")}),
        {("fail", "container.gpu-devices", "nvidia-uvm")},
    ),
    "seven rails instead of eight": (
        both(nic("mlx5_11", here=False), attached(*NETWORKS[:7])),
        {("fail", "container.networks", ""), *not_here("mlx5_11:1")},
    ),
    "attached to the storage network instead": (
        attached("storage/fast", *NETWORKS[1:]), {("fail", "container.networks", "")},
    ),
    "annotation names an interface that is not here": (
        lambda machine: given(nic("mlx5_4", here=False)(machine), NETWORKS),
        {("fail", "container.networks", "net3"), *not_here("mlx5_4:1")},
    ),
    "annotation is not mounted": (records({ANNOTATIONS[0]: MISSING}), {("unknown", "container.networks", "")}),
    "virtual function without a GUID": (
        nic("mlx5_6", guid="0000:0000:0000:0000"), {("fail", "container.rdma-address", "mlx5_6")},
    ),
    "no rail in the pod's namespace": (
        both(*(nic(device, here=False) for device in RAILS), attached()),
        {("fail", "container.rdma-address", ""), ("fail", "container.networks", ""),
         ("unknown", "rails.subnets", ""), ("unknown", "rails.isolated", ""), *not_here("")},
    ),
    "rail without an address": (
        nic("mlx5_0", ip=""), {("fail", "roce.chain", "mlx5_0:1")},
    ),
    "no RDMA resource was asked for": (
        records({"dir:/dev/infiniband": MISSING, POD: requesting({"nvidia.com/gpu": "8"})}),
        {("fail", "rdma.device-nodes", ""), ("fail", "container.device-plugin", "")},
    ),
    "RDMA was asked for in another container": (
        records({"dir:/dev/infiniband": MISSING}),
        {("fail", "rdma.device-nodes", ""), ("fail", "container.device-plugin", "")},
    ),
    "the API does not tell": (
        records({POD: {"status": "denied", "why": "HTTP 403"}}), {("unknown", "container.device-plugin", "")},
    ),
    "killed at the memory limit, and restarted": (
        records({POD: requesting({"nvidia.com/gpu": "8", RESOURCE: "1"}, 2, "OOMKilled 137")}),
        {("warn", "container.state", "main")},
    ),
    "locked memory of a container": (node(memlock="8388608"), {("fail", "host.memlock", "")}),
    "/dev/shm of a container": (node(shm_gib=0.0625), {("fail", "host.shm", "")}),
    "CPUs of one socket": (node(allowed_cpus="0-31"), {("fail", "numa.affinity", "")}),
    "image built for a machine without NVLink": (
        set_too(NCCL_P2P_DISABLE="1"), {("fail", "nccl.left-over-disables", "NCCL_P2P_DISABLE")},
    ),
    "NCCL looks for the host's interface": (
        set_too(NCCL_SOCKET_IFNAME="eno1"), {("fail", "nccl.socket-ifname", "NCCL_SOCKET_IFNAME")},
    ),
    "interface left at MTU 1500": (
        nic("mlx5_4", netdev_mtu=1500), {("fail", "roce.chain", "mlx5_4:1")},
    ),
    "image brought another NCCL": (node(bundled_nccl="2.21.5"), {("warn", "versions.nccl", "")}),
}  # fmt: skip

#: Looks wrong, but is normal for containers.
SILENT: dict[str, Fault] = {
    "memory in use by processes of others": health(3, memory_used_mib=40_000, utilisation_pct=100),
    "ports of storage are up and without an interface": both(
        *(nic(device, state="ACTIVE", physical="LinkUp") for device in ("mlx5_1", "mlx5_2", "mlx5_7", "mlx5_8")),
        node(nccl_conf="NCCL_IB_HCA=^=mlx5_1,mlx5_2,mlx5_7,mlx5_8\n"),
    ),
    "an old CNI writes only names": records(
        {ANNOTATIONS[0]: ran(
            'k8s.v1.cni.cncf.io/networks-status="['
            + ",".join(f'{{\\"name\\": \\"{name}\\"}}' for name in NETWORKS) + ']"\n'
        )}
    ),
    "the locked memory is lifted by IPC_LOCK": both(
        node(memlock="65536"),
        records({"file:/proc/self/status": ran(
            "Name:\tpython3\nCapEff:\t0000000000004000\nCpus_allowed_list:\t0-223\nMems_allowed_list:\t0-1\n"
        )}),
    ),
}  # fmt: skip

TABLES = [Table(NAME, pod, FAULTS, ALWAYS)]


def test_healthy_pod_reports_what_it_cannot_see() -> None:
    assert loud(pod(), site(NAME)) == ALWAYS
    result = report(pod(), site(NAME))
    assert result["exit_status"] == 3
    passed = {finding["check"] for finding in result["findings"] if finding["status"] == "pass"}
    checks = ("gpu-devices", "networks", "rdma-address", "device-plugin")
    assert passed >= {f"container.{name}" for name in checks}


def test_what_is_hidden_is_all_that_is_unknown() -> None:
    """With the tools of its host the same pod is healthy."""
    machine = pod()
    host = {key: record for key, record in machine.records.items() if key not in HIDDEN}
    assert loud(node(records=host)(machine), site(NAME)) == set()


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_fault(fault: str) -> None:
    plant, expected = FAULTS[fault]
    assert loud(plant(pod()), site(NAME)) == expected | ALWAYS


@pytest.mark.parametrize("name", SILENT)
def test_the_way_of_containers(name: str) -> None:
    assert loud(SILENT[name](pod()), site(NAME)) == ALWAYS


def test_a_visible_process_is_reported() -> None:
    sick: Machine = health(3, processes=(Process(4711, "python3", 70_000),))(pod())
    assert loud(sick, site(NAME)) - ALWAYS == {("warn", "gpu.left-over-processes", "0000:61:00.0")}
