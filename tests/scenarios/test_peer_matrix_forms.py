"""The everyday faults of the matrix in other forms: other kernels, tools and ways to fail."""

from __future__ import annotations

import re

import pytest

from preflight.facts.nvidia.query import NVML
from preflight.parsers.host.mounts import MOUNTS
from preflight.parsers.host.processes import PROCESSES
from preflight.parsers.host.raid_arrays import ARRAYS
from preflight.parsers.host.services import FAILED
from preflight.parsers.nvidia.nvlink_errors import NVLINK_ERRORS
from preflight.probes.declared import units
from tests.scenarios.test_peer_matrix import (
    IB,
    SCRATCH,
    MatrixRow,
    declared,
    document,
    expected_of,
    loud,
    records,
    report,
)
from tests.support.machines import Machine, evidence, hgx_h100
from tests.support.machines.inventory import DISKS, HEAD, INIT, SERVICES, SHARED, unit_list
from tests.support.machines.records import ok, ran
from tests.support.machines.system import NFS
from tests.support.whole_nodes import Fault, both, node, record, setting


def log(*lines: str) -> Fault:
    return node(kernel_log=lines)


def flaps(form: str, number: int) -> Fault:
    """Make a link go down and come back; ``form`` has its driver's messages for both."""
    down, up = form.split("|")
    times = [429000 + 290 * at for at in range(number)]
    return log(*(line for at_s in times for line in (f"<6>[{at_s}.100000] {down}", f"<6>[{at_s + 4}.400000] {up}")))


def without_nvidia_smi(machine: Machine) -> Machine:
    """Let only NVML count errors of NVLinks: 4211 on one link of GPU 3."""
    value = evidence(machine)["records"][NVML]["value"]
    gpus = [{**gpu, "nvlink_errors": {"4": {"161": 0, "162": 0, "163": 4211 * (gpu["index"] == 3)}}}
            for gpu in value["gpus"]]  # fmt: skip
    both_readings = {"status": "ok", "at_s": 1.0, "value": {**value, "gpus": gpus}}
    both_readings["again"] = {**both_readings, "at_s": 61.0}
    return records({NVML: both_readings, NVLINK_ERRORS: {"status": "missing", "why": "there is no nvidia-smi"}})(
        machine
    )


RESTARTING = (
    "Id=slurmd.service\nNames=slurmd.service\nLoadState=loaded\nActiveState=activating\nSubState=auto-restart\n\n"
    "Id=munge.service\nNames=munge.service\nLoadState=loaded\nActiveState=active\nSubState=running\n"
)
SWAP_FILE = """\
Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority
/swapfile                               file\t\t2097148\t\t512\t\t-2
"""
TWO_ZOMBIES = INIT + (
    "   4242       1 Sl    1001 alice                            python3\n"
    "   4711    4242 Z+    1001 alice                            pt_data_worker <defunct>\n"
    "   4712    4242 Z     1001 alice                            pt_data_worker <defunct>\n"
)
MIRROR = """\
Personalities : [raid1] [raid0]
md0 : active raid1 nvme2n1[1] nvme1n1[0]
      3749864448 blocks super 1.2 [2/2] [UU]

unused devices: <none>
"""

FORMS: dict[str, MatrixRow] = {
    "X01 no inodes left": MatrixRow(
        IB, records({SCRATCH: ran(HEAD + "xfs 30725966397440 29184327520256 3000975360 12 /scratch\n")}),
        {("fail", "host.mounts", "/scratch")}, "/scratch has 12 inodes free",
    ),
    "X02 emergency read-only": MatrixRow(
        IB, record(MOUNTS, ok((DISKS + NFS).replace("xfs /dev/md0 rw", "xfs /dev/md0 rw,emergency_ro"))),
        {("fail", "host.mounts", "/scratch")}, "/scratch is mounted read-only",
    ),
    "X02 the mount itself is read-only": MatrixRow(
        IB, record(MOUNTS, ok((DISKS + NFS).replace("/scratch rw,noatime", "/scratch ro,noatime"))),
        {("fail", "host.mounts", "/scratch")}, "/scratch is mounted read-only",
    ),
    "X03 two workers of one parent": MatrixRow(
        IB, record(PROCESSES, {**ran(TWO_ZOMBIES), "at_s": 421001.5, "again": {**ran(TWO_ZOMBIES), "at_s": 421011.5}}),
        {("warn", "host.zombies", "parent 4242")}, "2 zombies.*4711.*4712",
    ),
    "X04 slurmd restarts again and again": MatrixRow(
        IB, records({units(SERVICES).key: ran(RESTARTING), FAILED: ran(unit_list())}),
        {("fail", "host.services", "slurmd.service")}, "slurmd.service.*auto-restart",
    ),
    "X05 as an AMD node writes it": MatrixRow(
        IB, log(
            "<0>[430000.1] mce: [Hardware Error]: Machine check events logged",
            "<0>[430000.2] [Hardware Error]: Uncorrected, software restartable error.",
            "<0>[430000.3] [Hardware Error]: CPU:68 (19:11:1) MC21_STATUS[Over|UE|MiscV|AddrV|-|PCC|SyndV|UECC|-|-|-]:"
            " 0xfe002000a0ad011b",
            "<0>[430000.4] EDAC MC1: 1 UE Cannot decode normalized address on mc#1csrow#2channel#7 (csrow:2 channel:7)",
        ),
        {("fail", "kernel.events", "CPU 68"), ("fail", "kernel.events", "mc#1csrow#2channel#7")},
        "1 uncorrected memory error on mc#1csrow#2channel#7",
    ),
    "X06 as bnxt writes it": MatrixRow(
        IB, flaps("bnxt_en 0000:41:00.0 eno2: NIC Link is Down"
                  "|bnxt_en 0000:41:00.0 eno2: NIC Link is Up, 100000 Mbps", 6),
        {("warn", "kernel.events", "eno2")}, "link of eno2 went down and came back 6 times",
    ),
    "X06 as a bond writes it": MatrixRow(
        IB, flaps("bond0: (slave eno1): link status definitely down, disabling slave"
                  "|bond0: (slave eno1): link status definitely up, 25000 Mbps full duplex", 5),
        {("warn", "kernel.events", "eno1")}, "link of eno1 went down and came back 5 times",
    ),
    "X08 another file system there": MatrixRow(
        IB, records({MOUNTS: ok(DISKS + NFS.replace(" nfs4 ", " tmpfs "))}),
        {("fail", "host.mounts", SHARED)}, f"{SHARED} is of type tmpfs",
    ),
    "X09 a drive that answers no more": MatrixRow(
        IB, records({"file:/sys/class/nvme/nvme9/state": ok("dead\n")}),
        {*expected_of("NVMe drives"), ("warn", "host.inventory", "nvme9")}, r"NVMe drives: 9 \(nvme9 dead\), not 10",
    ),
    "X10 one module missing": MatrixRow(
        IB, setting("/proc/meminfo", "MemTotal:       2046820352 kB\nMemFree:        989000000 kB"),
        expected_of("memory"), "memory: 1952 GiB, not 2015 GiB",
    ),
    "X11 switched off by the kernel's command line": MatrixRow(
        IB, records({"file:/sys/devices/system/cpu/online": ok("0-111\n"),
                     "file:/sys/devices/system/cpu/smt/control": ok("forceoff\n")}),
        expected_of("logical CPUs", "multithreading (SMT)"), "SMT.: off, not on",
    ),
    "X12 as the NVMe driver writes it": MatrixRow(
        IB, log(
            "<4>[431030.1] nvme3n1: I/O Cmd(0x2) @ LBA 732160, 8 blocks, I/O Error (sct 0x2 / sc 0x81) MORE DNR",
            "<3>[431030.2] critical medium error, dev nvme3n1, sector 732160 op 0x0:(READ) flags 0x80700 phys_seg 1"
            " prio class 2",
        ),
        {("fail", "kernel.events", "nvme3n1")}, r"nvme3n1: I/O errors \(2\); a member of md0 \(raid0\)",
    ),
    "X12 a controller that times out and is given up": MatrixRow(
        IB, log(
            "<4>[431030.1] nvme nvme3: I/O tag 118 (2076) opcode 0x1 (I/O Cmd) QID 9 timeout, aborting req_op:WRITE(1)",
            "<4>[431060.1] nvme nvme3: I/O tag 118 (2076) opcode 0x1 (I/O Cmd) QID 9 timeout, reset controller",
            "<4>[431090.1] nvme nvme3: Disabling device after reset failure: -19",
        ),
        {("fail", "kernel.events", "nvme3")}, "the kernel disabled nvme3",
    ),
    "X12 of half a mirror": MatrixRow(
        IB, both(records({ARRAYS: ok(MIRROR)}), log(
            "<3>[431030.1] I/O error, dev nvme2n1, sector 9437184 op 0x1:(WRITE) flags 0x8800 phys_seg 32 prio class 2",
        )),
        {("warn", "kernel.events", "nvme2n1")}, r"nvme2n1: I/O errors \(1\); a member of md0 \(raid1\), which",
    ),
    "X13 a swap file": MatrixRow(
        IB, record("file:/proc/swaps", ok(SWAP_FILE)), expected_of("swap"), "swap: on, not off"
    ),
    "X14 in the words of newer kernels": MatrixRow(
        IB, log(
            "<3>[431000.1] INFO: task kworker/u449:3:88211 blocked in I/O wait for more than 122 seconds.",
            "<3>[431050.1] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
            "<0>[431100.1] watchdog: CPU17: Watchdog detected hard LOCKUP on cpu 17",
        ),
        {("warn", "kernel.events", "")}, "kworker/u449:3:88211|CPU 17",
    ),
    "X15 as NVML counts it": MatrixRow(
        IB, without_nvidia_smi, {("warn", "nvlink.errors", "0000:61:00.0")}, "GPU3: 4211 CRC errors on its NVLinks",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_a_fault_is_reported_in_other_words_too(name: str) -> None:
    row = FORMS[name]
    judged = report([document(row.plant(hgx_h100(row.node)))], declared(row.node))
    assert loud(judged) == row.expected, [f["message"] for f in judged["findings"] if f["status"] in ("fail", "warn")]
    messages = [finding["message"] for finding in judged["findings"] if finding["status"] in ("fail", "warn")]
    assert any(re.search(row.words, message) for message in messages), messages


def test_every_everyday_fault_of_a_node_has_a_second_form() -> None:
    """X07 has two in the matrix itself."""
    assert {name[:3] for name in FORMS} | {"X07"} == {f"X{number:02}" for number in range(1, 16)}
