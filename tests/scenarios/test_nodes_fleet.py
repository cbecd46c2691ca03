"""A healthy fleet has no finding; one differing value on one node gives exactly its finding.

The values must be equal on nodes of a kind, unique, or equal within a rail.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from preflight.checks import registry
from preflight.evidence.document import Evidence, from_document
from preflight.expectations import Cluster
from preflight.expectations.cluster_file import decode
from preflight.facts.node import NodeFacts
from preflight.facts.nvidia.model import GpuFabric
from preflight.facts.system_settings import CPUINFO
from preflight.judge import findings, judge
from preflight.model import Scope
from tests.support.machines import Machine, evidence, hgx_h100, with_gpu, with_nic
from tests.support.machines.a100 import dgx_a100
from tests.support.machines.b200 import hgx_b200
from tests.support.machines.fleet import machines
from tests.support.machines.gb200 import gb200_tray
from tests.support.machines.hcas import guid
from tests.support.machines.l40s import l40s_pcie
from tests.support.machines.records import MISSING, ok
from tests.support.whole_nodes import Fault, Findings, Table, every_gpu, every_rail, gpu, nic, node, record, setting

#: Its planted faults are of fleets, not of nodes.
TABLES: list[Table] = []

#: Facts that only the site knows and no evidence shows; these are not gating.
ONLY_THE_SITE = {"host.inventory", "nccl.load-balancing", "rdma.bandwidth-per-gpu"}

COUNT, ODD = 5, "gpu003"

OF_FLEETS = [check for check in registry().checks if check.scope is Scope.FLEET]
OF_NODES = [check for check in registry().checks if check.scope is Scope.NODE]

KINDS: dict[str, Callable[[str], Machine]] = {
    "h100": lambda name: hgx_h100(name),
    "roce": lambda name: hgx_h100(name, roce=True),
    "gb200": gb200_tray,
    "a100": dgx_a100,
    "b200": hgx_b200,
    "l40s": l40s_pcie,
    "subnets": lambda name: hgx_h100(name, roce=True),
    "torch": lambda name: replace(hgx_h100(name), records=_torch("2.8.0")),
}


@cache
def fleet(kind: str, count: int = COUNT) -> tuple[Machine, ...]:
    found = machines(KINDS[kind](kind), count, seed=7)
    return tuple(_switched(machine) for machine in found) if kind == "subnets" else tuple(found)


def _switched(machine: Machine) -> Machine:
    """Give each rail a subnet shared by all nodes."""
    rails = [one.device for one in machine.nics if one.gpu is not None]
    for rail, device in enumerate(rails):
        machine = with_nic(machine, device, ip=f"10.{rail}.0.{machine.number}/24")
    return machine


@cache
def documents(kind: str, count: int = COUNT) -> tuple[Evidence, ...]:
    return tuple(from_document(evidence(machine), machine.name) for machine in fleet(kind, count))


@cache
def learnt(kind: str, count: int = COUNT) -> Cluster:
    from preflight.learn import learn

    return decode(learn(documents(kind, count)).text.encode(), "cluster.toml")


def planted(kind: str, fault: Fault, odd: Sequence[str] = (ODD,)) -> list[Evidence]:
    """Return the fleet with a fault on some of its nodes."""
    found = list(documents(kind))
    for place, machine in enumerate(fleet(kind)):
        if machine.name in odd:
            found[place] = from_document(evidence(fault(machine)), machine.name)
    return found


def loud(evidences: Sequence[Evidence], cluster: Cluster) -> list[dict[str, Any]]:
    """Return a report's findings on a fleet, other than passes and skips."""
    judged = findings(evidences, [*OF_NODES, *OF_FLEETS], cluster)
    return [one for one in judged if one["status"] not in ("pass", "skip") and one["check"] not in ONLY_THE_SITE]


def platform(**changes: Any) -> Fault:
    return lambda machine: replace(machine, platform=replace(machine.platform, **changes))


def qos(**changes: Any) -> Fault:
    """Change the RoCE settings of all compute ports."""

    def plant(machine: Machine) -> Machine:
        nics = tuple(
            replace(one, qos=replace(one.qos, **changes)) if one.gpu is not None else one for one in machine.nics
        )
        return replace(machine, nics=nics)

    return plant


def firmware(version: str) -> Fault:
    """Give all NICs of the compute NICs' board different firmware."""

    def plant(machine: Machine) -> Machine:
        boards = {nic.model.board_id for nic in machine.nics if nic.gpu is not None}
        nics = tuple(
            replace(one, model=replace(one.model, firmware=version)) if one.model.board_id in boards else one
            for one in machine.nics
        )
        return replace(machine, nics=nics)

    return plant


def _renamed(names: dict[str, str]) -> Fault:
    """Rename RDMA devices."""
    return lambda machine: replace(
        machine, nics=tuple(replace(one, device=names.get(one.device, one.device)) for one in machine.nics)
    )


TORCH = "file:/opt/venv/lib/python3.12/site-packages/torch-{}.dist-info/INSTALLER"
BUILT = "file:/opt/venv/lib/python3.12/site-packages/torch/version.py"


def _torch(version: str) -> dict[str, Any]:
    """Return the records of an installed PyTorch."""
    return {TORCH.format(version): ok("pip\n"), BUILT: ok("cuda: Optional[str] = '12.8'\n")}


_EQUAL = "/sys/kernel/mm/transparent_hugepage/enabled"

#: Values that must be equal: name -> kind of node, the fault, the one finding.
EQUAL: dict[str, tuple[str, Fault, Findings]] = {
    "driver": ("h100", node(driver="570.86.10"), {("fail", "fleet.driver-equal", "")}),
    "kernel driver flavour": (
        "h100", node(open_driver=False), {("warn", "fleet.software", "NVIDIA kernel modules")},
    ),
    "CUDA toolkit": (
        "h100", setting("/usr/local/cuda/version.json", '{"cuda": {"version": "12.4.1"}}'),
        {("warn", "fleet.software", "CUDA toolkit")},
    ),
    "no CUDA toolkit": (
        "h100", record("file:/usr/local/cuda/version.json", MISSING), {("warn", "fleet.software", "CUDA toolkit")},
    ),
    "PyTorch": (
        "torch", lambda m: replace(m, records=_torch("2.7.0")),
        {("fail", "fleet.software", "PyTorch")},
    ),
    "NVIDIA container toolkit": (
        "h100", setting("cmd:nvidia-ctk --version", "NVIDIA Container Toolkit CLI version 1.14.3\n"),
        {("warn", "fleet.software", "NVIDIA container toolkit")},
    ),
    "OFED": (
        "h100", setting("cmd:ofed_info -s", "MLNX_OFED_LINUX-5.8-1.1.2.1:\n"),
        {("warn", "fleet.software", "OFED or DOCA")},
    ),
    "mlx5_core": (
        "h100", setting("/sys/module/mlx5_core/version", "23.10-1.1.9"), {("warn", "fleet.software", "mlx5_core")},
    ),
    "NIC firmware": (
        "h100", firmware("28.39.1002"), {("warn", "fleet.firmware", "firmware of NICs MT_0000000838")},
    ),
    "VBIOS": ("h100", every_gpu(vbios="96.00.61.00.01"), {("warn", "fleet.firmware", "VBIOS")}),
    "InfoROM": ("h100", every_gpu(inforom="G520.0200.00.03"), {("warn", "fleet.firmware", "InfoROM")}),
    "GSP": ("h100", every_gpu(gsp="570.86.10"), {("warn", "gpu.firmware", "")}),
    "BIOS": ("h100", setting("/sys/class/dmi/id/bios_version", "1.05.03"), {("warn", "fleet.host", "BIOS version")}),
    "server model": (
        "h100", setting("/sys/class/dmi/id/product_name", "another server"), {("warn", "fleet.host", "server model")},
    ),
    "CPU model": (
        "h100", setting(CPUINFO, "model name\t: Intel(R) Xeon(R) 8468\nmicrocode\t: 0x2b0005c0\n"),
        {("warn", "fleet.host", "CPU model")},
    ),
    "microcode": (
        "h100", setting(CPUINFO,
                        "model name\t: Intel(R) Xeon(R) Platinum 8480C\nmicrocode\t: 0x2b000461\n"),
        {("warn", "fleet.host", "CPU microcode")},
    ),
    "sockets": (
        "h100", setting("/sys/devices/system/cpu/cpu60/topology/physical_package_id", "0"),
        {("warn", "fleet.host", "CPU sockets")},
    ),
    "memory": (
        "h100", setting("/proc/meminfo", "MemTotal:       1981557926 kB"), {("fail", "node.expected", "")},
    ),
    "kernel release": (
        "h100", platform(kernel="5.15.0-1070-nvidia"), {("warn", "fleet.host", "kernel release")},
    ),
    "kernel's command line": (
        "h100", node(boot_options="mitigations=off hugepages=64"), {("warn", "fleet.host", "boot options")},
    ),
    "transparent huge pages": (
        "h100", setting(_EQUAL, "[always] madvise never"), {("warn", "fleet.host", "transparent huge pages")},
    ),
    "huge pages": (
        "h100", setting("/proc/sys/vm/nr_hugepages", "512"), {("warn", "fleet.host", "reserved huge pages")},
    ),
    "governor": ("h100", node(governor="powersave"), {("warn", "kernel.cpu-governor", "")}),
    "numa_balancing": ("h100", node(numa_balancing=1), {("warn", "kernel.numa-balancing", "")}),
    "rmem_max": ("h100", setting("/proc/sys/net/core/rmem_max", "67108864"), {("warn", "fleet.host", "rmem_max")}),
    "wmem_max": ("h100", setting("/proc/sys/net/core/wmem_max", "67108864"), {("warn", "fleet.host", "wmem_max")}),
    "tcp_rmem": ("h100", setting("/proc/sys/net/ipv4/tcp_rmem", "4096 87380 1"), {("warn", "fleet.host", "tcp_rmem")}),
    "tcp_wmem": ("h100", setting("/proc/sys/net/ipv4/tcp_wmem", "4096 87380 1"), {("warn", "fleet.host", "tcp_wmem")}),
    "port range": ("h100", node(ports="20000\t60999\n"), {("warn", "fleet.host", "ephemeral ports")}),
    "RDMA namespaces": (
        "h100", setting("/sys/module/ib_core/parameters/netns_mode", "N"),
        {("warn", "fleet.host", "RDMA network namespaces")},
    ),
    "memlock": ("h100", node(memlock="8388608"), {("fail", "host.memlock", "")}),
    "arp_ignore, arp_announce": (
        "roce", node(arp=(1, 2)),
        {("warn", "fleet.host", "arp_ignore of the rails"), ("warn", "fleet.host", "arp_announce of the rails")},
    ),
    "rp_filter": (
        "roce", record("file:/proc/sys/net/ipv4/conf/enp24s0/rp_filter", ok("3\n")),
        {("warn", "fleet.host", "rp_filter of the rails")},
    ),
    "GPU memory": (
        "h100", every_gpu(memory_total_mib=65248, memory_reserved_mib=551),
        {("fail", "gpu.right-part", "")},
    ),
    "GPU count": ("h100", gpu(3, on_bus=False), {("fail", "gpu.count", "")}),
    "ECC": ("h100", every_gpu(ecc=False, ecc_pending=False), {("fail", "gpu.ecc-mode", "")}),
    "MIG": ("h100", every_gpu(mig=True, mig_pending=True), {("fail", "gpu.mig", "")}),
    "persistence": ("h100", every_gpu(persistence=False), {("warn", "gpu.persistence", "")}),
    "compute mode": ("h100", every_gpu(compute_mode="Exclusive_Process"), {("warn", "gpu.compute-mode", "")}),
    "power limit": ("h100", every_gpu(power_limit_w=500.0, power_enforced_w=500.0), {("warn", "gpu.power-limit", "")}),
    "power limit and its default": (
        "h100", every_gpu(power_limit_w=650.0, power_enforced_w=650.0, power_default_w=650.0),
        {("warn", "fleet.gpu-settings", "power limit")},
    ),
    "application clock": (
        "h100", every_gpu(application_clock_mhz=1410), {("warn", "gpu.clocks", "")},
    ),
    "highest clock": (
        "h100", every_gpu(sm_clock_max_mhz=1755), {("warn", "fleet.gpu-settings", "highest SM clock")},
    ),
    "names of RDMA devices": (
        "h100", _renamed({"mlx5_0": "mlx5_3", "mlx5_3": "mlx5_0"}),
        {("fail", "fleet.nic-settings", "RDMA devices and their PCI addresses")},
    ),
    "ACS": ("h100", node(acs=("SrcValid",)), {("warn", "gpudirect.path", "")}),
    "MaxReadReq": ("h100", every_rail(max_read_request=512), {("warn", "pcie.max-read-request", "")}),
    "peer memory": (
        "h100", node(peer_modules=("nv_peer_mem",)), {("warn", "fleet.nic-settings", "path to GPU memory")},
    ),
    "link layer": ("h100", nic("mlx5_0", layer="Ethernet", ip=""), {("fail", "rdma.link-layer", "")}),
    "netdev MTU": ("roce", every_rail(netdev_mtu=4200), {("fail", "roce.chain", "")}),
    "active MTU": ("h100", every_rail(partition_mtu=2048), {("fail", "rdma.active-mtu", "")}),
    "traffic class": ("roce", qos(traffic_class=104), {("warn", "fleet.roce-equal", "")}),
    "CNP's DSCP": ("roce", qos(cnp_dscp=46), {("warn", "fleet.roce-equal", "")}),
    "DCQCN": ("roce", qos(dcqcn=(("ai_rate", 20),)), {("warn", "fleet.roce-equal", "")}),
    "DSCP map": ("roce", qos(dscp_priority=((12, 5),)), {("warn", "fleet.roce-ports", "priority of each DSCP")}),
    "trust": ("roce", qos(trust="pcp"), {("fail", "roce.chain", "")}),
    "PFC": ("roce", every_rail(pfc=()), {("fail", "roce.chain", "")}),
    "ECN": ("roce", every_rail(ecn=False), {("fail", "roce.chain", "")}),
    "ECN of another priority": (
        "roce", qos(ecn_priorities=(3,)), {("warn", "fleet.roce-ports", "ECN per priority")},
    ),
    "pause": ("roce", qos(pause=(True, True)), {("fail", "roce.chain", "")}),
    "DCBX": ("roce", qos(dcbx="Firmware"), {("fail", "roce.chain", "")}),
    "GID layout": ("roce", every_rail(gid_index=4), {("warn", "fleet.gid-index", "")}),
    "cluster UUID": (
        "gb200", every_gpu(fabric=GpuFabric("Completed", "Success", (), 32766, "11111111-2222-3333-4444-555555555555")),
        {("fail", "fleet.nvlink-domain", "cluster UUID")},
    ),
    "clique": (
        "gb200", every_gpu(fabric=GpuFabric("Completed", "Success", (), 3, "5a9f6c1e-2d43-4b7a-9c58-0e1f2a3b4c5d")),
        {("fail", "fleet.nvlink-domain", "clique")},
    ),
    "IMEX node list": (
        "gb200", setting("/etc/nvidia-imex/nodes_config.cfg", "192.0.2.1\n192.0.2.2"),
        {("fail", "fleet.nvlink-domain", "IMEX node list")},
    ),
    "clock": ("h100", node(clock_offset_s=0.5), {("warn", "host.time-sync", "")}),
}  # fmt: skip


def _as_first(*keys: str) -> Fault:
    """Copy records of the fleet's first node, as in a clone."""

    def plant(machine: Machine) -> Machine:
        kind = "roce" if machine.roce else "h100"
        first = documents(kind)[0].records
        return replace(machine, records={**machine.records, **{key: first[key] for key in keys}})

    return plant


def _first_guid(machine: Machine) -> Machine:
    """Give mlx5_0 the GUID of the first node, equally in sysfs, ibstat and ibv_devinfo."""
    return with_nic(machine, "mlx5_0", guid=guid(fleet("h100")[0], fleet("h100")[0].nics[0]))


def _first_gpu(**changes: Any) -> Fault:
    return lambda machine: with_gpu(machine, 0, health={**machine.gpus[0].health, **changes})


def _gpu_of_first(field: str) -> Fault:
    def plant(machine: Machine) -> Machine:
        value = NodeFacts(documents("h100")[0]).gpu_health.gpus[0]
        return _first_gpu(**{field: getattr(value, field)})(machine)

    return plant


_IB = "file:/sys/class/infiniband/mlx5_0"

#: Values that must differ: name -> kind of node, the fault, the one finding, which names the first node and the odd
#: one.
DIFFER: dict[str, tuple[str, Fault, Findings]] = {
    "node GUID": ("roce", _as_first(f"{_IB}/node_guid"), {("fail", "fleet.identity", "node GUID")}),
    "system image GUID": (
        "h100", _as_first(f"{_IB}/sys_image_guid"), {("fail", "fleet.identity", "system image GUID")},
    ),
    "port GUID": ("h100", _as_first(f"{_IB}/ports/1/gids/0"), {("fail", "fleet.identity", "port GUID")}),
    "all GUIDs": (
        "h100", _first_guid,
        {("fail", "fleet.identity", f"{one} GUID") for one in ("node", "system image", "port")},
    ),
    "LID": ("h100", _as_first(f"{_IB}/ports/1/lid"), {("fail", "fleet.identity", "LID")}),
    "IP address": ("roce", _as_first("psutil:net_if_addrs"), {("fail", "fleet.identity", "IP address")}),
    "MAC": ("roce", _as_first("file:/sys/class/net/enp24s0/address"), {("fail", "fleet.identity", "MAC")}),
    "management MAC": ("h100", _as_first("file:/sys/class/net/eno1/address"), {("fail", "fleet.identity", "MAC")}),
    "host name": ("h100", setting("/proc/sys/kernel/hostname", "gpu001"), {("fail", "fleet.identity", "host name")}),
    "GPU UUID": ("h100", _gpu_of_first("uuid"), {("fail", "fleet.identity", "GPU UUID")}),
    "GPU serial": ("h100", _gpu_of_first("serial"), {("warn", "fleet.identity", "GPU serial number")}),
    "machine-id": ("h100", _as_first("file:/etc/machine-id"), {("warn", "fleet.identity", "machine id")}),
    "what one machine has": (
        "h100", lambda machine: _gpu_of_first("uuid")(_as_first("file:/etc/machine-id")(_first_guid(machine))),
        {("fail", "fleet.identity", "machine")},
    ),
    "boot id": (
        "h100", _as_first("file:/proc/sys/kernel/random/boot_id"), {("fail", "fleet.identity", "boot id")},
    ),
}  # fmt: skip

VLAN = "VLAN Dev name    | VLAN ID\nName-Type: VLAN_NAME_TYPE_RAW_PLUS_VID_NO_PAD\nenp79s0.100    | 100  | enp79s0\n"
_ZERO = ok("0000:0000:0000:0000\n")

#: Values that must match on each rail: name -> kind of node, the fault, the one finding.
RAILS: dict[str, tuple[str, Fault, Findings]] = {
    "subnet": ("roce", nic("mlx5_4", ip="10.77.0.5/24"), {("fail", "rails.subnets", "")}),
    "subnet of a switch": (
        "subnets", nic("mlx5_4", ip="10.77.0.5/24"), {("fail", "fleet.rails", "IP subnet of each rail")},
    ),
    "address of another rail": (
        "roce", nic("mlx5_4", ip="10.6.0.8/31"), {("fail", "fleet.rails", "rail address ranges")},
    ),
    "subnet prefix": (
        "h100", nic("mlx5_4", prefix=0xFEC0 << 48), {("fail", "fleet.rails", "InfiniBand subnet of each rail")},
    ),
    "subnet manager": ("h100", nic("mlx5_4", sm_lid=77), {("fail", "fleet.rails", "InfiniBand subnet of each rail")}),
    "P_Key": ("h100", nic("mlx5_4", pkeys=(0xFFFF, 0x8001)), {("fail", "fleet.rails", "partitions of each rail")}),
    "membership": ("h100", nic("mlx5_4", pkeys=(0x7FFF,)), {("fail", "fleet.rails", "partitions of each rail")}),
    "MTU": ("h100", nic("mlx5_4", partition_mtu=2048), {("fail", "rdma.active-mtu", "")}),
    "VLAN at the switch": (
        "roce", nic("mlx5_4", vlan=100), {("fail", "fleet.rails", "VLAN of each rail at its switch")},
    ),
    "VLAN tag": (
        "roce", record("file:/proc/net/vlan/config", ok(VLAN)), {("fail", "fleet.rails", "VLAN tag of each rail")},
    ),
    "speed": ("h100", nic("mlx5_4", rate="200 Gb/sec (2X NDR)"), {("fail", "rdma.port-rate", "")}),
    "width": ("h100", nic("mlx5_4", rate="400 Gb/sec (8X HDR)"), {("fail", "fleet.rails", "rate of each rail")}),
    "leaf": ("roce", nic("mlx5_4", leaf="leaf-9"), {("fail", "fleet.rail-leaf", "")}),
    "node GUID of zeros": ("h100", record(f"{_IB}/node_guid", _ZERO), {("fail", "container.rdma-address", "")}),
    "system GUID of zeros": (
        "h100", record(f"{_IB}/sys_image_guid", _ZERO), {("fail", "fleet.identity", "sys_image_guid")},
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_healthy_fleet_raises_nothing_under_the_file_that_it_taught(kind: str) -> None:
    report = judge(documents(kind), registry().checks, learnt(kind))
    assert [one for one in report["findings"] if one["status"] not in ("pass", "skip")
            and one["check"] not in ONLY_THE_SITE] == []  # fmt: skip
    assert report["exit_status"] == 0
    for check in ONLY_THE_SITE:
        assert not any(one["gating"] for one in report["findings"] if one["check"] == check)


def planted_findings(kind: str, fault: Fault) -> Findings:
    found = loud(planted(kind, fault), learnt(kind))
    assert all(one["nodes"] == [ODD] for one in found), found
    return {(one["status"], one["check"], one["subject"] if _of_fleet(one) else "") for one in found}


def _of_fleet(finding: dict[str, Any]) -> bool:
    """Whether a finding is from a check that compares nodes; its subject is the differing value."""
    return bool(finding["check"].startswith("fleet."))


@pytest.mark.parametrize("name", EQUAL)
def test_one_value_that_must_be_equal_differs(name: str) -> None:
    kind, fault, expected = EQUAL[name]
    assert planted_findings(kind, fault) == expected


@pytest.mark.parametrize("name", DIFFER)
def test_one_identifier_that_must_differ_is_that_of_another_node(name: str) -> None:
    kind, fault, expected = DIFFER[name]
    found = loud(planted(kind, fault), learnt(kind))
    assert {(one["status"], one["check"], one["subject"]) for one in found} == expected
    assert all(one["nodes"] == ["gpu001", ODD] for one in found)
    if name in ("GPU UUID", "GPU serial", "what one machine has"):
        assert "one node's evidence was saved" in found[0]["fix"]
        assert "ip -br addr" not in found[0]["fix"]


@pytest.mark.parametrize("name", RAILS)
def test_one_value_that_must_match_on_a_rail_differs(name: str) -> None:
    kind, fault, expected = RAILS[name]
    assert planted_findings(kind, fault) == expected
