"""L40S cards on PCIe switches: no NVLink and no NVSwitch, two GPUs for every RoCE NIC, DMA-BUF."""

from __future__ import annotations

from dataclasses import replace

import pytest

from preflight.expectations import Cluster
from preflight.facts.nvidia.model import Process
from tests.support.machines import Machine, with_nic
from tests.support.machines.l40s import NAME, l40s_pcie
from tests.support.whole_nodes import (
    INVENTORY,
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

GPUS = tuple(f"0000:{bus:02x}:00.0" for bus in (0x18, 0x19, 0x1A, 0x1B, 0x9A, 0x9B, 0x9C, 0x9D))


def in_the_other_sockets_slot(machine: Machine) -> Machine:
    """Put both NICs of the second socket into slots of the first, each on a separate root port."""
    for device, bus in (("mlx5_4", 0x41), ("mlx5_5", 0x43)):
        machine = with_nic(machine, device, bus=bus, numa=0, above=(f"0000:{bus - 1:02x}:01.0",))
    return machine


def one_nic_for_each_socket(machine: Machine) -> Machine:
    """Make a smaller box: one NIC for four GPUs."""
    return replace(machine, nics=tuple(one for one in machine.nics if one.device not in ("mlx5_1", "mlx5_5")))


def subnets(one: str, other: str) -> Fault:
    """Set addresses of the first two rails."""
    return both(nic("mlx5_0", ip=one), nic("mlx5_1", ip=other))


FAULTS: Faults = {
    "PFC off on one port": (nic("mlx5_4", pfc=()), {("fail", "roce.chain", "mlx5_4:1")}),
    "PFC on for another priority": (nic("mlx5_4", pfc=(5,)), {("fail", "roce.chain", "mlx5_4:1")}),
    "ECN off on one port": (nic("mlx5_5", ecn=False), {("fail", "roce.chain", "mlx5_5:1")}),
    "a rail left at MTU 1500": (
        nic("mlx5_0", netdev_mtu=1500),
        {("fail", "roce.chain", "mlx5_0:1")},
    ),
    "two rails in one subnet": (subnets("10.9.0.1/24", "10.9.0.2/24"), {("fail", "rails.subnets", "")}),
    "a rail in the management subnet": (
        nic("mlx5_0", ip="192.0.2.66/26"), {("warn", "rails.isolated", "eno1np0")},
    ),
    "default route over a rail": (node(default_route="enp28s0"), {("warn", "rails.isolated", "enp28s0")}),
    "NIC in a slot of eight lanes, which still suffice": (
        nic("mlx5_1", lanes=8), {("warn", "pcie.nic-link", "mlx5_1")},
    ),
    "NIC in a PCIe 3 slot": (nic("mlx5_1", speed="8.0 GT/s PCIe"), {
        ("fail", "rdma.bandwidth-per-gpu", ""), ("fail", "pcie.nic-link", "mlx5_1")}),
    "NIC reads in small requests": (nic("mlx5_1", max_read_request=256), {("warn", "pcie.max-read-request", "")}),
    "both NICs of a socket in the other's slots": (
        in_the_other_sockets_slot,
        {*(("warn", "topology.nearest-nic", f"GPU{index}") for index in range(4, 8)),
         *(("warn", "gpudirect.path", f"GPU{index}-mlx5_5") for index in range(4, 8))},
    ),
    "compute NICs of a socket without their driver, the management NIC is no help": (
        both(nic("mlx5_0", bound=False), nic("mlx5_1", bound=False)),
        {("fail", "rdma.bandwidth-per-gpu", ""), ("fail", "rdma.device-count", ""), ("fail", "rdma.registered", ""),
         *(("warn", "topology.nearest-nic", f"GPU{index}") for index in range(4)),
         *(("warn", "gpudirect.path", f"GPU{index}-mlx5_4") for index in range(4))},
    ),
    "card with half its lanes": (health(3, pcie_width=8), {("fail", "gpu.pcie-link", GPUS[3])}),
    "card stuck at PCIe 1 under load": (
        health(3, pcie_generation=1, utilisation_pct=97, performance_state=0, event_reasons=0x04,
               processes=(Process(4711, "python3", 40000),), memory_used_mib=40300),
        {("fail", "gpu.pcie-link", GPUS[3]), ("warn", "gpu.left-over-processes", GPUS[3])},
    ),
    "ECC of the GDDR6 switched off": (
        health(4, ecc=False, ecc_pending=False, memory_total_mib=49140), {
            ("fail", "gpu.ecc-mode", GPUS[4]), ("warn", "gpu.same-model", ""),
        },
    ),
    "a card without persistence": (health(6, persistence=False), {("warn", "gpu.persistence", GPUS[6])}),
    "power capped for the rack": (
        both(*(health(index, power_limit_w=250.0, power_enforced_w=250.0) for index in range(8))),
        {("warn", "gpu.power-limit", bus) for bus in GPUS},
    ),
    "row waits for its remapping": (
        health(5, remap_pending=True, remapped_uncorrected=1), {("fail", "gpu.row-remap", GPUS[5])},
    ),
    "two cards with another VBIOS": (
        both(health(1, vbios="95.02.4c.00.01"), health(2, vbios="95.02.4c.00.01")), {("warn", "gpu.firmware", "")},
    ),
    "fan failed": (
        health(7, temperature_c=88, temperature_margin_c=-1, event_reasons=0x48),
        {("fail", "gpu.temperature-margin", GPUS[7]), ("fail", "gpu.throttling", GPUS[7])},
    ),
    "auxiliary power not connected": (
        node(kernel_log=("<4>[20.1] NVRM: Xid (PCI:0000:1b:00): 54, pid='<unknown>', name=<unknown>, Auxiliary power is"
                         " not connected to the GPU board.",)),
        {("fail", "xid.gpu", GPUS[3])},
    ),
    "card off the bus": (gpu(2, on_bus=False), {("fail", "gpu.count", "")}),
    "exclusive compute mode": (
        health(0, compute_mode="Exclusive_Process"), {("warn", "gpu.compute-mode", GPUS[0])},
    ),
    "busy without a process": (health(0, utilisation_pct=100, pcie_generation=4, performance_state=0),
                               {("warn", "gpu.utilisation-visible", GPUS[0])}),
    "proprietary modules instead of the open ones, so no DMA-BUF": (
        node(open_driver=False), {("fail", "gpudirect.peer-memory", "")},
    ),
    "ACS as the kernel sets it": (
        node(acs=("SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd")), {("fail", "gpudirect.path", "")},
    ),
    "IOMMU translates": (
        node(platform=replace(l40s_pcie().platform, boot_options="BOOT_IMAGE=/vmlinuz-6.8.0-60-generic intel_iommu=on"),
             iommu="DMA-FQ"),
        {("fail", "gpudirect.iommu", "")},
    ),
    "CPUs left out at boot": (node(boot_options="maxcpus=32"), {("warn", "kernel.boot-options", "maxcpus")}),
    "debugging of the allocator": (
        node(boot_options="slub_debug=FZP"), {("warn", "kernel.boot-options", "slub_debug")},
    ),
    "governor powersave of intel_pstate": (node(governor="powersave"), {("warn", "kernel.cpu-governor", "")}),
    "NUMA balancing on": (node(numa_balancing=1), {("warn", "kernel.numa-balancing", "")}),
    "NCCL over the management port": (
        env(NCCL_IB_HCA="=mlx5_2"),
        {("fail", "nccl.ib-hca", "NCCL_IB_HCA")},
    ),
    "NCCL_P2P_DISABLE left over": (
        env(NCCL_P2P_DISABLE="1"), {("warn", "nccl.left-over-disables", "NCCL_P2P_DISABLE")},
    ),
    "job bound to one socket": (node(allowed_cpus="0-31,64-95"), {("fail", "numa.affinity", "")}),
    "NCCL leaves the mask that keeps two jobs apart": (
        both(env(NCCL_IGNORE_CPU_AFFINITY="1"), node(allowed_cpus="0-15,32-47")),
        {("warn", "numa.nccl-affinity", "NCCL_IGNORE_CPU_AFFINITY")},
    ),
    "job stopped saving": (node(checkpoint_age_min=200), {("warn", "checkpoint.age", "")}),
    "ib_uverbs not loaded": (node(without_modules=("ib_uverbs",)), {("fail", "kernel.modules", "ib_uverbs")}),
}  # fmt: skip

#: Facts that look wrong but are right here.
SILENT: dict[str, Fault] = {
    "management port down": nic("mlx5_2", state="DOWN", physical="Polling"),
    "both management ports up": nic("mlx5_3", state="ACTIVE", physical="LinkUp", rate="25 Gb/sec (1X EDR)"),
    "a lower PCIe speed that suffices": both(*(nic(f"mlx5_{n}", speed="16.0 GT/s PCIe") for n in (0, 1, 4, 5))),
    "peer-memory module beside DMA-BUF": node(peer_modules=("nvidia_peermem",)),
    "IOMMU off": node(iommu=""),
    "cards at PCIe 4, not resting": both(
        *(health(index, pcie_generation=4, performance_state=0, sm_clock_mhz=2520) for index in range(8))
    ),
    "two rails in one subnet, ARP set": both(subnets("10.9.0.0/31", "10.9.0.1/31"), node(arp=(1, 2))),
    "display of the board switched to another port": node(boot_options="nomodeset"),
    "errors of applications": node(
        kernel_log=(
            "<4>[421000.1] NVRM: Xid (PCI:0000:1b:00): 13, pid=4711, name=python3, Graphics SM Warp Exception",
            "<4>[421000.2] NVRM: Xid (PCI:0000:1b:00): 31, pid=4711, name=python3, Ch 00000008, intr 00000000.",
        )
    ),
    "NVLink SHARP off, which no card has": env(NCCL_NVLS_ENABLE="0"),
}  # fmt: skip

TABLES = [Table(NAME, l40s_pcie, FAULTS)]


def test_healthy() -> None:
    found = report(l40s_pcie(), site(NAME))
    assert {finding["status"] for finding in found["findings"]} == {"pass", "skip"}
    assert found["exit_status"] == 0
    assert found["nodes"][0]["part"] == "L40S PCIe"
    assert silent_checks(found) == {
        "nccl.sharp-plugin", "versions.compatibility",
        "container.gpu-devices", "container.device-plugin", "container.state",
        "container.networks", "gpu.fabric-state", "gpu.mig", "gpu.process-per-gpu",
        "gpu.retired-pages", "nvlink.fabric-manager", "nvlink.switches", "nvlink.imex", "nvlink.links", "nvlink.errors",
        "pcie.relaxed-ordering", "rdma.active-mtu", "topology.nvlink", "xid.nvswitch",
    }  # fmt: skip


def test_without_a_cluster_file() -> None:
    """A box of single cards implies neither their number nor a rate; nothing fails."""
    assert loud(l40s_pcie()) == {
        ("unknown", "gpu.count", ""), ("unknown", "rdma.device-count", ""), ("unknown", "rdma.port-rate", ""),
        ("unknown", "roce.chain", ""), ("unknown", "checkpoint.age", ""), INVENTORY,
        ("unknown", "counters.traffic-class", ""),
        ("unknown", "nccl.load-balancing", ""), ("unknown", "rdma.bandwidth-per-gpu", ""),
    }  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_planted_fault(name: str) -> None:
    plant, expected = FAULTS[name]
    assert loud(plant(l40s_pcie()), site(NAME)) == expected


@pytest.mark.parametrize("name", SILENT)
def test_raises_nothing(name: str) -> None:
    nothing: Findings = set()
    assert loud(SILENT[name](l40s_pcie()), site(NAME)) == nothing


def test_one_nic_for_four_gpus_is_no_fault() -> None:
    """Reported with the shared NICs, and not blamed; but 50 Gb/s for each is less than the site needs."""
    found = report(one_nic_for_each_socket(l40s_pcie()), _site_with("mlx5_0", "mlx5_4"))
    assert {f["check"] for f in found["findings"] if f["status"] not in ("pass", "skip")} == {"rdma.bandwidth-per-gpu"}
    near = next(finding for finding in found["findings"] if finding["check"] == "topology.nearest-nic")
    assert near["message"].endswith("several GPUs share mlx5_0, mlx5_4")


def test_cards_on_the_processors_own_ports_warn_and_do_not_fail() -> None:
    """A box without PCIe switches, one NIC for both sockets: slower by design, and reported as such."""
    machine = l40s_pcie()
    cards = tuple(replace(one, above=(f"0000:{one.bus - 1:02x}:01.0",)) for one in machine.gpus)
    nics = tuple(
        replace(one, above=(f"0000:{one.bus - 1:02x}:01.0",))
        for one in machine.nics
        if one.device in ("mlx5_2", "mlx5_3", "mlx5_4")
    )
    found = report(replace(machine, gpus=cards, nics=nics), _site_with("mlx5_4"))
    urgent = {(f["status"], f["check"]) for f in found["findings"] if f["status"] not in ("pass", "skip")}
    assert urgent == {
        ("warn", "topology.nearest-nic"),
        ("warn", "gpudirect.path"),
        ("fail", "rdma.bandwidth-per-gpu"),
    }
    assert found["exit_status"] == 0
    far = {f["subject"]: f["found"] for f in found["findings"] if f["check"] == "topology.nearest-nic"}
    assert far == {f"GPU{index}": f"{'SYS' if index < 4 else 'NODE'} to mlx5_4" for index in range(8)}


def _site_with(*compute: str) -> Cluster:
    cluster = site(NAME)
    (name, members), *_ = cluster.classes.items()
    ports = replace(members.ports, compute=compute)
    return replace(cluster, classes={name: replace(members, hcas=len(compute), ports=ports)})
