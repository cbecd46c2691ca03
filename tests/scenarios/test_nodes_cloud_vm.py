"""A cloud's virtual machine: facts hidden by a flattened bus and virtual functions are unknown or skipped."""

from __future__ import annotations

from dataclasses import replace

import pytest

from preflight.facts.nvidia.model import Process
from tests.support.machines import hgx_h100
from tests.support.machines.cloud_vm import NAME, cloud_vm
from tests.support.whole_nodes import (
    INVENTORY,
    LESS_PER_GPU,
    NEED_THE_DRIVER,
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
    set_too,
    silent_checks,
    site,
)

#: Unknown results of a healthy one, as reported.
ALWAYS: frozenset[tuple[str, str, str]] = frozenset(
    {("unknown", "topology.nearest-nic", ""), ("unknown", "gpudirect.path", "")}
)

#: PCI addresses of the GPUs, each in a separate domain.
GPUS = tuple(f"{domain:04x}:00:00.0" for domain in (0x1, 0x2, 0x3, 0x4, 0xB, 0xC, 0xD, 0xE))


def without_nic(device: str) -> Fault:
    """Remove a virtual function, as a failed hot-plug does."""
    return lambda machine: replace(machine, nics=tuple(one for one in machine.nics if one.device != device))


FAULTS: Faults = {
    "virtual function without a GUID never joins": (
        nic("mlx5_ib5", guid="0000:0000:0000:0000", state="DOWN"),
        {LESS_PER_GPU, ("fail", "container.rdma-address", "mlx5_ib5"), ("fail", "rdma.port-state", "mlx5_ib5:1")},
    ),
    "virtual function waits for the subnet manager": (
        nic("mlx5_ib2", state="INIT"), {LESS_PER_GPU, ("fail", "rdma.port-state", "mlx5_ib2:1")},
    ),
    "virtual function was not handed in": (without_nic("mlx5_ib3"), {
LESS_PER_GPU, ("fail", "rdma.device-count", "mlx5_ib3")}),
    "virtual function without its RDMA driver": (
        nic("mlx5_ib3", bound=False), {
            LESS_PER_GPU, ("fail", "rdma.device-count", "mlx5_ib3"), ("fail", "rdma.registered", "")},
    ),
    "InfiniBand modules are not loaded": (
        node(without_modules=("ipmi_si", "ib_uverbs", "rdma_ucm")),
        {("fail", "kernel.modules", "ib_uverbs"), ("warn", "kernel.modules", "rdma_ucm")},
    ),
    "port at HDR100": (nic("mlx5_ib7", rate="100 Gb/sec (2X HDR)"), {
        LESS_PER_GPU, ("fail", "rdma.port-rate", "mlx5_ib7:1")}),
    "HCA names of bare metal": (set_too(NCCL_IB_HCA="=mlx5_0,mlx5_1"), {("fail", "nccl.ib-hca", "NCCL_IB_HCA")}),
    "list takes in the accelerated network interface": (
        set_too(NCCL_IB_HCA="mlx5_"),
        {("fail", "nccl.ib-hca", "NCCL_IB_HCA"), ("warn", "nccl.ib-hca", "NCCL_IB_HCA")},
    ),
    "interface of bare metal": (
        set_too(NCCL_SOCKET_IFNAME="eno1"), {("fail", "nccl.socket-ifname", "NCCL_SOCKET_IFNAME")},
    ),
    "InfiniBand switched off for a machine without": (
        set_too(NCCL_IB_DISABLE="1"),
        {("fail", "nccl.left-over-disables", "NCCL_IB_DISABLE"), ("warn", "nccl.contradictions", "NCCL_IB_DISABLE")},
    ),
    "relaxed ordering off in NCCL": (
        env(NCCL_IB_PCI_RELAXED_ORDERING="0"),
        {("warn", "pcie.relaxed-ordering", "NCCL_IB_PCI_RELAXED_ORDERING")},
    ),
    "image without nvidia_peermem": (node(peer_modules=()), {("fail", "gpudirect.peer-memory", "")}),
    "fabric manager did not come up": (node(fabric_manager="failed"), {("fail", "nvlink.fabric-manager", "")}),
    "driver updated by itself, not rebooted": (
        node(userland_driver="550.127.08"), {("fail", "versions.driver-files", "")},
    ),
    "kernel updated by itself, no driver for it": (
        node(driver_loaded=False),
        {("fail", "gpu.driver", ""), ("unknown", "topology.nvlink", ""), ("unknown", "gpudirect.peer-memory", ""),
         ("unknown", "versions.driver-files", ""), *(("unknown", check, "") for check in NEED_THE_DRIVER)},
    ),
    "GPU was not handed in": (gpu(4, on_bus=False), {("fail", "gpu.count", "")}),
    "driver lost a GPU": (
        both(
            gpu(4, answers=False),
            node(kernel_log=("<4>[421000.1] NVRM: Xid (PCI:000b:00:00): 79, pid='<unknown>', name=<unknown>, GPU has"
                             " fallen off the bus.",)),
        ),
        {("fail", "gpu.driver", GPUS[4]), ("fail", "xid.gpu", GPUS[4])},
    ),
    "NVSwitch link error": (
        node(kernel_log=("<3>[421000.1] nvidia-nvswitch2: SXid (PCI:0007:00:00.0): 20034, Fatal, Link 30",)),
        {("fail", "xid.nvswitch", "0007:00:00.0")},
    ),
    "a GPU without NVLink": (
        gpu(6, nvlink=False), {("fail", "topology.nvlink", "GPU6"), ("fail", "nvlink.links", GPUS[6])},
    ),
    "host gave a GPU with a row to remap": (
        health(1, remap_pending=True, remapped_uncorrected=1), {("fail", "gpu.row-remap", GPUS[1])},
    ),
    "ECC switched off by a tenant before": (
        health(1, ecc=False, ecc_pending=False), {("fail", "gpu.ecc-mode", GPUS[1])},
    ),
    "GPU link of the host has half its lanes": (health(2, pcie_width=8), {("fail", "gpu.pcie-link", GPUS[2])}),
    "process of an earlier job": (
        health(0, processes=(Process(4711, "python3", 30000),), memory_used_mib=30004),
        {("warn", "gpu.left-over-processes", GPUS[0])},
    ),
    "persistence off": (
        both(*(health(index, persistence=False) for index in range(8))),
        {("warn", "gpu.persistence", bus) for bus in GPUS},
    ),
    "job bound to one NUMA node": (node(allowed_cpus="0-23"), {("fail", "numa.affinity", "")}),
    "image without the HPC limits": (
        node(memlock="8388608", open_files=1024), {("fail", "host.memlock", ""), ("warn", "host.open-files", "")},
    ),
    "image with a small /dev/shm and few ports": (
        node(shm_gib=0.5, ports="60000\t60999\n"), {("fail", "host.shm", ""), ("warn", "host.local-ports", "")},
    ),
    "device node that this user may not open": (
        nic("mlx5_ib4", mode="0600"), {("fail", "rdma.device-nodes", "mlx5_ib4")},
    ),
    "PyTorch brought another NCCL than the image": (node(bundled_nccl="2.21.5"), {("warn", "versions.nccl", "")}),
    "clock stepped after a migration": (node(clock_offset_s=-1.7), {("warn", "host.time-sync", "")}),
    "default route over an InfiniBand interface": (node(default_route="ib0"), {("warn", "rails.isolated", "ib0")}),
}  # fmt: skip


def every_code(code: str) -> Fault:
    """Give every pair of GPU and NIC the same code in the matrix."""
    return node(every_path=code)


#: Facts that look wrong but are right or invisible here: nothing else becomes unknown.
SILENT: dict[str, Fault] = {
    "PHB everywhere": every_code("PHB"),
    "SYS everywhere": every_code("SYS"),
    "no topology file in this environment": env(NCCL_IB_PCI_RELAXED_ORDERING="1"),
    "no accelerated networking": without_nic("mlx5_an0"),
    "accelerated networking revoked for maintenance": nic("mlx5_an0", state="DOWN", physical="Disabled"),
    "virtual functions with link and ordering of a physical one": both(
        *(nic(f"mlx5_ib{number}", max_read_request=512, relaxed_ordering=False, lanes=16) for number in range(8))
    ),
    "hypervisor gives the GPUs PCIe 3": both(
        *(health(index, pcie_generation=3, pcie_generation_max=3) for index in range(8))
    ),
    "no relaxed ordering set: automatic": env(),
}  # fmt: skip


TABLES = [Table(NAME, cloud_vm, FAULTS, ALWAYS)]

#: Facts that the guest cannot see: the host's bridges, IOMMU and clocks, the physical functions' links.
HIDDEN = {
    "topology.nearest-nic", "gpudirect.path", "gpudirect.iommu", "pcie.nic-link", "pcie.max-read-request",
    "pcie.relaxed-ordering", "kernel.cpu-governor",
}  # fmt: skip


def test_healthy() -> None:
    result = report(cloud_vm(), site(NAME))
    assert result["nodes"][0]["part"] == "HGX A100"
    assert loud(cloud_vm(), site(NAME)) == ALWAYS
    assert result["exit_status"] == 3
    assert silent_checks(result) == HIDDEN - {check for _, check, _ in ALWAYS} | {
        "nccl.sharp-plugin", "versions.compatibility",
        "container.gpu-devices", "container.device-plugin", "container.state",
        "container.networks", "gpu.fabric-state", "gpu.process-per-gpu",
        "gpu.recovery-action", "gpu.retired-pages", "rdma.firmware", "nvlink.imex", "rails.subnets", "roce.chain",
        "counters.traffic-class", "optics.module", "optics.fec", "optics.ber",
        "switch.pfc", "switch.mtu", "switch.dscp", "switch.ets",
    }  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_planted_fault(name: str) -> None:
    plant, expected = FAULTS[name]
    assert loud(plant(cloud_vm()), site(NAME)) == expected | ALWAYS


@pytest.mark.parametrize("name", SILENT)
def test_raises_nothing(name: str) -> None:
    assert loud(SILENT[name](cloud_vm()), site(NAME)) == ALWAYS


def test_what_the_guest_cannot_see_never_passes() -> None:
    result = report(cloud_vm(), site(NAME))
    assert {result["nodes"][0]["checks"][check] for check in HIDDEN} == {"skip", "unknown"}
    path = next(finding for finding in result["findings"] if finding["check"] == "gpudirect.path")
    assert "compare that file with the provider's" in path["fix"]
    bare = report(env()(cloud_vm()), site(NAME))
    path = next(finding for finding in bare["findings"] if finding["check"] == "gpudirect.path")
    assert path["fix"] == "give NCCL the provider's topology file (NCCL_TOPO_FILE)"


def test_without_a_cluster_file_the_ethernet_function_is_not_blamed() -> None:
    """Roles are not declared, so the usual link layer decides, and eth0's function is not part of the fabric."""
    assert loud(cloud_vm()) == ALWAYS | {
        ("unknown", "rdma.device-count", ""),
        ("unknown", "checkpoint.age", ""),
        INVENTORY,
    }


@pytest.mark.parametrize("gpus", [1, 2, 4])
@pytest.mark.parametrize("hcas", [0, 1])
def test_a_part_of_the_board_without_a_cluster_file_has_no_fail_and_no_warn(gpus: int, hcas: int) -> None:
    """A smaller machine size: some of the GPUs, no visible NVSwitch, eth0's function and perhaps one HCA.

    The accelerated interface has MTU 1500, 40 Gb/s and no address: no evidence that a job uses it.
    """
    machine = cloud_vm()
    slice_ = replace(machine, gpus=machine.gpus[:gpus], nics=machine.nics[: 1 + hcas], nvswitches=(), nccl_conf="")
    if gpus == 1:
        slice_ = gpu(0, nvlink=False)(slice_)
    assert {status for status, _, _ in loud(slice_)} == {"unknown"}
    assert report(slice_)["nodes"][0]["part"] == ("4x A100 SXM" if gpus == 4 else None)


def test_without_numa_nodes() -> None:
    """A hypervisor may report no NUMA node: dependent results are unknown, unless there is only one node."""
    machine = cloud_vm()
    blind = replace(
        machine,
        gpus=tuple(replace(one, numa=-1) for one in machine.gpus),
        nics=tuple(replace(one, numa=-1) for one in machine.nics),
        platform=replace(machine.platform, nvswitch_numa=-1),
        every_path="PHB",
    )
    vague = {("unknown", "numa.affinity", ""), ("unknown", "numa.memory", "")}
    assert loud(blind, site(NAME)) == ALWAYS | vague
    few = ("warn", "numa.affinity", "")  # does not need the NUMA node
    assert loud(replace(blind, allowed_cpus="0-3"), site(NAME)) == ALWAYS | vague | {few}
    one_node = replace(blind, cpus=("0-95",), memory_nodes="0")
    assert loud(one_node, site(NAME)) == ALWAYS


def test_a_container_in_it_does_not_blame_the_bus_either() -> None:
    """A container does not show that it runs in a virtual machine; GPUs on root buses reveal it."""
    findings = loud(node(where="container")(cloud_vm()), site(NAME))
    assert findings >= ALWAYS
    assert {status for status, _, _ in findings} == {"unknown"}
    checks = report(node(where="container")(cloud_vm()), site(NAME))["nodes"][0]["checks"]
    assert {checks[check] for check in HIDDEN} == {"skip", "unknown"}


def test_switches_that_are_shown_are_judged() -> None:
    """A hypervisor may show the switches: then a GPU without a near NIC is blamed as on bare metal."""
    machine = both(node(where="vm"), nic("mlx5_4", bound=False))(hgx_h100("hgx-h100"))
    assert loud(machine, site("hgx-h100")) == {
        ("fail", "rdma.device-count", "mlx5_4"), ("fail", "rdma.registered", ""),
        ("warn", "topology.nearest-nic", "GPU2"), ("warn", "gpudirect.path", "GPU2-mlx5_5"),
        LESS_PER_GPU,
    }  # fmt: skip


def test_acs_is_the_hosts_matter() -> None:
    """A guest may see ACS on visible bridges where its host needs it: neither a fault nor a pass."""
    machine = node(where="vm", acs=("SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd"))(hgx_h100("hgx-h100"))
    result = report(machine, site("hgx-h100"))
    path = {
        finding["status"]: finding["message"] for finding in result["findings"] if finding["check"] == "gpudirect.path"
    }
    assert set(path) == {"pass", "skip"}
    assert path["skip"] == "in a virtual machine, the host controls ACS"
