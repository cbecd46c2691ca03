"""Everyday faults of a server, planted on a node: each has its finding, with and without the cluster file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from preflight.checks import registry
from preflight.evidence.document import Evidence, from_document
from preflight.expectations import Cluster
from preflight.expectations.cluster_file import decode
from preflight.facts.inventory import DISK_SPACE, SWAPS
from preflight.judge import judge
from preflight.learn import learn
from preflight.parsers.host.mounts import MOUNTS
from preflight.parsers.host.processes import PROCESSES
from preflight.parsers.host.services import FAILED
from preflight.probes.declared import processes, space, units
from tests.support import machines
from tests.support.fixture import FIXTURES
from tests.support.machines import hgx_h100
from tests.support.machines.inventory import DISKS, HEAD, INIT, ROOT_SPACE, SERVICES, SHARED, unit_list
from tests.support.machines.records import ok, ran
from tests.support.machines.system import NFS

CHECKS = list(registry().checks)
Records = dict[str, Any]
Found = set[tuple[str, str, str]]

SCRATCH = """
[class.h100.host.mounts."/scratch"]
type = "xfs"
read_write = true
min_free_pct = 2
"""
FILE = (FIXTURES / "nodes" / "hgx-h100.toml").read_text() + SCRATCH
SCRATCH_ROOM = "xfs   30725966397440 29184327520256 3000975360 3000870112 /scratch\n"
FULL = "xfs   30725966397440 0 3000975360 3000870112 /scratch\n"
ZOMBIE = INIT + "  41210   41190 Z     1000 alice                            python3 <defunct>\n"
SLURMD = "Id=slurmd.service\nNames=slurmd.service\nLoadState=loaded\nActiveState=failed\nSubState=failed\n"
MUNGE = "\nId=munge.service\nNames=munge.service\nLoadState=loaded\nActiveState=active\nSubState=running\n"

NVME9 = {f"file:/sys/class/nvme/nvme9/{name}": None for name in ("transport", "address", "state")}

#: Fault -> the changed records, and the findings with and without the cluster file.
FAULTS: dict[str, tuple[Records, Found, Found]] = {
    "X01 scratch full": (
        {space("/scratch").key: ran(HEAD + FULL), DISK_SPACE: ran(HEAD + ROOT_SPACE + FULL)},
        {("fail", "host.mounts", "/scratch")}, {("warn", "host.file-systems", "/scratch")},
    ),
    "X02 scratch turned read-only": (
        {MOUNTS: ok(DISKS.replace("xfs /dev/md0 rw", "xfs /dev/md0 ro") + NFS)},
        {("fail", "host.mounts", "/scratch")}, {("warn", "host.file-systems", "/scratch")},
    ),
    "X03 one zombie": (
        {PROCESSES: {**ran(ZOMBIE), "at_s": 1.0, "again": {**ran(ZOMBIE), "at_s": 61.0}}},
        {("warn", "host.zombies", "parent 41190")}, {("warn", "host.zombies", "parent 41190")},
    ),
    "X04 slurmd failed": (
        {units(SERVICES).key: ran(SLURMD + MUNGE), FAILED: ran(unit_list("slurmd.service loaded failed failed Slurm"))},
        {("fail", "host.services", "slurmd.service")}, {("warn", "host.failed-units", "slurmd.service")},
    ),
    "X08 mount of the checkpoints missing": (
        {MOUNTS: ok(DISKS), space(SHARED).key: ran(HEAD + ROOT_SPACE),
         FAILED: ran(unit_list("shared.mount loaded failed failed /shared"))},
        {("fail", "host.mounts", SHARED), ("warn", "host.failed-units", "shared.mount")},
        {("warn", "host.failed-units", "shared.mount")},
    ),
    "X09 one drive of ten missing": (NVME9, {("fail", "node.expected", "NVMe drives")}, set()),
    "X10 128 GiB of memory missing": (
        {"file:/proc/meminfo": ok("MemTotal:       1979444060 kB\nMemFree:        1056830894 kB\n")},
        {("fail", "node.expected", "memory")}, set(),
    ),
    "X11 SMT off": (
        {"file:/sys/devices/system/cpu/smt/control": ok("off\n"), "file:/sys/devices/system/cpu/online": ok("0-111\n")},
        {("fail", "node.expected", "multithreading (SMT)"), ("fail", "node.expected", "logical CPUs")}, set(),
    ),
    "X13 swap on": (
        {SWAPS: ok("Filename\tType\tSize\tUsed\tPriority\n/swap.img file\t8388604\t0\t-2\n")},
        {("fail", "node.expected", "swap")}, set(),
    ),
}  # fmt: skip


def node(records: Records, name: str = "hgx-h100", number: int = 0) -> Evidence:
    document = machines.evidence(replace(hgx_h100(name), number=number))
    document["records"][space("/scratch").key] = ran(HEAD + SCRATCH_ROOM)
    for key, record in records.items():
        document["records"].pop(key)
        if record is not None:
            document["records"][key] = record
    return from_document(document, name)


def loud(records: Records, cluster: Cluster | None) -> Found:
    findings = judge([node(records)], CHECKS, cluster)["findings"]
    return {
        (finding["status"], finding["check"], finding["subject"])
        for finding in findings
        if finding["status"] in ("fail", "warn")
    }


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_by_the_cluster_file(fault: str) -> None:
    records, expected, _ = FAULTS[fault]
    assert loud(records, decode(FILE.encode(), "cluster.toml")) == expected


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_a_fault_anywhere_warns_without_a_cluster_file(fault: str) -> None:
    records, _, expected = FAULTS[fault]
    assert loud(records, None) == expected


def test_a_healthy_node_is_quiet_with_and_without_the_file() -> None:
    assert loud({}, decode(FILE.encode(), "cluster.toml")) == set()
    assert loud({}, None) == set()


def test_a_cluster_file_without_the_table_keeps_its_exit_status() -> None:
    text = FILE[: FILE.index("[class.h100.host]")]
    report = judge([node({})], CHECKS, decode(text.encode(), "cluster.toml"))
    assert report["exit_status"] == 0
    unknown = [
        (finding["check"], finding["gating"]) for finding in report["findings"] if finding["status"] == "unknown"
    ]
    assert unknown == [("host.inventory", False)]


@pytest.mark.parametrize(
    "key", [MOUNTS, SWAPS, "file:/proc/meminfo", space("/scratch").key, units(SERVICES).key, PROCESSES]
)
def test_what_is_declared_and_could_not_be_read_holds_the_job_back(key: str) -> None:
    report = judge([node({key: {"status": "denied", "why": "no"}})], CHECKS, decode(FILE.encode(), "cluster.toml"))
    assert report["exit_status"] == 3
    assert [finding for finding in report["findings"] if finding["status"] == "unknown" and finding["gating"]]


def test_nodes_are_compared_without_a_cluster_file() -> None:
    changes: Records = {MOUNTS: ok(DISKS), SWAPS: FAULTS["X13 swap on"][0][SWAPS], **NVME9}
    nodes = [node(changes if number == 3 else {}, f"gpu{number:03d}", number) for number in range(4)]
    different = {
        (finding["subject"], finding["found"], tuple(finding["nodes"]))
        for finding in judge(nodes, CHECKS)["findings"]
        if finding["check"] == "fleet.host" and finding["status"] == "warn"
    }
    assert different == {
        ("swap", "on", ("gpu003",)),
        ("NVMe drives", "9", ("gpu003",)),
        ("mounts", "none", ("gpu003",)),
    }


def test_learnt_values_fail_the_node_that_misses_them() -> None:
    nodes = [node(NVME9 if number == 3 else {}, f"gpu{number:03d}", number) for number in range(4)]
    text = learn(nodes, CHECKS).text
    for line in ("memory_gib = 2015.7 ", "cpus = 224 ", "smt = true ", "numa_nodes = 2 ", "nvme = 10 ", "swap = false ",
                 '.host.mounts."/shared"]', 'type = "nfs4" ', "read_write = true "):  # fmt: skip
        assert line in text
    assert "/scratch" not in text
    report = judge(nodes, CHECKS, decode(text.encode(), "cluster.toml"))
    failed = [
        (finding["subject"], finding["nodes"])
        for finding in report["findings"]
        if finding["check"] == "node.expected" and finding["status"] == "fail"
    ]
    assert failed == [("NVMe drives", ["gpu003"])]


def test_swap_is_not_learnt_as_the_norm() -> None:
    changes = FAULTS["X13 swap on"][0]
    learnt = learn([node(changes, f"gpu{number:03d}", number) for number in range(3)], CHECKS)
    assert "\nswap = " not in learnt.text
    assert any("host.swap" in finding for finding in learnt.refused)


@pytest.mark.parametrize(
    ("line", "recorded"),
    [
        ("      1       0 Ss       0 root                             systemd", True),
        ("  41210   41190 Z     1000 alice                            python3 <defunct>", True),
        ("  48213       1 Sl    1007 guest                            python3", True),
        ("  48213       1 Sl    1008 other                            python3", True),
        ("  48213       1 Sl    1000 alice                            xmrig", True),
        ("  48213       1 Sl    1000 alice                            xmrig2", False),
        ("  10081       1 Sl    1000 alice                            guest", False),
        ("    110       1 Sl    1000 alice                            python3", False),
    ],
)
def test_of_other_processes_nothing_leaves_the_node(line: str, recorded: bool) -> None:
    import re

    assert (re.match(processes(["xmrig"], ["guest", "1008"]).omit, line) is None) == recorded


@pytest.mark.parametrize(
    ("line", "recorded"),
    [
        ("512 29 0:61 / /shared rw - nfs4 192.0.2.1:/a rw", True),
        ("81 29 9:0 / /scratch rw - xfs /dev/md0 rw", True),
        ("29 1 0:2 / / rw - overlay overlay rw", True),
        ("90 29 0:52 / /shared rw - autofs auto.direct rw,direct", True),
        ("26 24 0:25 / /dev/shm rw - tmpfs tmpfs rw", True),
        ("600 29 0:99 / /var/lib/kubelet/pods/x/v rw - nfs4 192.0.2.1:/v rw", True),
        ("601 29 0:98 / /var/lib/kubelet/pods/x/t rw - tmpfs tmpfs rw", False),
        ("602 29 0:97 / /var/lib/docker/overlay2/x/merged rw - overlay overlay rw", False),
        ("22 27 0:21 / /proc rw - proc proc rw", False),
        ("31 23 0:28 / /run rw - tmpfs tmpfs rw", False),
        ("32 23 7:1 / /snap/core/1 ro - squashfs /dev/loop1 ro", False),
        ("33 23 7:1 / /runs rw - ext4 /dev/sdb1 rw", True),
    ],
)
def test_mounts_of_containers_and_of_the_kernel_are_left_out(line: str, recorded: bool) -> None:
    import re

    from preflight.probes.node import UNINTERESTING_MOUNT

    assert (re.match(UNINTERESTING_MOUNT, line) is None) == recorded
