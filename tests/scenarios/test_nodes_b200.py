"""HGX B200: NVLink 5, NVSwitches behind ConnectX bridges whose ports belong to no network and raise no alarm."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from preflight.expectations import Cluster
from preflight.facts.nvidia.model import GpuFabric, Process
from tests.support.machines import Machine
from tests.support.machines.b200 import AMD, BRIDGES, COMPUTE, GPU_BUSES, NAME, hgx_b200
from tests.support.machines.platform import ONE_NODE
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

COMPUTE_LIST = ",".join(f"mlx5_{number}" for number, _ in COMPUTE)
GPUS = tuple(f"0000:{bus:02x}:00.0" for bus in GPU_BUSES)

NOT_JOINED = GpuFabric("In Progress", "Success", (), 0, ONE_NODE)


def bridges(**changes: Any) -> Fault:
    return both(*(nic(device, **changes) for device in BRIDGES))


def no_fabric(machine: Machine) -> Machine:
    """The fabric manager failed at boot, so no GPU joined."""
    return both(*(health(index, fabric=NOT_JOINED) for index in range(8)), node(fabric_manager="failed"))(machine)


FAULTS: Faults = {
    # the NVLink fabric
    "fabric manager failed at boot": (
        no_fabric, {("fail", "nvlink.fabric-manager", ""), *(("fail", "gpu.fabric-state", gpu) for gpu in GPUS)},
    ),
    "ib_umad not loaded: nvlsm reaches no switch": (
        both(no_fabric, node(without_modules=("ib_umad",))),
        {("fail", "nvlink.fabric-manager", ""), ("warn", "kernel.modules", "ib_umad"),
         *(("fail", "gpu.fabric-state", gpu) for gpu in GPUS)},
    ),
    "fabric manager stopped after it joined all": (
        node(fabric_manager="inactive"), {("warn", "nvlink.fabric-manager", "")},
    ),
    "fabric manager of another version": (
        node(fabric_manager_version="570.124.06"), {("fail", "nvlink.fabric-manager", "")},
    ),
    "GPU not joined to the fabric": (health(5, fabric=NOT_JOINED), {("fail", "gpu.fabric-state", GPUS[5])}),
    "fabric with too few NVLinks": (
        health(5, fabric=GpuFabric("Completed", "NVML error 999", (), 0, ONE_NODE)),
        {("fail", "gpu.fabric-state", GPUS[5])},
    ),
    "route unhealthy": (
        health(5, fabric=GpuFabric("Completed", "Success", ("route unhealthy",), 0, ONE_NODE)),
        {("fail", "gpu.fabric-state", GPUS[5])},
    ),
    "GPU in another partition": (
        health(2, fabric=GpuFabric("Completed", "Success", (), 1, ONE_NODE)), {("fail", "gpu.fabric-state", GPUS[2])},
    ),
    "one NVLink down": (health(7, links=(True,) * 12 + (False,) + (True,) * 5), {("fail", "nvlink.links", GPUS[7])}),
    "NVLinks trained at the rate of NVLink 4": (health(7, link_gbytes_s=26.562), {("fail", "nvlink.links", GPUS[7])}),
    "a GPU without NVLink": (
        gpu(2, nvlink=False), {("fail", "topology.nvlink", "GPU2"), ("fail", "nvlink.links", GPUS[2])},
    ),
    "fatal NVLink 5 event, driver asks for a reset": (
        both(
            node(kernel_log=(
                "<4>[421000.1] NVRM: Xid (PCI:0000:9d:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x025525c6"
                " 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)",
                "<4>[421000.4] NVRM: Xid (PCI:0000:9d:00): 45, pid=4711, name=python3, caused by previous Xid 149",
                "<4>[421000.5] NVRM: Xid (PCI:0000:9d:00): 154, GPU recovery action changed from 0x0 (None) to 0x1"
                " (GPU Reset Required)",
            )),
            health(4, recovery_action="Reset"),
        ),
        {("fail", "xid.gpu", GPUS[4]), ("fail", "gpu.recovery-action", GPUS[4])},
    ),
    "driver asks to drain peer-to-peer work": (
        health(4, recovery_action="Drain P2P"), {("fail", "gpu.recovery-action", GPUS[4])},
    ),
    "fatal event that was reset since": (
        node(kernel_log=(
            "<4>[421000.1] NVRM: Xid (PCI:0000:9d:00): 145, RLW_REMAP Fatal   XC0 i0 Link 03 (0x00000004 0x80000000"
            " 0x00000000 0x00000000 0x00000000 0x00000000)",
        )),
        {("warn", "xid.gpu", GPUS[4])},
    ),
    # GPUs
    "GPU fell off the bus": (gpu(0, on_bus=False), {("fail", "gpu.count", "")}),
    "driver lost a GPU": (gpu(6, answers=False), {("fail", "gpu.driver", GPUS[6])}),
    "GPU that lost a memory stack": (
        health(3, memory_total_mib=160437), {("fail", "gpu.same-model", ""), ("fail", "gpu.right-part", GPUS[3])},
    ),
    "power capped": (
        health(1, power_limit_w=700.0, power_enforced_w=700.0), {("warn", "gpu.power-limit", GPUS[1])},
    ),
    "5 degrees left": (health(1, temperature_margin_c=5), {("warn", "gpu.temperature-margin", GPUS[1])}),
    "row remapping pending": (
        health(1, remap_pending=True, remapped_uncorrected=1), {("fail", "gpu.row-remap", GPUS[1])},
    ),
    "MIG will be on": (health(1, mig_pending=True), {("warn", "gpu.mig", GPUS[1])}),
    "one process on all GPUs": (
        both(*(health(index, processes=(Process(4711, "python3", 500),)) for index in range(8))),
        {("warn", "gpu.process-per-gpu", ""), *(("warn", "gpu.left-over-processes", gpu) for gpu in GPUS)},
    ),
    # the compute fabric
    "port down": (nic("mlx5_9", state="DOWN", physical="Polling"), {
        LESS_PER_GPU, ("fail", "rdma.port-state", "mlx5_9:1")}),
    "no subnet manager": (nic("mlx5_9", state="INIT"), {LESS_PER_GPU, ("fail", "rdma.port-state", "mlx5_9:1")}),
    "slow port": (nic("mlx5_15", rate="200 Gb/sec (2X NDR)"), {LESS_PER_GPU, ("fail", "rdma.port-rate", "mlx5_15:1")}),
    "compute port left in Ethernet mode": (
        nic("mlx5_7", layer="Ethernet", ip=""),
        {("fail", "rdma.link-layer", "mlx5_7:1"), ("warn", "nccl.ib-hca", "NCCL_IB_HCA")},
    ),
    "HCA without driver": (nic("mlx5_8", bound=False), {
        LESS_PER_GPU,
        ("fail", "rdma.device-count", "mlx5_8"), ("fail", "rdma.registered", ""),
        ("warn", "topology.nearest-nic", "GPU2"), ("warn", "gpudirect.path", "GPU2-mlx5_9"),
        ("fail", "nccl.ib-hca", "NCCL_IB_HCA"),
    }),
    "NIC with half its PCIe lanes": (nic("mlx5_13", lanes=8), {LESS_PER_GPU, ("fail", "pcie.nic-link", "mlx5_13")}),
    "NCCL is told to take a bridge": (
        env(NCCL_IB_HCA=f"={COMPUTE_LIST},mlx5_0"), {("warn", "nccl.ib-hca", "NCCL_IB_HCA")},
    ),
    "NCCL is told to take seven of eight": (
        env(NCCL_IB_HCA="=" + COMPUTE_LIST.removesuffix(",mlx5_15")), {("fail", "nccl.ib-hca", "NCCL_IB_HCA")},
    ),
    # the host
    "AMD host, relaxed ordering off": (
        both(node(platform=AMD), *(nic(f"mlx5_{number}", relaxed_ordering=False) for number, _ in COMPUTE)),
        {("warn", "pcie.relaxed-ordering", "")},
    ),
    "AMD host, relaxed ordering off in NCCL": (
        both(node(platform=AMD), env(NCCL_IB_PCI_RELAXED_ORDERING="0")),
        {("warn", "pcie.relaxed-ordering", "NCCL_IB_PCI_RELAXED_ORDERING")},
    ),
    "boot options of a fault long gone": (
        node(boot_options="pcie_aspm=force nr_cpus=64"),
        {("warn", "kernel.boot-options", "pcie_aspm"), ("warn", "kernel.boot-options", "nr_cpus")},
    ),
    "NVLS switched off": (env(NCCL_NVLS_ENABLE="0"), {("warn", "nccl.left-over-disables", "NCCL_NVLS_ENABLE")}),
    "checkpoints are not written": (node(checkpoint_age_min=90), {("warn", "checkpoint.age", "")}),
}  # fmt: skip

#: Looks wrong, but is right on this board.
SILENT: dict[str, Fault] = {
    "ports of the bridges are down": bridges(state="DOWN", physical="Polling", rate="10 Gb/sec (4X SDR)"),
    "ports of the bridges wait for a subnet manager": bridges(state="INIT"),
    "bridges have two lanes and read in small requests": bridges(lanes=2, max_read_request=512),
    "bridges without a device node": bridges(uverbs=False),
    "limited functions of the bridges refuse registers in the log": node(kernel_log=(
        "<3>[  14.310201] mlx5_core 0000:05:00.1: mlx5_cmd_out_err:837:(pid 2417): ACCESS_REG(0x805) op_mod(0x1)"
        " failed, status bad parameter(0x3), syndrome (0x5add95), err(-22)",
    )),
    "a port of each BlueField has no cable": both(
        *(nic(device, state="DOWN", physical="Disabled", rate="40 Gb/sec (4X QDR)") for device in ("mlx5_6", "mlx5_12"))
    ),
    "NVLink 5 event that was not fatal": node(kernel_log=(
        "<4>[421000.1] NVRM: Xid (PCI:0000:9d:00): 145, RLW_SRC_TRACK Nonfatal   XC0 i0 Link -1 (0x00000004 0x00000001"
        " 0x00000000 0x00000000 0x00000000 0x00000000)",
        "<4>[421000.2] NVRM: Xid (PCI:0000:9d:00): 147, TREX Nonfatal   XC0 i0 Link -1 (0x00000003 0x00000001"
        " 0x00000000 0x00000000 0x00000000 0x00000000)",
    )),
    "PCIe and clocks rest while idle": both(
        *(health(index, pcie_generation=1, sm_clock_mhz=120, performance_state=8) for index in range(8))
    ),
    "AMD processors": node(platform=AMD),
    "no peer-memory module: DMA-BUF": node(peer_modules=()),
    "eighteen links that show 50 GB/s": both(*(health(index, link_gbytes_s=50.0) for index in range(8))),
    "the fabric health is not told": both(
        *(health(index, fabric=GpuFabric("Completed", "Success", (), None, "")) for index in range(8))
    ),
    "NCCL is told the compute ports by name": env(NCCL_IB_HCA=f"={COMPUTE_LIST}"),
}  # fmt: skip

TABLES = [Table(NAME, hgx_b200, FAULTS)]


def test_healthy_node_raises_nothing() -> None:
    result = report(hgx_b200(), site(NAME))
    assert {finding["status"] for finding in result["findings"]} == {"pass", "skip"}
    assert {finding["check"] for finding in result["findings"] if finding["status"] == "skip"} == {
        "gpu.retired-pages", "gpu.process-per-gpu", "nvlink.imex", "nvlink.switches", "xid.nvswitch",
        "pcie.relaxed-ordering",
        "roce.chain", "rails.subnets", "nccl.sharp-plugin", "versions.compatibility",
        "container.gpu-devices", "container.device-plugin", "container.state",
        "container.networks", "counters.visible",
        "counters.traffic-class", "switch.pfc", "switch.mtu", "switch.dscp", "switch.ets",
    }  # fmt: skip
    assert result["exit_status"] == 0
    assert result["nodes"][0]["part"] == "HGX B200"


def test_bridges_are_not_compute_ports_without_a_cluster_file() -> None:
    """Without a cluster file the ports nearest to a GPU count; bridges and BlueFields are near none."""
    machine = bridges(state="DOWN", physical="Disabled")(hgx_b200())
    assert loud(machine, Cluster()) == {
        ("unknown", "rdma.device-count", ""),
        ("unknown", "checkpoint.age", ""),
        INVENTORY,
    }
    counted = next(f for f in report(machine, Cluster())["findings"] if f["check"] == "rdma.device-count")
    assert counted["found"] == "8"


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_fault(fault: str) -> None:
    plant, expected = FAULTS[fault]
    assert loud(plant(hgx_b200()), site(NAME)) == expected


@pytest.mark.parametrize("name", SILENT)
def test_right_on_this_board(name: str) -> None:
    assert loud(SILENT[name](hgx_b200()), site(NAME)) == set()


def test_a_virtual_machine_leaves_the_switches_to_its_host() -> None:
    """Full passthrough: nvlsm and its ib_umad may run on the host."""
    machine = replace(hgx_b200(), where="vm", without_modules=("ib_umad",))
    assert loud(machine, site(NAME)) == set()
