"""Faults of the server around the GPUs, planted on one node: drives, mounts, services, processes, NIC firmware."""

from __future__ import annotations

import pytest

from preflight.facts.inventory import DISK_SPACE
from preflight.parsers.host.mounts import MOUNTS
from preflight.parsers.host.processes import PROCESSES
from preflight.parsers.host.services import FAILED
from preflight.probes.declared import space, units
from tests.support.machines import hgx_h100
from tests.support.machines.inventory import DISKS, HEAD, INIT, ROOT_SPACE, SERVICES, SHARED, unit_list
from tests.support.machines.records import ok, ran
from tests.support.whole_nodes import Fault, Findings, Table, both, firmware, health, loud, record, site

NAME = "hgx-h100"

WITH_ZOMBIE = INIT + "   4711    4242 Z     1001 alice                            python3 <defunct>\n"
WITH_MINER = INIT + "  48213       1 Sl    1007 guest                            xmrig\n"
MUNGE_STOPPED = (
    "Id=slurmd.service\nNames=slurmd.service\nLoadState=loaded\nActiveState=active\nSubState=running\n\n"
    "Id=munge.service\nNames=munge.service\nLoadState=loaded\nActiveState=inactive\nSubState=dead\n"
)


def twice(output: str) -> Fault:
    """Use this list of processes at both ends of the window."""
    return record(PROCESSES, {**ran(output), "at_s": 421001.5, "again": {**ran(output), "at_s": 421011.5}})


FAULTS: dict[str, tuple[Fault, Findings]] = {
    "PCIe replays since boot beyond a wrong bit in 10^12": (
        health(3, pcie_replays=900_000), {("warn", "pcie.replay", "0000:61:00.0")},
    ),
    "firmware of one NIC": (firmware("mlx5_9", "28.39.1002"), {("warn", "rdma.firmware", "mlx5_9")}),
    "an NVMe drive that the kernel gave up": (
        record("file:/sys/class/nvme/nvme3/state", ok("dead\n")),
        {("warn", "host.inventory", "nvme3")},
    ),
    "shared storage not mounted": (
        both(record(MOUNTS, ok(DISKS)), record(space(SHARED).key, ran(HEAD + ROOT_SPACE))),
        {("fail", "host.mounts", SHARED)},
    ),
    "scratch disk full": (
        record(DISK_SPACE, ran(HEAD + ROOT_SPACE + "xfs 30725966397440 0 3000975360 3000870112 /scratch\n")),
        {("warn", "host.file-systems", "/scratch")},
    ),
    "a mount that failed at boot": (
        record(FAILED, ran(unit_list("data.mount loaded failed failed /data"))),
        {("warn", "host.failed-units", "data.mount")},
    ),
    "a service of which nothing says that a job needs it": (
        record(FAILED, ran(unit_list("ipmievd.service loaded failed failed IPMI event daemon"))),
        {("unknown", "host.failed-units", "")},
    ),
    "munge stopped": (record(units(SERVICES).key, ran(MUNGE_STOPPED)), {("fail", "host.services", "munge.service")}),
    "a program that must not run": (twice(WITH_MINER), {("fail", "host.processes", "xmrig")}),
    "a zombie": (twice(WITH_ZOMBIE), {("warn", "host.zombies", "parent 4242")}),
}  # fmt: skip

TABLES = [Table(NAME, hgx_h100, FAULTS)]


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_gives_exactly_its_findings(name: str) -> None:
    plant, expected = FAULTS[name]
    assert loud(plant(hgx_h100(NAME)), site(NAME)) == expected
