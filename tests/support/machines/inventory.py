"""Parts of a server: CPUs, drives, swap, mounts, services, as in proc(5), df(1) and systemctl(1)."""

from __future__ import annotations

import re

from preflight.facts.inventory import DISK_SPACE, NVME
from preflight.parsers.host.mounts import MOUNTS
from preflight.parsers.host.processes import PROCESSES
from preflight.parsers.host.raid_arrays import ARRAYS
from preflight.parsers.host.services import FAILED
from preflight.probes.declared import space, units
from tests.support.machines.machine import Machine
from tests.support.machines.records import MISSING, Records, ok, ran
from tests.support.machines.system import NFS

#: Disks: the system's and a scratch disk.
DISKS = (
    "29 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw,errors=remount-ro\n"
    "77 29 259:1 / /boot/efi rw,relatime shared:39 - vfat /dev/nvme0n1p1 rw,fmask=0077,codepage=437,errors=remount-ro\n"
    "81 29 9:0 / /scratch rw,noatime shared:41 - xfs /dev/md0 rw,attr2,inode64,logbufs=8,noquota\n"
)
HEAD = "Type       1B-blocks         Avail     Inodes      IFree Mounted on\n"
ROOT_SPACE = "ext4   1886193541120 1510127935488  116793344  116120221 /\n"
SCRATCH_SPACE = "xfs   30725966397440 29184327520256 3000975360 3000870112 /scratch\n"
SHARED_SPACE = "nfs4 549755813888000 201863462912000 0 0 /shared\n"

ARRAY = (
    "Personalities : [raid0] \n"
    "md0 : active raid0 " + " ".join(f"nvme{number}n1[{number - 1}]" for number in range(1, 10)) + "\n"
    "      33748776960 blocks super 1.2 512k chunks\n"
    "      \n"
    "unused devices: <none>\n"
)

#: Services declared by the cluster files of the nodes, and mounts.
SERVICES = ("slurmd", "munge")
SHARED = "/shared"
DRIVES = 10
NO_SYSTEMD = {"status": "missing", "why": "nothing to collect: there is no running systemd"}
INIT = "      1       0 Ss       0 root                             systemd\n"


def unit_list(*rows: str) -> str:
    """Write a list of units that failed, with the line that counts them."""
    lines = ["  UNIT LOAD ACTIVE SUB DESCRIPTION", *rows, f"{len(rows)} loaded units listed."]
    return "".join(f"{line}\n" for line in lines)


def render(machine: Machine) -> Records:
    inside = machine.where == "container"
    online = sorted(machine.cpus, key=lambda cpus: int(cpus.partition("-")[0] or 0))
    records: Records = {
        "file:/sys/devices/system/cpu/online": ok(f"{_range(online)}\n"),
        "file:/sys/devices/system/cpu/smt/control": ok("on\n" if machine.platform.architecture == "x86_64"
                                                       else "notsupported\n"),
        "file:/proc/swaps": ok("Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"),
        ARRAYS: ok(ARRAY),
        MOUNTS: ok("" if inside else DISKS + NFS),
        DISK_SPACE: ran("", 1, "df: no file systems processed\n") if inside
        else ran(HEAD + ROOT_SPACE + "vfat       1124999168    1118535680          0          0 /boot/efi\n"
                 + SCRATCH_SPACE),
        FAILED: NO_SYSTEMD if inside else ran(unit_list()),
        space(SHARED).key: ran("", 1, f"df: {SHARED}: No such file or directory\n") if inside
        else ran(HEAD + SHARED_SPACE),
        units(SERVICES).key: MISSING if inside else ran("\n".join(
            f"Id={name}.service\nNames={name}.service\nLoadState=loaded\nActiveState=active\nSubState=running\n"
            for name in SERVICES
        )),
        NVME: {"status": "ok", "value": {"matches": 2 * DRIVES}},
        PROCESSES: {**ran(INIT), "at_s": 421001.5, "again": {**ran(INIT), "at_s": 421011.5}},
    }  # fmt: skip
    for number in range(DRIVES):
        folder = f"file:/sys/class/nvme/nvme{number}"
        records[f"{folder}/transport"] = ok("pcie\n")
        records[f"{folder}/address"] = ok(f"0000:{0x8D + number:02x}:00.0\n")
        records[f"{folder}/state"] = ok("live\n")
    return records


def host_of(cluster: str, machine: Machine) -> str:
    """Return the table of a cluster file's class that declares the parts of a machine."""
    numbers = re.search(r"^\[class\.([\w-]+)\]", cluster, re.MULTILINE)
    assert numbers, "the cluster file has a class"
    smt = machine.platform.architecture == "x86_64"
    first, _, last = _range(list(machine.cpus)).partition("-")
    assert not first.strip("0")
    return host_table(numbers[1], int(last or 0) + 1, sum(map(bool, machine.cpus)), smt)


def _range(cpus: list[str]) -> str:
    """Join the CPUs of all NUMA nodes: ``0-223``."""
    numbers: set[int] = set()
    for part in ",".join(cpus).split(","):
        if part:
            first, _, last = part.partition("-")
            numbers.update(range(int(first), int(last or first) + 1))
    return f"{min(numbers)}-{max(numbers)}" if len(numbers) > 1 else "0"


def host_table(name: str, cpus: int = 224, numa_nodes: int = 2, smt: bool = True) -> str:
    """Return the table of a class that declares all of this."""
    return f"""
[class.{name}.host]
memory_gib = 2015
cpus = {cpus}
smt = {"true" if smt else "false"}
numa_nodes = {numa_nodes}
nvme = {DRIVES}
swap = false
services = ["slurmd", "munge"]
forbidden_processes = ["xmrig"]

[class.{name}.host.mounts."{SHARED}"]
type = "nfs4"
read_write = true
min_free_pct = 5
"""
