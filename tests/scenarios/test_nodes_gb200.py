"""A GB200 NVL72 compute tray: NICs on the processors by design, NVLink that leaves the node, IMEX."""

from __future__ import annotations

from dataclasses import replace

import pytest

from preflight.expectations import Cluster
from preflight.facts.nvidia.model import GpuFabric, Process
from preflight.parsers.host.services import SERVICES
from tests.support.machines import Machine
from tests.support.machines.gb200 import FABRIC, GPU_DOMAINS, NAME, gb200_tray
from tests.support.machines.platform import ONE_NODE
from tests.support.machines.records import ran
from tests.support.whole_nodes import (
    INVENTORY,
    LESS_PER_GPU,
    Fault,
    Faults,
    Table,
    both,
    env,
    gpu,
    health,
    loud,
    nic,
    node,
    report,
    site,
)

GPUS = tuple(f"{domain:04x}:01:00.0" for domain, _ in GPU_DOMAINS)


def every_gpu(**changes: object) -> Fault:
    return both(*(health(index, **changes) for index in range(4)))


FAULTS: Faults = {
    # NVLink of the rack
    "switch trays do not route (NMX-C)": (
        every_gpu(fabric=GpuFabric("In Progress", "Success", (), 0, ONE_NODE)),
        {("fail", "gpu.fabric-state", address) for address in GPUS},
    ),
    "GPU not joined to the rack's fabric": (
        health(3, fabric=GpuFabric("In Progress", "Success", (), 0, ONE_NODE)), {("fail", "gpu.fabric-state", GPUS[3])},
    ),
    "GPU in another clique": (
        health(3, fabric=replace(FABRIC, clique=32765)), {("fail", "gpu.fabric-state", GPUS[3])},
    ),
    "GPU of another rack's domain": (
        health(0, fabric=replace(FABRIC, cluster_uuid="0b1c2d3e-4f50-4617-8293-a4b5c6d7e8f9")),
        {("fail", "gpu.fabric-state", GPUS[0])},
    ),
    "route unhealthy": (
        health(1, fabric=replace(FABRIC, faults=("route unhealthy",))), {("fail", "gpu.fabric-state", GPUS[1])},
    ),
    "one NVLink down": (health(1, links=(False,) + (True,) * 17), {("fail", "nvlink.links", GPUS[1])}),
    "a GPU without NVLink": (
        gpu(1, nvlink=False), {("fail", "topology.nvlink", "GPU1"), ("fail", "nvlink.links", GPUS[1])},
    ),
    "IMEX crashed": (node(imex_state="failed"), {("fail", "nvlink.imex", "")}),
    "IMEX is not installed": (node(imex=False), {("warn", "nvlink.imex", "")}),
    "no IMEX channel": (node(imex_channel=False), {("warn", "nvlink.imex", "")}),
    "NVLink between trays switched off": (
        env(NCCL_MNNVL_ENABLE="0"), {("fail", "nccl.left-over-disables", "NCCL_MNNVL_ENABLE")},
    ),
    "GPUDirect RDMA over the processor's link switched off": (
        env(NCCL_NET_GDR_C2C="0"), {("warn", "nccl.left-over-disables", "NCCL_NET_GDR_C2C")},
    ),
    "driver asks to recover the IMEX domain": (
        both(
            health(2, recovery_action="Recover IMEX Domain"),
            node(kernel_log=(
                "<4>[421000.1] NVRM: Xid (PCI:0018:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x5"
                " (Recover IMEX Domain)",
            )),
        ),
        {("fail", "gpu.recovery-action", GPUS[2]), ("fail", "xid.gpu", GPUS[2])},
    ),
    "fatal NVLink 5 event": (
        both(
            node(kernel_log=(
                "<4>[171167.620236] NVRM: Xid (PCI:0009:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6"
                " 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)",
            )),
            health(1, recovery_action="Reset"),
        ),
        {("fail", "xid.gpu", GPUS[1]), ("fail", "gpu.recovery-action", GPUS[1])},
    ),
    # GPUs
    "GPU fell off the bus": (gpu(2, on_bus=False), {("fail", "gpu.count", "")}),
    "driver lost a GPU": (gpu(0, answers=False), {("fail", "gpu.driver", GPUS[0])}),
    "too hot": (
        health(0, temperature_c=87, temperature_margin_c=0, event_reasons=0x48),
        {("fail", "gpu.temperature-margin", GPUS[0]), ("fail", "gpu.throttling", GPUS[0])},
    ),
    "uncorrectable error": (
        health(2, ecc_volatile_sram_uncorrected=1), {("fail", "gpu.ecc-uncorrected", GPUS[2])},
    ),
    "GPU that lost a memory stack": (
        health(2, memory_total_mib=165788), {("fail", "gpu.same-model", ""), ("fail", "gpu.right-part", GPUS[2])},
    ),
    "process left over": (
        health(1, processes=(Process(4711, "python3", 150_000),), memory_used_mib=150_004),
        {("warn", "gpu.left-over-processes", GPUS[1])},
    ),
    # the compute fabric
    "port down": (nic("mlx5_4", state="DOWN", physical="Polling"), {
LESS_PER_GPU, ("fail", "rdma.port-state", "mlx5_4:1")}),
    "slow port": (nic("mlx5_0", rate="200 Gb/sec (2X NDR)"), {LESS_PER_GPU, ("fail", "rdma.port-rate", "mlx5_0:1")}),
    "device node not usable": (nic("mlx5_0", mode="0600"), {("fail", "rdma.device-nodes", "mlx5_0")}),
    "one of two HCAs of a processor without driver": (
        nic("mlx5_1", bound=False), {
            LESS_PER_GPU, ("fail", "rdma.device-count", "mlx5_1"), ("fail", "rdma.registered", "")},
    ),
    "both HCAs of a processor without driver": (
        both(nic("mlx5_4", bound=False), nic("mlx5_5", bound=False)),
        {LESS_PER_GPU, ("fail", "rdma.device-count", ""), ("fail", "rdma.registered", ""),
         ("warn", "gpudirect.path", "GPU2-mlx5_1"), ("warn", "gpudirect.path", "GPU3-mlx5_1")},
    ),
    "NIC with half its PCIe lanes": (nic("mlx5_5", lanes=8), {LESS_PER_GPU, ("fail", "pcie.nic-link", "mlx5_5")}),
    "NCCL takes the BlueFields of the node's own traffic": (
        env(NCCL_IB_HCA="^=mlx5_2,mlx5_6"),
        {("fail", "nccl.ib-hca", "NCCL_IB_HCA"), ("warn", "nccl.ib-hca", "NCCL_IB_HCA")},
    ),
    "GPU memory closed to RDMA": (node(open_driver=False), {("fail", "gpudirect.peer-memory", "")}),
    # the host
    "memory of one processor only": (node(memory_nodes="0,2,10"), {("warn", "numa.memory", "")}),
    "bound to one processor": (node(allowed_cpus="0-71"), {("fail", "numa.affinity", "")}),
    "rank on the far processor": (
        node(env={"LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "4"}, allowed_cpus="0-35"),
        {("fail", "numa.affinity", GPUS[2])},
    ),
    "governor schedutil": (node(governor="schedutil"), {("warn", "kernel.cpu-governor", "")}),
    "NUMA balancing on": (node(numa_balancing=1), {("warn", "kernel.numa-balancing", "")}),
    "low memlock": (node(memlock="8388608"), {("fail", "host.memlock", "")}),
    "driver upgraded without a reboot": (node(userland_driver="580.105.08"), {("fail", "versions.driver-files", "")}),
}  # fmt: skip


def other_matrix(machine: Machine) -> Machine:
    """Another setting of the driver: no memory nodes in the matrix."""
    return both(*(gpu(index, numa_affinity="", memory_node=None) for index in range(4)))(machine)


#: Looks wrong, but is right on a Grace tray.
SILENT: dict[str, Fault] = {
    "every NIC behind the host bridge (PHB)": node(every_path="PHB"),
    "every NIC in the same NUMA node (NODE)": node(every_path="NODE"),
    "the matrix names no NUMA nodes of GPU memory": other_matrix,
    "the SMMU translates": node(iommu="DMA-FQ", boot_options=""),
    "ACS on the root ports": node(acs=("SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd")),
    "a peer-memory module beside DMA-BUF": node(peer_modules=("nvidia_peermem",)),
    "memory may not come from the GPUs' own nodes": node(memory_nodes="0-1"),
    "NICs without relaxed ordering": both(
        *(nic(f"mlx5_{number}", relaxed_ordering=False) for number in (0, 1, 4, 5))
    ),
    "BlueFields are down": both(
        *(nic(f"mlx5_{number}", state="DOWN", physical="Disabled") for number in (2, 3, 6, 7))
    ),
    "rank bound near its GPU": node(env={"LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "4"}, allowed_cpus="72-107"),
    "corrected errors of the chip-to-chip link": node(kernel_log=(
        "<4>[421000.1] NVRM: Xid (PCI:0018:01:00): 121, pid='<unknown>', name=<unknown>, C2C Link corrected error",
    )),
    "fabric manager found no switch here and ended: it runs on the switch trays": node(records={SERVICES: ran(
        "Id=nvidia-fabricmanager.service\nLoadState=loaded\nActiveState=failed\nSubState=failed\n\n"
        "Id=nvidia-imex.service\nLoadState=loaded\nActiveState=active\nSubState=running\n"
    )}),
    "multi-node NVLink left to NCCL": env(NCCL_MNNVL_ENABLE="2", NCCL_NET_GDR_C2C="1"),
}  # fmt: skip

TABLES = [Table(NAME, gb200_tray, FAULTS)]


def test_healthy_tray_raises_nothing() -> None:
    result = report(gb200_tray(), site(NAME))
    assert {finding["status"] for finding in result["findings"]} == {"pass", "skip"}
    assert {finding["check"] for finding in result["findings"] if finding["status"] == "skip"} == {
        "gpu.retired-pages", "gpu.process-per-gpu", "nvlink.fabric-manager", "nvlink.switches", "xid.nvswitch",
        "topology.nearest-nic",
        "pcie.relaxed-ordering", "roce.chain", "rails.subnets", "counters.visible", "counters.traffic-class",
        "switch.pfc", "switch.mtu", "switch.dscp", "switch.ets",
        "nccl.sharp-plugin", "versions.compatibility",
        "container.gpu-devices", "container.device-plugin", "container.state",
        "container.networks",
    }  # fmt: skip
    assert result["exit_status"] == 0
    assert result["nodes"][0]["part"] == "GB200 tray"


def test_bluefields_are_not_compute_ports_without_a_cluster_file() -> None:
    """No NIC is near a GPU on Grace, and the default route uses a BlueField."""
    machine = gb200_tray()
    assert loud(machine, Cluster()) == {
        ("unknown", "rdma.device-count", ""),
        ("unknown", "checkpoint.age", ""),
        INVENTORY,
    }
    counted = next(f for f in report(machine, Cluster())["findings"] if f["check"] == "rdma.device-count")
    assert counted["found"] == "4"


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_fault(fault: str) -> None:
    plant, expected = FAULTS[fault]
    assert loud(plant(gb200_tray()), site(NAME)) == expected


@pytest.mark.parametrize("name", SILENT)
def test_right_on_a_grace_tray(name: str) -> None:
    assert loud(SILENT[name](gb200_tray()), site(NAME)) == set()
