"""Complete nodes: a healthy one has no finding, each planted fault gives exactly its findings."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import pytest

from preflight.evidence.document import from_document
from preflight.facts.nvidia.model import GpuFabric, Process
from preflight.facts.sharp_files import FILES as SHARP
from preflight.judge import judge
from tests.support.fixture import FIXTURES, whole_node
from tests.support.machines import hgx_h100, with_nic
from tests.support.machines.files import files
from tests.support.machines.records import ok, ran
from tests.support.machines.system import NFS
from tests.support.whole_nodes import (
    CHECKS,
    LESS_PER_GPU,
    NEED_THE_DRIVER,
    Fault,
    Table,
    both,
    env,
    gpu,
    health,
    loud,
    nic,
    node,
    record,
    site,
)

NODES = ("hgx-h100", "hgx-h100-roce")

#: Checks that skip on both: no container, the CPUs are not AMD's, a newer GPU, no job, no multi-node NVLink.
DO_NOT_APPLY = {
    "container.gpu-devices", "container.device-plugin", "container.state",
    "container.networks", "versions.compatibility", "nccl.sharp-plugin",
    "pcie.relaxed-ordering", "gpu.retired-pages", "gpu.process-per-gpu",
    "nvlink.imex",
}  # fmt: skip


@pytest.mark.parametrize("name", NODES)
def test_healthy_node_raises_nothing(name: str) -> None:
    report = judge([from_document(whole_node(name), name)], CHECKS, site(name))
    assert {finding["status"] for finding in report["findings"]} == {"pass", "skip"}
    skipped = {finding["check"] for finding in report["findings"] if finding["status"] == "skip"}
    other = {check for check in skipped if not check.startswith(("roce.", "rails.", "switch.", "counters."))}
    assert other == DO_NOT_APPLY | ({"rdma.active-mtu"} if "roce" in name else set())
    assert ("roce.chain" in skipped) == ("rails.subnets" in skipped) == (name == "hgx-h100")
    assert report["exit_status"] == 0
    assert report["nodes"][0]["part"] == "HGX H100"


@pytest.mark.parametrize("name", NODES)
def test_healthy_node_without_a_cluster_file_has_no_fail_and_no_warn(name: str) -> None:
    report = judge([from_document(whole_node(name), name)], CHECKS)
    assert not [f for f in report["findings"] if f["status"] in ("fail", "warn")]
    unknown = {f["check"] for f in report["findings"] if f["status"] == "unknown"}
    of_roce = {"roce.chain", "counters.traffic-class", "nccl.load-balancing"} if "roce" in name else set()
    assert unknown == {"rdma.device-count", "checkpoint.age", "host.inventory"} | of_roce
    assert report["exit_status"] == 3


#: Location of Python packages.
WHEELS = "/usr/local/lib/python3.10/dist-packages"

BOTH: dict[str, tuple[Fault, set[tuple[str, str, str]]]] = {
    "GPU fell off the bus": (gpu(3, on_bus=False), {("fail", "gpu.count", "")}),
    "driver lost a GPU": (gpu(3, answers=False), {("fail", "gpu.driver", "0000:61:00.0")}),
    "driver not loaded": (
        node(driver_loaded=False),
        {("fail", "gpu.driver", ""), ("unknown", "topology.nvlink", ""), ("unknown", "topology.nearest-nic", ""),
         ("unknown", "gpudirect.peer-memory", ""), ("unknown", "versions.driver-files", ""),
         *(("unknown", check, "") for check in NEED_THE_DRIVER)},
    ),
    "a GPU without NVLink": (gpu(6, nvlink=False), {
        ("fail", "topology.nvlink", "GPU6"), ("fail", "nvlink.links", "0000:d1:00.0"),
    }),
    "4211 CRC errors on one NVLink": (gpu(3, nvlink_errors={(7, "CRC Errors"): 4211}), {
        ("warn", "nvlink.errors", "0000:61:00.0"),
    }),
    "an NVLink that is trained anew": (gpu(3, nvlink_gains={(7, "Recovery Errors"): 1}), {
        ("fail", "counters.gpu-links", "0000:61:00.0"),
    }),
    "PCIe replays by the thousand": (gpu(3, replay_gain=5000), {("warn", "counters.gpu-links", "0000:61:00.0")}),
    "application clock left at half": (health(3, application_clock_mhz=1005), {("warn", "gpu.clocks", "0000:61:00.0")}),
    "port down": (nic("mlx5_5", state="DOWN", physical="Polling"), {
        LESS_PER_GPU, ("fail", "rdma.port-state", "mlx5_5:1")}),
    "slow port": (nic("mlx5_9", rate="200 Gb/sec (2X NDR)"), {LESS_PER_GPU, ("fail", "rdma.port-rate", "mlx5_9:1")}),
    "HCA without driver": (nic("mlx5_4", bound=False), {
        LESS_PER_GPU,
        ("fail", "rdma.device-count", "mlx5_4"), ("fail", "rdma.registered", ""),
        ("warn", "topology.nearest-nic", "GPU2"), ("warn", "gpudirect.path", "GPU2-mlx5_5"),
    }),
    "ACS redirects": (
        node(acs=("SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd")), {("fail", "gpudirect.path", "")},
    ),
    "ACS source validation left over": (node(acs=("SrcValid",)), {("warn", "gpudirect.path", "")}),
    "IOMMU translates": (node(iommu="DMA-FQ"), {("fail", "gpudirect.iommu", "")}),
    "no IOMMU": (node(iommu=""), set()),
    "no peer memory, old driver": (
        node(peer_modules=(), open_driver=False), {("fail", "gpudirect.peer-memory", "")},
    ),
    "no peer memory, DMA-BUF": (node(peer_modules=()), set()),
    "both peer-memory modules": (
        node(peer_modules=("nvidia_peermem", "nv_peer_mem")), {("warn", "gpudirect.peer-memory", "")},
    ),
    "ib_uverbs not loaded": (node(without_modules=("ib_uverbs",)), {("fail", "kernel.modules", "ib_uverbs")}),
    "NUMA balancing on": (node(numa_balancing=1), {("warn", "kernel.numa-balancing", "")}),
    "governor powersave": (node(governor="powersave"), {("warn", "kernel.cpu-governor", "")}),
    "clock behind": (node(clock_offset_s=-0.2), {("warn", "host.time-sync", "")}),
    "few open files": (node(open_files=1024), {("warn", "host.open-files", "")}),
    "driver upgraded without a reboot": (
        node(userland_driver="570.148.08"), {("fail", "versions.driver-files", "")},
    ),
    "empty libcuda": (node(empty_library="libcuda"), {
        ("fail", "versions.driver-files", "/usr/lib/x86_64-linux-gnu/libcuda.so.570.124.06"),
    }),
    "PyTorch for a newer driver": (
        both(record(f"file:{WHEELS}/torch-2.9.0.dist-info/INSTALLER", ok("pip\n")),
             record(f"file:{WHEELS}/torch/version.py", ok("cuda: Optional[str] = '13.0'\n"))),
        {("fail", "versions.compatibility", "torch 2.9.0")},
    ),
    "PyTorch of the driver's CUDA": (
        both(record(f"file:{WHEELS}/torch-2.8.0.dist-info/INSTALLER", ok("pip\n")),
             record(f"file:{WHEELS}/torch/version.py", ok("cuda: Optional[str] = '12.9'\n"))), set(),
    ),
    "PyTorch brought another NCCL": (node(bundled_nccl="2.21.5"), {("warn", "versions.nccl", "")}),
    "job stopped saving": (node(checkpoint_age_min=200), {("warn", "checkpoint.age", "")}),
    "memory of one node only": (node(memory_nodes="0"), {("warn", "numa.memory", "")}),
    "rank on the far socket": (
        node(env={"LOCAL_RANK": "5", "LOCAL_WORLD_SIZE": "8"}, allowed_cpus="0-6"),
        {("fail", "numa.affinity", "0000:c3:00.0")},
    ),
    "rank bound near its GPU": (
        node(env={"LOCAL_RANK": "5", "LOCAL_WORLD_SIZE": "8"}, allowed_cpus="56-69"), set(),
    ),
    "rank bound to nothing": (
        node(env={"SLURM_STEP_ID": "0", "SLURM_LOCALID": "5", "SLURM_NTASKS_PER_NODE": "8"}),
        {("warn", "numa.affinity", "")},
    ),
    "rank with one CPU": (
        node(env={"OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "8"}, allowed_cpus="1"),
        {("warn", "numa.affinity", "")},
    ),
    "NCCL leaves the mask": (
        node(env={"NCCL_IGNORE_CPU_AFFINITY": "1"}, allowed_cpus="0-60"),
        {("warn", "numa.nccl-affinity", "NCCL_IGNORE_CPU_AFFINITY")},
    ),
    "fewer ports than ranks": (
        node(env={"WORLD_SIZE": "2048"}, ports="60000\t60999\n"), {("fail", "host.local-ports", "")},
    ),
    "NIC with half its PCIe lanes": (nic("mlx5_5", lanes=8), {LESS_PER_GPU, ("fail", "pcie.nic-link", "mlx5_5")}),
    "NIC reads in small requests": (
        nic("mlx5_5", max_read_request=512), {("warn", "pcie.max-read-request", "")},
    ),
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
    "ECC off": (health(2, ecc=False, ecc_pending=False), {("fail", "gpu.ecc-mode", "0000:52:00.0")}),
    "uncorrectable error": (
        health(2, ecc_volatile_dram_uncorrected=1), {("fail", "gpu.ecc-uncorrected", "0000:52:00.0")},
    ),
    "SRAM threshold exceeded": (
        health(2, sram_threshold_exceeded=True), {("fail", "gpu.ecc-uncorrected", "0000:52:00.0")},
    ),
    "millions of correctable errors": (
        health(2, ecc_volatile_dram_corrected=30_000_000), {("warn", "gpu.ecc-corrected", "0000:52:00.0")},
    ),
    "row remapping pending": (
        health(5, remap_pending=True, remapped_uncorrected=1), {("fail", "gpu.row-remap", "0000:c3:00.0")},
    ),
    "row remapping failed": (health(5, remap_failure=True), {("fail", "gpu.row-remap", "0000:c3:00.0")}),
    "page retirement pending": (
        health(5, retired_single=1, retired_double=1, retired_pending=True),
        {("fail", "gpu.retired-pages", "0000:c3:00.0"),
         *(("unknown", "gpu.retired-pages", bus) for bus in ("0000:1b:00.0", "0000:43:00.0", "0000:52:00.0",
           "0000:61:00.0", "0000:9d:00.0", "0000:d1:00.0", "0000:df:00.0"))},
    ),
    "too hot": (
        health(0, temperature_c=87, temperature_margin_c=0, event_reasons=0x48),
        {("fail", "gpu.temperature-margin", "0000:1b:00.0"), ("fail", "gpu.throttling", "0000:1b:00.0")},
    ),
    "power brake": (health(0, event_reasons=0x88), {("fail", "gpu.throttling", "0000:1b:00.0")}),
    "power capped": (
        health(1, power_limit_w=400.0, power_enforced_w=400.0), {("warn", "gpu.power-limit", "0000:43:00.0")},
    ),
    "GPU with half its PCIe lanes": (health(1, pcie_width=8), {("fail", "gpu.pcie-link", "0000:43:00.0")}),
    "PCIe rests while idle (no fault)": (health(1, pcie_generation=1), set()),
    "persistence off": (health(7, persistence=False), {("warn", "gpu.persistence", "0000:df:00.0")}),
    "MIG left on": (
        health(7, mig=True, mig_pending=True, remapped_corrected=None, remapped_uncorrected=None, remap_pending=None,
               remap_failure=None, remap_banks=None, utilisation_pct=None, memory_utilisation_pct=None),
        {("fail", "gpu.mig", "0000:df:00.0"), ("unknown", "gpu.row-remap", "0000:df:00.0"),
         ("warn", "gpu.utilisation-visible", "")},
    ),
    "compute prohibited": (
        health(7, compute_mode="Prohibited"), {("fail", "gpu.compute-mode", "0000:df:00.0")},
    ),
    "driver asks for a reset": (
        health(4, recovery_action="Reset"), {("fail", "gpu.recovery-action", "0000:9d:00.0")},
    ),
    "process left over": (
        health(4, processes=(Process(4711, "python3", 70000),), memory_used_mib=70004),
        {("warn", "gpu.left-over-processes", "0000:9d:00.0")},
    ),
    "memory held by nobody": (health(4, memory_used_mib=70004), {("warn", "gpu.memory-headroom", "0000:9d:00.0")}),
    "busy without a process": (
        health(4, utilisation_pct=100), {("warn", "gpu.utilisation-visible", "0000:9d:00.0")},
    ),
    "another VBIOS": (health(6, vbios="96.00.89.00.01"), {("warn", "gpu.firmware", "")}),
    "driver mute about one value": (
        gpu(6, health={"ecc": None, "ecc_pending": None}), {("unknown", "gpu.ecc-mode", "0000:d1:00.0")},
    ),
    "GPU that lost a memory stack": (
        health(3, memory_total_mib=65000), {
            ("fail", "gpu.same-model", ""), ("fail", "gpu.right-part", "0000:61:00.0"),
        },
    ),
    "GPU that lost processors": (health(3, cuda_cores=16640), {("fail", "gpu.right-part", "0000:61:00.0")}),
    "GSP of another driver": (health(3, gsp="550.90.07"), {("warn", "gpu.firmware", "0000:61:00.0")}),
    "one NVLink down": (
        health(6, links=(True,) * 17 + (False,)), {("fail", "nvlink.links", "0000:d1:00.0")},
    ),
    "slow NVLinks": (health(6, link_gbytes_s=20.0), {("fail", "nvlink.links", "0000:d1:00.0")}),
    "GPU not joined to the fabric": (
        health(6, fabric=GpuFabric("In Progress", "Success", (), 0, "")),
        {("fail", "gpu.fabric-state", "0000:d1:00.0")},
    ),
    "fabric degraded": (
        health(6, fabric=GpuFabric("Completed", "Success", ("degraded bandwidth",), 0, "")),
        {("fail", "gpu.fabric-state", "0000:d1:00.0")},
    ),
    "NVSwitch off the bus": (
        lambda machine: replace(machine, nvswitches=machine.nvswitches[:-1]), {("fail", "nvlink.switches", "")},
    ),
    "fabric manager of another version": (
        node(fabric_manager_version="550.90.07"), {("fail", "nvlink.fabric-manager", "")},
    ),
    "fabric manager stopped after it joined all": (
        node(fabric_manager="inactive"), {("warn", "nvlink.fabric-manager", "")},
    ),
    "GPU off the bus in the log": (
        node(kernel_log=(
            "<4>[421000.100000] NVRM: Xid (PCI:0000:61:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off",
            "<4>[421000.200000] NVRM: Xid (PCI:0000:61:00): 154, pid='<unknown>', name=<unknown>, GPU recovery action"
            " changed from 0x0 (None) to 0x2 (Node Reboot Required)",
            "<4>[421001.000000] NVRM: Xid (PCI:0000:61:00): 45, pid=4711, name=python3, Ch 00000008",
        )),
        {("fail", "xid.gpu", "0000:61:00.0")},
    ),
    "errors of applications (no fault)": (
        node(kernel_log=(
            "<4>[421000.1] NVRM: Xid (PCI:0000:61:00): 31, pid=4711, name=python3, Ch 00000008, intr 00000000.",
            "<4>[421000.2] NVRM: Xid (PCI:0000:61:00): 43, pid=4711, name=python3, Ch 00000008",
            "<4>[421000.3] NVRM: Xid (PCI:0000:1b:00): 13, pid=4711, name=python3, Graphics SM Warp Exception",
            "<4>[421001.0] NVRM: Xid (PCI:0000:61:00): 45, pid=4711, name=python3, Ch 00000008",
        )),
        set(),
    ),
    "uncorrected memory error, and a machine check": (
        node(kernel_log=(
            "<0>[430000.100000] mce: [Hardware Error]: CPU 12: Machine Check Exception: 5 Bank 4: b200000000070005",
            "<4>[430000.200000] EDAC MC1: 1 UE memory read error on CPU_SrcID#1_MC#0_Chan#1_DIMM#0 (channel:1 slot:0)",
        )),
        {("fail", "kernel.events", "CPU 12"), ("fail", "kernel.events", "CPU_SrcID#1_MC#0_Chan#1_DIMM#0")},
    ),
    "memory error that a machine check reports too": (
        node(kernel_log=(
            "<0>[430000.100000] mce: [Hardware Error]: CPU 12: Machine Check Exception: 5 Bank 13: be00000001010091",
            "<4>[430000.200000] EDAC MC1: 1 UE memory read error on CPU_SrcID#1_MC#0_Chan#1_DIMM#0 (channel:1 slot:0)",
        )),
        {("fail", "kernel.events", "CPU 12"), ("fail", "kernel.events", "CPU_SrcID#1_MC#0_Chan#1_DIMM#0")},
    ),
    "link that came back twelve times": (
        node(kernel_log=tuple(
            f"<6>[{428000 + 300 * number}.{state == 'up':d}] mlx5_core 0000:18:00.0 ibp24s0: Link {state}"
            for number in range(12) for state in ("down", "up")
        )),
        {("warn", "kernel.events", "ibp24s0")},
    ),
    "NVMe whose file system went read-only": (
        node(kernel_log=(
            "<3>[430000.1] I/O error, dev nvme1n1, sector 123456 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 0",
            "<2>[430001.1] EXT4-fs (nvme1n1p1): Remounting filesystem read-only",
        )),
        {("fail", "kernel.events", "nvme1n1")},
    ),
    "tasks that hang, and a processor": (
        node(kernel_log=(
            "<3>[431000.1] INFO: task python3:4711 blocked for more than 120 seconds.",
            "<0>[431100.1] watchdog: BUG: soft lockup - CPU#12 stuck for 22s! [python3:4711]",
        )),
        {("warn", "kernel.events", "")},
    ),
    "NVSwitch link error": (
        node(kernel_log=(
            "<3>[421000.1] nvidia-nvswitch2: SXid (PCI:0000:08:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
            "<3>[421000.1] nvidia-nvswitch2: SXid (PCI:0000:08:00.0): 20034, Severity 1 Engine instance 30",
        )),
        {("fail", "xid.nvswitch", "0000:08:00.0")},
    ),
    "storage port up, and no list keeps NCCL off it": (
        nic("mlx5_1", state="ACTIVE", physical="LinkUp"), {("warn", "nccl.ib-hca", "NCCL_IB_HCA")},
    ),
}  # fmt: skip

INFINIBAND: dict[str, tuple[Fault, set[tuple[str, str, str]]]] = {
    "SHARP plug-in without its library": (
        record(SHARP, ran("184200 /opt/hpcx/nccl_rdma_sharp_plugin/lib/libnccl-net.so \n", 1)),
        {("warn", "nccl.sharp-plugin", "/opt/hpcx/nccl_rdma_sharp_plugin/lib/libnccl-net.so")},
    ),
    "no uverbs device": (nic("mlx5_11", uverbs=False), {
        ("fail", "rdma.device-nodes", "mlx5_11"), ("unknown", "rdma.active-mtu", "mlx5_11:1"),
    }),
    "partition left at MTU 2048": (nic("mlx5_4", partition_mtu=2048), {("fail", "rdma.active-mtu", "mlx5_4:1")}),
}  # fmt: skip

ROCE: dict[str, tuple[Fault, set[tuple[str, str, str]]]] = {
    "storage in the network of a rail": (
        record("file:/proc/self/mountinfo",
               ok("9 1 0:6 / /data rw - nfs4 192.0.2.9:/a rw,addr=10.1.0.1\n" + NFS)),
        {("fail", "storage.network", "/data")},
    ),
    "no uverbs device": (nic("mlx5_11", uverbs=False), {
        ("fail", "rdma.device-nodes", "mlx5_11"), ("unknown", "roce.chain", "mlx5_11:1"),
    }),
    "interface left at MTU 1500": (nic("mlx5_4", netdev_mtu=1500), {("fail", "roce.chain", "mlx5_4:1")}),
    "PFC off on one port, at both ends": (nic("mlx5_9", pfc=(), switch_pfc=()), {("fail", "roce.chain", "mlx5_9:1")}),
    "PFC off in the switch": (nic("mlx5_9", switch_pfc=()), {("fail", "switch.pfc", "enp192s0")}),
    "DSCP 26 on priority 0 in the switch": (
        nic("mlx5_9", switch_dscp=((26, 0),)), {("fail", "switch.dscp", "enp192s0")},
    ),
    "another DSCP on the lossless priority in the switch": (
        nic("mlx5_9", switch_dscp=((26, 3), (46, 3))), {("fail", "switch.dscp", "enp192s0")},
    ),
    "voice on a priority of its own in the switch": (nic("mlx5_9", switch_dscp=((26, 3), (46, 6))), set()),
    "the job's DSCP not announced": (nic("mlx5_9", switch_dscp=((48, 6),)), {("unknown", "switch.dscp", "")}),
    "no bandwidth for the job's class in the switch": (
        nic("mlx5_9", switch_ets=(100, 0)), {("fail", "switch.ets", "enp192s0")},
    ),
    "switch port left at 1500": (nic("mlx5_9", switch_frame=1522), {("fail", "switch.mtu", "enp192s0")}),
    "switch takes jumbo frames without tags": (nic("mlx5_9", switch_frame=9018), set()),
    "PFC on a second priority": (nic("mlx5_9", pfc=(3, 4), switch_pfc=(3, 4)), {("fail", "roce.chain", "mlx5_9:1")}),
    "ECN off on one port": (nic("mlx5_10", ecn=False), {("fail", "roce.chain", "mlx5_10:1")}),
    "two rails in one subnet": (
        lambda machine: with_nic(with_nic(machine, "mlx5_0", ip="10.9.0.1/31"), "mlx5_3", ip="10.9.0.0/31"),
        {("fail", "rails.subnets", "")},
    ),
    "two rails in one subnet, ARP set": (
        lambda machine: replace(
            with_nic(with_nic(machine, "mlx5_0", ip="10.9.0.1/31"), "mlx5_3", ip="10.9.0.0/31"), arp=(1, 2)
        ),
        set(),
    ),
    "rails not point to point": (nic("mlx5_0", ip="10.9.0.1/24"), {("fail", "rails.subnets", "")}),
    "rail without an address": (nic("mlx5_0", ip=""), {("fail", "roce.chain", "mlx5_0:1")}),
    "default route over a rail": (node(default_route="enp24s0"), {("warn", "rails.isolated", "enp24s0")}),
}  # fmt: skip

PLANTED = [(name, *case) for name in NODES for case in BOTH.items()]
PLANTED += [("hgx-h100", *case) for case in INFINIBAND.items()]
PLANTED += [("hgx-h100-roce", *case) for case in ROCE.items()]

TABLES = [
    Table("hgx-h100", hgx_h100, {**BOTH, **INFINIBAND}),
    Table("hgx-h100-roce", partial(hgx_h100, roce=True), {**BOTH, **ROCE}),
]


@pytest.mark.parametrize(("name", "fault", "case"), PLANTED, ids=lambda value: value if isinstance(value, str) else "")
def test_planted_fault(name: str, fault: str, case: tuple[Fault, set[tuple[str, str, str]]]) -> None:
    plant, expected = case
    assert loud(plant(hgx_h100(name, roce="roce" in name)), site(name)) == expected, fault


def test_rendered_files_are_up_to_date() -> None:
    for path, text in files():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run python -m tests.support.machines"


def test_node_documents_state_that_they_are_made_by_hand() -> None:
    for path in sorted((FIXTURES / "nodes").glob("*.json")):
        assert json.loads(path.read_text())["origin"].startswith(("made by hand", "recorded")), path


#: Recorded in a guest with real verbs devices: its only failures.
RECORDED = {
    "soft-roce": set[tuple[str, str]](),
    "soft-roce-mtu-1500": {("roce.chain", "rxe0:1")},
    "soft-roce-port-down": {("rdma.port-state", "rxe1:1"), ("rdma.device-nodes", "rxe0")},
}


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_guest(name: str) -> None:
    report = judge([from_document(whole_node(name), name)], CHECKS, site("soft-roce"))
    assert whole_node(name)["origin"].startswith("recorded")
    found = {(f["check"], f["subject"]) for f in report["findings"] if f["status"] == "fail"}
    assert found == RECORDED[name]
    # a small guest: its warnings are correct
    warned = {f["check"] for f in report["findings"] if f["status"] == "warn"}
    assert warned == {"host.open-files", "host.shm", "kernel.numa-balancing"}
