"""Faults and defects of other node health tools: preflight finds each fault, and has none of the defects.

F01 to F27 are faults of GPUs, links and NCCL, X01 to X15 everyday faults of a node, X16 a control. Each is planted on
one node and judged alone, by a cluster file that declares what the nodes should have. The expectation has all findings
other than passes and skips, and the words that name device and fault.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest

from preflight.checks import MODULES, in_module, registry
from preflight.evidence.document import Evidence, from_document
from preflight.expectations import Cluster
from preflight.expectations.cluster_file import decode
from preflight.facts.container import GPU_NODES
from preflight.facts.inventory import DISK_SPACE, NVME
from preflight.facts.kernel_log import DMESG
from preflight.facts.nvidia.query import NVML
from preflight.judge import judge
from preflight.model import Check, Scope
from preflight.parsers.host.mounts import MOUNTS
from preflight.parsers.host.processes import PROCESSES
from preflight.parsers.host.services import FAILED
from preflight.probes.declared import space, units
from tests.checks.test_checks import CHECKS as BY_ID
from tests.checks.test_checks import findings_of
from tests.scenarios.test_nothing_to_judge import document as stripped
from tests.support.fixture import FIXTURES, Case, whole_node
from tests.support.machines import Machine, evidence, hgx_h100
from tests.support.machines.inventory import (
    DISKS,
    DRIVES,
    HEAD,
    INIT,
    ROOT_SPACE,
    SCRATCH_SPACE,
    SERVICES,
    SHARED,
    unit_list,
)
from tests.support.machines.p5 import CLUSTER as P5_FILE
from tests.support.machines.p5 import aws_p5
from tests.support.machines.pod import CLUSTER as POD_FILE
from tests.support.machines.pod import pod
from tests.support.machines.records import ok, ran
from tests.support.machines.system import NFS
from tests.support.whole_nodes import (
    LESS_PER_GPU,
    Fault,
    Findings,
    both,
    env,
    every_gpu,
    firmware,
    gpu,
    health,
    nic,
    node,
    record,
    setting,
)

IB, ROCE = "hgx-h100", "hgx-h100-roce"

#: Expected parts of the nodes; the other tables of the file are those of ``fixtures/nodes``.
DECLARED = """
[class.h100.versions]
driver = "570.124.06"
kernel = "5.15.0-1063-nvidia"
ofed = "OFED-internal-24.10-2.1.8"

[class.h100.firmware]
vbios = "96.00.74.00.01"
nics = { MT_0000000838 = "28.43.2026" }

[class.h100.gpu_settings]
model = "NVIDIA H100 80GB HBM3"
ecc = true
persistence = true
power_limit_w = 700
application_clock_mhz = 1980
sm_clock_max_mhz = 1980

[class.h100.host.mounts."/scratch"]
type = "xfs"
read_write = true
min_free_pct = 5
min_free_inodes = 100000
"""

SCRATCH = space("/scratch").key

CHECKS: list[Check] = list(registry().checks)


@cache
def declared(name: str) -> Cluster:
    """Return the cluster file of a node with all its parts."""
    text = (FIXTURES / "nodes" / f"{name}.toml").read_text()
    return decode((text + DECLARED).encode(), f"{name}.toml")


def report(documents: Sequence[Evidence], cluster: Cluster | None, checks: Sequence[Check] = CHECKS) -> dict[str, Any]:
    return judge(documents, checks, cluster)


def document(machine: Machine) -> Evidence:
    """Return a machine's evidence with the records of its class's declarations; a record of None is removed."""
    made = evidence(record(SCRATCH, machine.records.get(SCRATCH, ran(HEAD + SCRATCH_SPACE)))(machine))
    made["records"] = {key: value for key, value in made["records"].items() if value is not None}
    return from_document(made, machine.name)


def loud(judged: dict[str, Any]) -> Findings:
    """Return the findings of a report other than passes and skips."""
    return {
        (finding["status"], finding["check"], finding["subject"])
        for finding in judged["findings"]
        if finding["status"] not in ("pass", "skip")
    }


@dataclass(frozen=True)
class MatrixRow:
    """One fault of the matrix: its node, and the expected report."""

    node: str
    plant: Fault
    expected: Findings
    words: str  # regular expression of the message of the first finding named below
    check: str = ""  # of that finding; empty: the only one that fails or warns


def without_device_nodes(machine: Machine) -> Machine:
    return replace(machine, nics=tuple(replace(nic, uverbs=False) for nic in machine.nics))


def trust(device: str, word: str) -> Fault:
    def plant(machine: Machine) -> Machine:
        nics = (replace(nic, qos=replace(nic.qos, trust=word)) if nic.device == device else nic for nic in machine.nics)
        return replace(machine, nics=tuple(nics))

    return plant


RAILS = ("mlx5_0", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_9", "mlx5_10", "mlx5_11")

XID_79 = (
    "<4>[421000.100000] NVRM: Xid (PCI:0000:61:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    "<4>[421000.200000] NVRM: Xid (PCI:0000:61:00): 154, pid='<unknown>', name=<unknown>, GPU recovery action changed"
    " from 0x0 (None) to 0x2 (Node Reboot Required)",
)

ROWS: dict[str, MatrixRow] = {
    "F01 GPU off the bus": MatrixRow(IB, gpu(3, on_bus=False), {("fail", "gpu.count", "")}, "found 7, expected 8"),
    "F02 driver lost a GPU": MatrixRow(
        IB, gpu(3, answers=False), {("fail", "gpu.driver", "0000:61:00.0")}, "1 of 8 GPUs: 0000:61:00.0",
    ),
    "F03 one uncorrectable error": MatrixRow(
        IB, health(2, ecc_volatile_dram_uncorrected=1), {("fail", "gpu.ecc-uncorrected", "0000:52:00.0")},
        "GPU2: 1 uncorrectable memory error .*1 DRAM",
    ),
    "F04 row remapping pending": MatrixRow(
        IB, health(5, remap_pending=True, remapped_uncorrected=1), {("fail", "gpu.row-remap", "0000:c3:00.0")},
        "GPU5: a row remapping waits for a reset",
    ),
    "F05 hardware thermal slowdown": MatrixRow(
        IB, health(0, temperature_c=87, temperature_margin_c=0, event_reasons=0x48),
        {("fail", "gpu.temperature-margin", "0000:1b:00.0"), ("fail", "gpu.throttling", "0000:1b:00.0")},
        "GPU0: hardware thermal slowdown is active", "gpu.throttling",
    ),
    "F06 Xid 79 and 154": MatrixRow(
        IB, node(kernel_log=XID_79), {("fail", "xid.gpu", "0000:61:00.0")}, "Xid 79: GPU has fallen off the bus.*154",
    ),
    "F07 one NVLink down": MatrixRow(
        IB, health(6, links=(True,) * 17 + (False,)), {("fail", "nvlink.links", "0000:d1:00.0")}, "GPU6: 17 of 18",
    ),
    "F08 GPU on half its lanes": MatrixRow(
        IB, health(1, pcie_width=8), {("fail", "gpu.pcie-link", "0000:43:00.0")}, "GPU1: PCIe link has 8 of 16 lanes",
    ),
    "F09 NIC on half its lanes": MatrixRow(
        IB, nic("mlx5_5", lanes=8), {LESS_PER_GPU, ("fail", "pcie.nic-link", "mlx5_5")},
        "mlx5_5's PCIe link carries 252 Gb/s", "pcie.nic-link",
    ),
    "F10 fabric manager stopped": MatrixRow(
        IB, node(fabric_manager="inactive"), {("warn", "nvlink.fabric-manager", "")}, "fabric manager is inactive",
    ),
    "F11 port down": MatrixRow(
        IB, nic("mlx5_5", state="DOWN", physical="Polling"), {LESS_PER_GPU, ("fail", "rdma.port-state", "mlx5_5:1")},
        "mlx5_5:1 is DOWN/Polling, expected ACTIVE/LinkUp", "rdma.port-state",
    ),
    "F12 port at half rate": MatrixRow(
        IB, nic("mlx5_9", rate="200 Gb/sec (2X NDR)"), {LESS_PER_GPU, ("fail", "rdma.port-rate", "mlx5_9:1")},
        "mlx5_9:1 runs at 200 Gb/s", "rdma.port-rate",
    ),
    "F14 no device nodes": MatrixRow(
        IB, without_device_nodes,
        {("unknown", "rdma.active-mtu", ""), *(("fail", "rdma.device-nodes", device) for device in RAILS)},
        "/dev/infiniband/uverbs[0-9]+ is missing", "rdma.device-nodes",
    ),
    "F15 locked memory of 8 MiB": MatrixRow(
        IB, node(memlock="8388608"), {("fail", "host.memlock", "")}, "limited to 8 MiB, expected unlimited",
    ),
    "F16 MTU 1500": MatrixRow(
        ROCE, nic("mlx5_4", netdev_mtu=1500), {("fail", "roce.chain", "mlx5_4:1")},
        "mlx5_4:1: .*MTU 1500, expected 9000",
    ),
    "F17 PFC off": MatrixRow(
        ROCE, nic("mlx5_9", pfc=(), switch_pfc=()), {("fail", "roce.chain", "mlx5_9:1")},
        "mlx5_9:1: PFC is on for no priority",
    ),
    "F18 ECN off": MatrixRow(
        ROCE, nic("mlx5_10", ecn=False), {("fail", "roce.chain", "mlx5_10:1")}, "mlx5_10:1: ECN is off on priority 3",
    ),
    "F19 trust pcp": MatrixRow(
        ROCE, trust("mlx5_9", "pcp"), {("fail", "roce.chain", "mlx5_9:1")}, "mlx5_9:1: .*trusts pcp instead of dscp",
    ),
    "F20 GID index of RoCE v1": MatrixRow(
        ROCE, env(NCCL_IB_GID_INDEX="2"), {("fail", "nccl.gid-index", "")},
        "NCCL_IB_GID_INDEX=2 .*RoCE v1", "nccl.gid-index",
    ),
    "F21 ACS on": MatrixRow(
        IB, node(acs=("SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd")), {("fail", "gpudirect.path", "")},
        "all 8 GPU-NIC pairs: ACS redirects .*0000:16:00.0",
    ),
    "F22 no peer memory": MatrixRow(
        IB, node(peer_modules=(), open_driver=False), {("fail", "gpudirect.peer-memory", "")},
        "nvidia_peermem is not loaded",
    ),
    "F23 bound to one socket": MatrixRow(
        IB, node(allowed_cpus="0-55"), {("fail", "numa.affinity", "")}, "4 of 8 GPUs have no local CPU",
    ),
    "F24 NCCL_P2P_DISABLE": MatrixRow(
        IB, env(NCCL_P2P_DISABLE="1"), {("fail", "nccl.left-over-disables", "NCCL_P2P_DISABLE")}, "NCCL_P2P_DISABLE=1",
    ),
    "F25 NCCL_IB_HCA of another machine": MatrixRow(
        IB, env(NCCL_IB_HCA="=mlx5_20"), {("fail", "nccl.ib-hca", "NCCL_IB_HCA")}, "NCCL_IB_HCA==mlx5_20 .*no port",
    ),
}  # fmt: skip


FULL_SCRATCH = "xfs   30725966397440 0 3000975360 3000870112 /scratch\n"
ZOMBIE = INIT + "   4711    4242 Z     1001 alice                            python3 <defunct>\n"
SWAP = """\
Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority
/dev/nvme0n1p3                          partition\t8388604\t\t0\t\t-2
"""
FAILED_SLURMD = "\n".join(
    f"Id={name}.service\nNames={name}.service\nLoadState=loaded\nActiveState={state}\nSubState={state}\n"
    for name, state in (("slurmd", "failed"), ("munge", "active"))
)
FLAPS = tuple(
    f"<6>[{429000 + 290 * number}.{after}00000] mlx5_core 0000:4f:00.0 ibp79s0: Link {state}"
    for number in range(12)
    for after, state in ((1, "down"), (4, "up"))
)


def records(changes: dict[str, Any]) -> Fault:
    return lambda machine: replace(machine, records={**machine.records, **changes})


def missing_drive(number: int) -> Fault:
    """Remove one NVMe drive from the bus."""
    folder = f"file:/sys/class/nvme/nvme{number}"
    gone = dict.fromkeys(f"{folder}/{name}" for name in ("transport", "address", "state"))
    return records({**gone, NVME: {"status": "ok", "value": {"matches": 2 * DRIVES - 2}}})


def expected_of(*values: str) -> Findings:
    return {("fail", "node.expected", value) for value in values}


EVERYDAY: dict[str, MatrixRow] = {
    "X01 scratch full": MatrixRow(
        IB, records({SCRATCH: ran(HEAD + FULL_SCRATCH), DISK_SPACE: ran(HEAD + ROOT_SPACE + FULL_SCRATCH)}),
        {("fail", "host.mounts", "/scratch")}, "/scratch has 0% free, less than 5%",
    ),
    "X02 scratch read-only": MatrixRow(
        IB, record(MOUNTS, ok((DISKS + NFS).replace("xfs /dev/md0 rw", "xfs /dev/md0 ro"))),
        {("fail", "host.mounts", "/scratch")}, "/scratch is mounted read-only",
    ),
    "X02 scratch read-only after an error": MatrixRow(
        IB, both(
            record(MOUNTS, ok((DISKS + NFS).replace("xfs /dev/md0 rw", "xfs /dev/md0 ro"))),
            node(kernel_log=("<1>[431000.1] XFS (md0): Filesystem has been shut down due to log error (0x2).",)),
        ),
        {("fail", "host.mounts", "/scratch"), ("fail", "kernel.events", "md0")},
        "/scratch is mounted read-only; the kernel log shows: XFS .md0.: Filesystem has been shut down", "host.mounts",
    ),
    "X03 one zombie in two readings": MatrixRow(
        IB, record(PROCESSES, {**ran(ZOMBIE), "at_s": 421001.5, "again": {**ran(ZOMBIE), "at_s": 421011.5}}),
        {("warn", "host.zombies", "parent 4242")}, r"1 zombie remains: 4711 \(python3, alice, child of 4242\)",
    ),
    "X04 slurmd failed": MatrixRow(
        IB, records({units(SERVICES).key: ran(FAILED_SLURMD),
                     FAILED: ran(unit_list("slurmd.service loaded failed failed Slurm"))}),
        {("fail", "host.services", "slurmd.service")}, "slurmd.service has failed",
    ),
    "X05 machine check and uncorrected memory error": MatrixRow(
        IB, node(kernel_log=(
            "<0>[430000.1] mce: [Hardware Error]: CPU 12: Machine Check Exception: 5 Bank 4: b200000000070005",
            "<4>[430000.2] EDAC MC1: 1 UE memory read error on CPU_SrcID#1_MC#0_Chan#1_DIMM#0 (channel:1 slot:0)",
        )),
        {("fail", "kernel.events", "CPU 12"), ("fail", "kernel.events", "CPU_SrcID#1_MC#0_Chan#1_DIMM#0")},
        "1 uncorrected memory error on CPU_SrcID#1_MC#0_Chan#1_DIMM#0",
    ),
    "X06 link flapped twelve times this hour": MatrixRow(
        IB, node(kernel_log=FLAPS), {("warn", "kernel.events", "ibp79s0")},
        "link of ibp79s0 went down and came back 12 times within",
    ),
    "X07 application clocks locked low": MatrixRow(
        IB, every_gpu(application_clock_mhz=1005), {("warn", "node.expected", "application clock")},
        "application clock, all 8: 1005 MHz, not 1980 MHz",
    ),
    "X07 application clock of one GPU": MatrixRow(
        IB, health(3, application_clock_mhz=1005), {("warn", "node.expected", "application clock")},
        "application clock, GPU3 at 0000:61:00.0: 1005 MHz, not 1980 MHz",
    ),
    "X08 checkpoint mount missing": MatrixRow(
        IB, records({MOUNTS: ok(DISKS), space(SHARED).key: ran(HEAD + ROOT_SPACE)}),
        {("fail", "host.mounts", "/shared")}, "/shared is not mounted",
    ),
    "X09 one NVMe drive missing": MatrixRow(IB, missing_drive(9), expected_of("NVMe drives"), "NVMe drives: 9, not 10"),
    "X10 128 GiB of memory missing": MatrixRow(
        IB, setting("/proc/meminfo", "MemTotal:       1978643456 kB\nMemFree:        989000000 kB"),
        expected_of("memory"), "memory: 1887 GiB, not 2015 GiB",
    ),
    "X11 SMT off": MatrixRow(
        IB, records({"file:/sys/devices/system/cpu/online": ok("0-111\n"),
                     "file:/sys/devices/system/cpu/smt/control": ok("off\n")}),
        expected_of("logical CPUs", "multithreading (SMT)"), "SMT.: off, not on",
    ),
    "X12 I/O errors of an NVMe drive": MatrixRow(
        IB, node(kernel_log=(
            "<3>[431030.1] blk_update_request: I/O error, dev nvme3n1, sector 9437184 op 0x1:(WRITE) flags 0x8800"
            " phys_seg 32 prio class 0",
            "<3>[431030.2] Buffer I/O error on dev nvme3n1, logical block 1179648, lost async page write",
        )),
        {("fail", "kernel.events", "nvme3n1")}, r"nvme3n1: I/O errors \(2\); a member of md0 \(raid0\)",
    ),
    "X12 I/O errors of the drive that the root is on": MatrixRow(
        IB, node(kernel_log=(
            "<3>[431030.1] I/O error, dev nvme0n1, sector 9437184 op 0x1:(WRITE) flags 0x8800 phys_seg 32 prio class 2",
        )),
        {("fail", "kernel.events", "nvme0n1")}, r"nvme0n1: I/O errors \(1\)",
    ),
    "X13 swap on": MatrixRow(IB, record("file:/proc/swaps", ok(SWAP)), expected_of("swap"), "swap: on, not off"),
    "X14 hung task and soft lockup": MatrixRow(
        IB, node(kernel_log=(
            "<3>[431000.1] INFO: task python3:4711 blocked for more than 120 seconds.",
            "<0>[431100.1] watchdog: BUG: soft lockup - CPU#3 stuck for 26s! [kworker/3:1:221]",
        )),
        {("warn", "kernel.events", "")}, "python3:4711|CPU 3",
    ),
}  # fmt: skip

ROWS |= EVERYDAY
ROWS |= {
    "F13 firmware of one NIC": MatrixRow(
        IB,
        firmware("mlx5_9", "28.39.1002"),
        {("warn", "rdma.firmware", "mlx5_9"), ("warn", "node.expected", "firmware of NICs MT_0000000838")},
        "mlx5_9.*28.39.1002.*28.43.2026",
        "node.expected",
    ),
    "X15 4211 CRC errors of one NVLink": MatrixRow(
        IB,
        gpu(3, nvlink_errors={(4, "CRC Errors"): 4211}),
        {("warn", "nvlink.errors", "0000:61:00.0")},
        "GPU3: 4211 CRC errors on its NVLinks, 4211 of them on link 4",
    ),
    "X16 VBIOS of one GPU": MatrixRow(
        IB,
        health(6, vbios="96.00.89.00.01"),
        {("warn", "gpu.firmware", ""), ("warn", "node.expected", "VBIOS")},
        "GPU6.*96.00.89.00.01",
        "node.expected",
    ),
}


@pytest.mark.parametrize(
    ("plant", "check", "words"),
    [
        (firmware("mlx5_9", "28.39.1002"), "rdma.firmware", "mlx5_9.*28.39.1002"),
        (health(3, application_clock_mhz=1005), "gpu.clocks", "GPU3: application clock is 1005 of 1980 MHz"),
        (gpu(3, nvlink_errors={(4, "CRC Errors"): 4211}), "nvlink.errors", "GPU3: 4211 CRC errors"),
        (health(6, vbios="96.00.89.00.01"), "gpu.firmware",
         "the GPUs have 2 versions of VBIOS: 96.00.89.00.01 on GPU6; most have 96.00.74.00.01"),
    ],
)  # fmt: skip
def test_what_differs_within_a_node_is_named_without_a_file(plant: Fault, check: str, words: str) -> None:
    judged = report([document(plant(hgx_h100(IB)))], None)
    messages = [finding["message"] for finding in judged["findings"] if finding["status"] == "warn"]
    assert {finding[1] for finding in loud(judged) if finding[0] in ("fail", "warn")} == {check}
    assert any(re.search(words, message) for message in messages), messages


def test_a_zombie_of_one_reading_is_how_processes_end() -> None:
    machine = record(PROCESSES, {**ran(ZOMBIE), "at_s": 421001.5, "again": {**ran(INIT), "at_s": 421011.5}})(
        hgx_h100(IB)
    )
    assert loud(report([document(machine)], declared(IB))) == set()


def test_a_limit_of_space_fails_where_nothing_is_mounted() -> None:
    """NHC's check of free space passes if the mount is missing."""
    machine = records({MOUNTS: ok(NFS), SCRATCH: ran(HEAD + ROOT_SPACE)})(hgx_h100(IB))
    assert ("fail", "host.mounts", "/scratch") in loud(report([document(machine)], declared(IB)))


@pytest.mark.parametrize("name", EVERYDAY)
def test_without_a_file_no_everyday_fault_of_the_inventory_is_called_sound(name: str) -> None:
    """Without declarations, memory, CPUs, drives, swap, mounts and services are unknown, in one finding."""
    machine = EVERYDAY[name].plant(hgx_h100(IB))
    judged = report([document(machine)], None)
    assert ("unknown", "host.inventory", "") in loud(judged)


@pytest.mark.parametrize("name", ROWS)
def test_a_fault_of_the_matrix_is_reported_with_its_device(name: str) -> None:
    row = ROWS[name]
    machine = row.plant(hgx_h100(row.node, roce=row.node == ROCE))
    judged = report([document(machine)], declared(row.node))
    assert loud(judged) == row.expected
    check = row.check or next(check for status, check, _ in sorted(row.expected) if status != "unknown")
    messages = [finding["message"] for finding in judged["findings"] if finding["check"] == check]
    assert any(re.search(row.words, message) for message in messages), messages
    failing = any(status == "fail" for status, _, _ in row.expected)
    assert (judged["exit_status"] == 1) == failing


def test_f02_the_driver_lost_a_gpu_in_a_container() -> None:
    """Bus, device nodes and file have eight GPUs, and one does not answer: not a limit of the container."""
    machine = gpu(3, answers=False)(pod())
    judged = report([document(machine)], decode(POD_FILE.encode(), "pod.toml"))
    (finding,) = [finding for finding in judged["findings"] if finding["check"] == "gpu.driver"]
    assert (finding["status"], judged["exit_status"]) == ("fail", 1)
    assert "0000:61:00.0" in finding["subject"] + finding["message"]


@pytest.mark.parametrize(
    ("check", "name", "words"),
    [
        (
            "nccl.transport",
            "cause-no-device-nodes",
            "TCP sockets, not RDMA, carry the traffic.*/dev/infiniband is missing",
        ),
        ("nccl.transport", "socket-ib-disabled", "NCCL_IB_DISABLE set by environment"),
        ("nccl-tests.busbw", "below-the-floor", "found 349.83 GB/s, expected at least 440"),
        ("nccl-tests.busbw", "half-of-the-nics", "4 of 8 NICs carry the traffic"),
    ],
)
def test_f26_f27_a_log_on_sockets_and_half_the_bandwidth(check: str, name: str, words: str) -> None:
    path = FIXTURES / check / f"{name}.json"
    findings = findings_of(BY_ID[check], Case(check, path, json.loads(path.read_text())))
    assert {finding["status"] for finding in findings} == {"fail"}
    assert any(re.search(words, str(finding["message"])) for finding in findings)


# --- healthy nodes ---------------------------------------------------------------------------------

APPLICATION_XIDS = (
    "<4>[421000.1] NVRM: Xid (PCI:0000:61:00): 31, pid=4711, name=python3, Ch 00000008, intr 00000000.",
    "<4>[421000.2] NVRM: Xid (PCI:0000:61:00): 43, pid=4711, name=python3, Ch 00000008",
)


def laptop() -> Evidence:
    """Return a machine with neither GPU nor RDMA NIC, named like a laptop."""
    made = stripped("laptop")
    made["records"]["file:/sys/class/dmi/id/product_name"] = {"status": "ok", "out": "Latitude 7440\n"}
    made["records"][GPU_NODES] = ran("")
    made["records"][DMESG] = ran("<4>[    1.2] ACPI: EC: EC started\n")
    return from_document(made, "laptop")


HEALTHY: dict[str, tuple[Callable[[], Evidence], Callable[[], Cluster]]] = {
    "H1 HGX H100 on InfiniBand": (lambda: document(hgx_h100(IB)), lambda: declared(IB)),
    "H2 HGX H100 on RoCE": (lambda: document(hgx_h100(ROCE, roce=True)), lambda: declared(ROCE)),
    "H3 laptop without GPU": (laptop, lambda: decode(b"[class.laptop]\ngpus = 0\nhcas = 0\n", "laptop.toml")),
    "H4 AWS p5": (lambda: document(aws_p5()), lambda: decode(P5_FILE.encode(), "p5.toml")),
    "H5 Xids of applications": (
        lambda: document(replace(hgx_h100(IB), kernel_log=APPLICATION_XIDS)), lambda: declared(IB),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "action"),
    [("X09 one NVMe drive missing", "isolate"), ("X10 128 GiB of memory missing", "isolate"),
     ("X11 SMT off", "fix-site"), ("X13 swap on", "fix-site"), ("F11 port down", "isolate"),
     ("F06 Xid 79 and 154", "reboot")],
)  # fmt: skip
def test_a_missing_part_is_no_setting_and_a_cable_is_no_host(name: str, action: str) -> None:
    """Another tool would replace the host for a cable, and reset where the driver requires a reboot."""
    judged = report([document(ROWS[name].plant(hgx_h100(IB)))], declared(IB))
    assert judged["nodes"][0]["action"] == action


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_node_has_no_warning_with_and_without_the_file(name: str) -> None:
    made, cluster = HEALTHY[name]
    for file in (cluster(), None):
        judged = report([made()], file)
        assert {status for status, _, _ in loud(judged)} - {"unknown"} == set()
    if not name.startswith("H3"):
        assert report([made()], cluster())["exit_status"] == 0


# --- defects of other tools, each with a test that preflight does not have it -------------------------


def test_every_check_that_is_defined_is_registered_and_planned() -> None:
    """A check missing from the list of checks finds nothing (a stopped fabric manager)."""
    defined = {
        check.id for name in MODULES for check in in_module(__import__(f"preflight.checks.{name}", fromlist=["_"]))
    }
    assert defined <= {check.id for check in CHECKS}
    judged = report([document(hgx_h100(IB))], declared(IB))
    planned = {check.id for check in CHECKS if check.scope is Scope.NODE and not check.history}
    assert planned - set(judged["nodes"][0]["checks"]) == {"site.waivers"}  # the file has none


@pytest.mark.parametrize("rate", ["200 Gb/sec (2X NDR)", "100 Gb/sec (1X NDR)"])
def test_a_port_with_half_its_lanes_is_not_healthy_for_the_name_of_its_speed(rate: str) -> None:
    """A search for `NDR` in the output of ibstatus also finds `2X NDR`."""
    judged = report([document(nic("mlx5_9", rate=rate)(hgx_h100(IB)))], None)
    assert ("fail", "rdma.port-rate", "mlx5_9:1") in loud(judged)


@pytest.mark.parametrize(
    "answer",
    [
        {"status": "ok", "rc": 0, "out": "-- No entries --\n", "err": ""},
        {"status": "ok", "rc": 0, "out": "", "err": ""},
        {"status": "ok", "rc": 1, "out": "", "err": "dmesg: read kernel buffer failed: Operation not permitted\n"},
        {"status": "missing", "why": "there is no such tool"},
        {"status": "denied", "why": "not permitted"},
        {"status": "timeout", "why": "no answer within 10 s"},
    ],
)
def test_a_kernel_log_that_shows_nothing_is_no_log_without_xids(answer: dict[str, Any]) -> None:
    """If `journalctl -k` prints "-- No entries --", nothing was read: an Xid 79 must not pass."""
    judged = report([document(record(DMESG, answer)(hgx_h100(IB)))], declared(IB))
    assert {finding["status"] for finding in judged["findings"] if finding["check"] == "xid.gpu"} == {"unknown"}
    assert judged["exit_status"] == 3


@pytest.mark.parametrize("memory", ["dram", "sram"])
def test_one_uncorrectable_error_is_a_fault(memory: str) -> None:
    """A limit of twenty million is for corrected errors, not for uncorrected ones."""
    judged = report([document(health(4, **{f"ecc_volatile_{memory}_uncorrected": 1})(hgx_h100(IB)))], declared(IB))
    assert loud(judged) == {("fail", "gpu.ecc-uncorrected", "0000:9d:00.0")}


def test_a_gpu_that_slows_down_ends_the_run_with_a_failure() -> None:
    """Throttling that only appears in the log, with status 0, lets the job start."""
    judged = report([document(health(4, event_reasons=0x8)(hgx_h100(IB)))], declared(IB))
    assert ("fail", "gpu.throttling", "0000:9d:00.0") in loud(judged)
    assert judged["exit_status"] == 1


@pytest.mark.parametrize("check", [check for check in CHECKS if check.scope is Scope.NODE], ids=lambda check: check.id)
def test_a_check_alone_has_the_findings_that_it_has_among_all(check: Check) -> None:
    """A check that needs a variable of another one ends in a NameError when selected alone."""
    documents, together = _sick()
    alone = report(documents, declared(IB), [check])
    assert [finding for finding in together["findings"] if finding["check"] == check.id] == [
        finding for finding in alone["findings"] if finding["check"] == check.id
    ]


@cache
def _sick() -> tuple[list[Evidence], dict[str, Any]]:
    machine = both(nic("mlx5_5", state="DOWN", physical="Polling"), gpu(3, answers=False))(hgx_h100(IB))
    documents = [document(machine)]
    return documents, report(documents, declared(IB))


def test_storage_ports_that_are_disabled_are_no_fault_without_a_file() -> None:
    """Not all ports are rails: a DGX with disabled storage ports is healthy."""
    machine = hgx_h100(IB)
    assert {nic.state for nic in machine.nics if nic.gpu is None} == {"DOWN"}
    assert {status for status, _, _ in loud(report([document(machine)], None))} == {"unknown"}


def test_no_probe_runs_twice() -> None:
    """One process for each check would read the same tool repeatedly; a plan has each source once."""
    keys = list(whole_node(IB)["records"])
    assert len(keys) == len(set(keys))
    assert sum(key.startswith("cmd:ibstat") for key in keys) == 1
    assert NVML in keys
