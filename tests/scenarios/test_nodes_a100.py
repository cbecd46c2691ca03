"""DGX A100: NPS4, two GPUs and two NICs behind each pair of PCIe switches, no fabric state, AMD's ordering."""

from __future__ import annotations

from dataclasses import replace

import pytest

from preflight.facts.nvidia.model import Process
from tests.support.machines import Machine, with_nic
from tests.support.machines.a100 import NAME, dgx_a100
from tests.support.machines.cloud_vm import A100_40GB
from tests.support.whole_nodes import (
    INVENTORY,
    LESS_PER_GPU,
    Fault,
    Faults,
    Findings,
    Table,
    both,
    env,
    gpu,
    health,
    loud,
    nic,
    node,
    report,
    silent_checks,
    site,
)

COMPUTE = ("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "mlx5_6", "mlx5_7", "mlx5_8", "mlx5_9")

#: GPUs by index; NUMA nodes 3, 3, 1, 1, 7, 7, 5, 5.
GPUS = ("0000:07:00.0", "0000:0f:00.0", "0000:47:00.0", "0000:4e:00.0",
        "0000:87:00.0", "0000:90:00.0", "0000:b7:00.0", "0000:bd:00.0")  # fmt: skip


def each_nic(**changes: object) -> Fault:
    def plant(machine: Machine) -> Machine:
        for device in COMPUTE:
            machine = with_nic(machine, device, **changes)
        return machine

    return plant


def nps1(machine: Machine) -> Machine:
    """Give each socket one NUMA node, as the BIOS' NPS1 does."""
    gpus = tuple(replace(one, numa=one.numa // 4) for one in machine.gpus)
    nics = tuple(replace(one, numa=one.numa // 4) for one in machine.nics)
    functions = tuple(replace(one, numa=one.numa // 4) for one in machine.platform.functions)
    platform = replace(machine.platform, functions=functions, nvswitch_numa=1)
    return replace(machine, gpus=gpus, nics=nics, cpus=("0-63,128-191", "64-127,192-255"), memory_nodes="0-1",
                   platform=platform)  # fmt: skip


FAULTS: Faults = {
    "relaxed ordering off in the BIOS": (each_nic(relaxed_ordering=False), {("warn", "pcie.relaxed-ordering", "")}),
    "relaxed ordering off in NCCL": (
        env(NCCL_IB_PCI_RELAXED_ORDERING="0"),
        {("warn", "pcie.relaxed-ordering", "NCCL_IB_PCI_RELAXED_ORDERING")},
    ),
    "one NIC reads in small requests": (nic("mlx5_7", max_read_request=512), {("warn", "pcie.max-read-request", "")}),
    "fabric manager dead": (node(fabric_manager="failed"), {("fail", "nvlink.fabric-manager", "")}),
    "fabric manager left behind by a driver update": (
        node(fabric_manager_version="550.90.07"), {("fail", "nvlink.fabric-manager", "")},
    ),
    "row waits for its remapping after a contained error": (
        both(
            health(3, ecc_volatile_dram_uncorrected=1, ecc_aggregate_dram_uncorrected=1, remap_pending=True,
                   remapped_uncorrected=1, remap_banks=(639, 1, 0, 0, 0)),
            node(kernel_log=(
                "<4>[400100.1] NVRM: Xid (PCI:0000:4e:00): 63, pid='<unknown>', name=<unknown>, Row Remapper: New row"
                " marked for remapping, reset gpu to activate.",
                "<4>[400100.2] NVRM: Xid (PCI:0000:4e:00): 94, pid=4711, name=python3, Contained: SM (0x1).",
            )),
        ),
        {("fail", "gpu.ecc-uncorrected", GPUS[3]), ("fail", "gpu.row-remap", GPUS[3])},
    ),
    "row remapping failed": (
        both(
            health(6, remap_failure=True, remapped_uncorrected=8, remap_banks=(639, 0, 0, 0, 1)),
            node(kernel_log=(
                "<4>[400100.1] NVRM: Xid (PCI:0000:b7:00): 64, pid='<unknown>', name=<unknown>, Row Remapper: Failed"
                " to remap row",
            )),
        ),
        {("fail", "gpu.row-remap", GPUS[6]), ("fail", "xid.gpu", GPUS[6])},
    ),
    "memory bank without spare rows": (
        health(2, remapped_uncorrected=8, remap_banks=(639, 0, 0, 0, 1)), {("warn", "gpu.row-remap", GPUS[2])},
    ),
    "GPU off the bus": (
        both(
            gpu(5, on_bus=False),
            node(kernel_log=("<4>[421000.1] NVRM: Xid (PCI:0000:90:00): 79, pid='<unknown>', name=<unknown>, GPU has"
                             " fallen off the bus.",)),
        ),
        {("fail", "gpu.count", ""), ("fail", "xid.gpu", GPUS[5])},
    ),
    "NVSwitch link error": (
        node(kernel_log=(
            "<3>[421000.1] nvidia-nvswitch4: SXid (PCI:0000:c8:00.0): 22013, Fatal, Link 12 Minion Link DLREQ",
        )),
        {("fail", "xid.nvswitch", "0000:c8:00.0")},
    ),
    "one of twelve NVLinks down": (
        health(4, links=(True,) * 11 + (False,)), {("fail", "nvlink.links", GPUS[4])},
    ),
    "a 40 GB board among 80 GB ones": (
        health(1, memory_total_mib=40960, bar1_total_mib=65536),
        {("fail", "gpu.same-model", ""), ("fail", "gpu.right-part", GPUS[1])},
    ),
    "power capped": (
        health(7, power_limit_w=300.0, power_enforced_w=300.0), {("warn", "gpu.power-limit", GPUS[7])},
    ),
    "at its slowdown temperature": (
        health(0, temperature_c=89, event_reasons=0x48),
        {("fail", "gpu.temperature-margin", GPUS[0]), ("fail", "gpu.throttling", GPUS[0])},
    ),
    "three degrees below its slowdown temperature": (
        health(0, temperature_c=86), {("warn", "gpu.temperature-margin", GPUS[0])},
    ),
    "PCIe stuck at generation 1 under load": (
        health(2, pcie_generation=1, utilisation_pct=100, event_reasons=0, memory_used_mib=70000,
               processes=(Process(4711, "python3", 69000),)),
        {("fail", "gpu.pcie-link", GPUS[2]), ("warn", "gpu.left-over-processes", GPUS[2])},
    ),
    "one process on two GPUs": (
        both(*(health(index, processes=(Process(4711, "python3", 600),), memory_used_mib=604) for index in (0, 1))),
        {("warn", "gpu.left-over-processes", GPUS[0]), ("warn", "gpu.left-over-processes", GPUS[1]),
         ("warn", "gpu.process-per-gpu", "")},
    ),
    "MIG left on": (
        health(7, mig=True, mig_pending=True, remapped_corrected=None, remapped_uncorrected=None, remap_pending=None,
               remap_failure=None, remap_banks=None, utilisation_pct=None, memory_utilisation_pct=None),
        {("fail", "gpu.mig", GPUS[7]), ("unknown", "gpu.row-remap", GPUS[7]), ("warn", "gpu.utilisation-visible", "")},
    ),
    "no peer memory beside proprietary modules": (node(peer_modules=()), {("fail", "gpudirect.peer-memory", "")}),
    "nv_peer_mem beside its successor": (
        node(peer_modules=("nvidia_peermem", "nv_peer_mem")), {("warn", "gpudirect.peer-memory", "")},
    ),
    "booted without iommu=pt": (
        node(platform=replace(dgx_a100().platform, boot_options="BOOT_IMAGE=/boot/vmlinuz-5.15.0-1055-nvidia ro"),
             iommu="DMA-FQ"),
        {("fail", "gpudirect.iommu", "")},
    ),
    "ACS redirects above the second NIC of a switch": (
        node(acs=("SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd"), acs_on=("0000:11:00.0",)),
        {("fail", "gpudirect.path", "GPU0-mlx5_1")},
    ),
    "NIC trained at PCIe 3": (nic("mlx5_3", speed="8.0 GT/s PCIe"), {
LESS_PER_GPU, ("fail", "pcie.nic-link", "mlx5_3")}),
    "NIC with half its lanes": (nic("mlx5_3", lanes=8), {
        LESS_PER_GPU, ("fail", "pcie.nic-link", "mlx5_3")}),
    "port at HDR100": (nic("mlx5_8", rate="100 Gb/sec (2X HDR)"), {
        LESS_PER_GPU, ("fail", "rdma.port-rate", "mlx5_8:1")}),
    "port of a VPI card set to Ethernet": (
        nic("mlx5_8", layer="Ethernet"),
        {("fail", "rdma.link-layer", "mlx5_8:1"), ("warn", "nccl.ib-hca", "NCCL_IB_HCA")},
    ),
    "millions of correctable errors": (
        health(4, ecc_volatile_dram_corrected=25_000_000), {("warn", "gpu.ecc-corrected", GPUS[4])},
    ),
    "memory held by nobody": (health(4, memory_used_mib=40_000), {("warn", "gpu.memory-headroom", GPUS[4])}),
    "no subnet manager": (nic("mlx5_8", state="INIT"), {LESS_PER_GPU, ("fail", "rdma.port-state", "mlx5_8:1")}),
    "both NICs of a GPU pair gone from the RDMA stack": (
        both(nic("mlx5_0", bound=False), nic("mlx5_1", bound=False)),
        {LESS_PER_GPU, ("fail", "rdma.device-count", ""), ("fail", "rdma.registered", ""),
         ("warn", "topology.nearest-nic", "GPU0"), ("warn", "topology.nearest-nic", "GPU1"),
         ("warn", "gpudirect.path", "GPU0-mlx5_2"), ("warn", "gpudirect.path", "GPU1-mlx5_2")},
    ),
    "ranks bound by index, as if GPU 0 were near node 0": (
        both(env(LOCAL_RANK="0", LOCAL_WORLD_SIZE="8"), node(allowed_cpus="0-15,128-143")),
        {("fail", "numa.affinity", GPUS[0])},
    ),
    "memory of the GPU's node not allowed": (
        both(env(LOCAL_RANK="0", LOCAL_WORLD_SIZE="8"), node(allowed_cpus="48-63,176-191", memory_nodes="0")),
        {("warn", "numa.memory", GPUS[0])},
    ),
    "prefix takes in the storage ports": (
        env(NCCL_IB_HCA="mlx5"),
        {("fail", "nccl.ib-hca", "NCCL_IB_HCA"), ("warn", "nccl.ib-hca", "NCCL_IB_HCA"),
         ("warn", "nccl.ib-hca", "mlx5_5:1"), ("warn", "nccl.ib-hca", "mlx5_11:1")},
    ),
    "interrupts without MSI": (node(boot_options="pci=nomsi"), {("warn", "kernel.boot-options", "pci")}),
    "governor ondemand": (node(governor="ondemand"), {("warn", "kernel.cpu-governor", "")}),
}  # fmt: skip

#: Facts that look wrong but are right here.
SILENT: dict[str, Fault] = {
    "NPS1 instead of NPS4": nps1,
    "an InfiniBand fabric without the storage network": both(
        nic("mlx5_4", state="DOWN", physical="Polling"), nic("mlx5_10", state="DOWN", physical="Polling")
    ),
    "storage ports at 25 Gb/s": both(
        nic("mlx5_4", rate="25 Gb/sec (1X EDR)"), nic("mlx5_10", rate="25 Gb/sec (1X EDR)")
    ),
    "rows remapped and active, errors of its life": health(
        3, remapped_corrected=2, remapped_uncorrected=9, remap_banks=(634, 6, 0, 0, 0),
        ecc_aggregate_dram_uncorrected=9, ecc_aggregate_dram_corrected=120, ecc_volatile_dram_corrected=3,
    ),
    "power cap and clocks of an application": health(3, event_reasons=0x06),
    "IOMMU off": node(iommu=""),
    "DMA-BUF instead of a peer-memory module": node(open_driver=True, peer_modules=()),
    "eight boards of 40 GB": node(
        gpu_id="20B0", gpu_name="NVIDIA A100-SXM4-40GB", platform=replace(dgx_a100().platform, gpu=A100_40GB)
    ),
    "relaxed ordering forced in NCCL": env(NCCL_IB_PCI_RELAXED_ORDERING="1"),
    "rank of GPU 0 bound to NUMA node 3": both(
        env(LOCAL_RANK="0", LOCAL_WORLD_SIZE="8"), node(allowed_cpus="48-63,176-191", memory_nodes="3")
    ),
    "compute ports named exactly": env(NCCL_IB_HCA="=" + ",".join(COMPUTE)),
}  # fmt: skip

TABLES = [Table(NAME, dgx_a100, FAULTS)]


def test_healthy() -> None:
    found = report(dgx_a100(), site(NAME))
    assert {finding["status"] for finding in found["findings"]} == {"pass", "skip"}
    assert found["exit_status"] == 0
    assert found["nodes"][0]["part"] == "HGX A100"
    assert silent_checks(found) == {
        "nccl.sharp-plugin", "versions.compatibility",
        "container.gpu-devices", "container.device-plugin", "container.state",
        "container.networks", "gpu.fabric-state", "gpu.process-per-gpu",
        "gpu.recovery-action", "gpu.retired-pages", "nvlink.imex", "rails.subnets", "roce.chain",
        "counters.traffic-class", "switch.pfc", "switch.mtu", "switch.dscp", "switch.ets",
    }  # fmt: skip


def test_without_a_cluster_file() -> None:
    assert loud(dgx_a100()) == {
        ("unknown", "rdma.device-count", ""), ("unknown", "checkpoint.age", ""), INVENTORY,
    }  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_planted_fault(name: str) -> None:
    plant, expected = FAULTS[name]
    assert loud(plant(dgx_a100()), site(NAME)) == expected


@pytest.mark.parametrize("name", SILENT)
def test_raises_nothing(name: str) -> None:
    nothing: Findings = set()
    assert loud(SILENT[name](dgx_a100()), site(NAME)) == nothing


def test_every_nic_is_judged_with_a_gpu_that_is_near() -> None:
    """Two NICs are equally near to two GPUs: both are listed, not the first one twice."""
    path = next(f for f in report(dgx_a100(), site(NAME))["findings"] if f["check"] == "gpudirect.path")
    assert {pair.split()[0].split("-")[1] for pair in path["found"].split(", ")} == set(COMPUTE)
