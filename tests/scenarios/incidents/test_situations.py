"""Situations of a fleet: two or three simultaneous faults, and their expected incidents.

The incidents were written down before the situations were run. Each has the check of its cause, nodes, owner and
impact; the healthy twins give none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from preflight.checks import registry
from preflight.evidence.document import from_document
from preflight.expectations.cluster_file import decode
from preflight.judge import judge
from preflight.parsers.host.services import SERVICES
from preflight.reports.sanitize import fold
from tests.scenarios.incidents.combinations import HALF, MORE, PLANTED
from tests.support.machines import Machine, evidence, hgx_h100
from tests.support.machines.b200 import hgx_b200
from tests.support.machines.fleet import member
from tests.support.machines.gb200 import gb200_tray
from tests.support.machines.records import ran
from tests.support.planted_fleet import CLUSTER
from tests.support.whole_nodes import Fault, both, every_rail, gpu, health, nic, node

FAULTS: Mapping[str, Fault] = {**MORE, **PLANTED}
KINDS: Mapping[str, Callable[[], Machine]] = {
    "roce": lambda: hgx_h100("", roce=True),
    "infiniband": lambda: hgx_h100(""),
    "b200": lambda: hgx_b200(""),
    "gb200": lambda: gb200_tray(""),
}

LEAF_7, LEAF_8 = every_rail(leaf="leaf-07"), every_rail(leaf="leaf-08")
IMEX_STOPPED = node(records={SERVICES: ran(
    "Id=nvidia-fabricmanager.service\nLoadState=loaded\nActiveState=failed\nSubState=failed\n\n"
    "Id=nvidia-imex.service\nLoadState=loaded\nActiveState=inactive\nSubState=dead\n"
)})  # fmt: skip


@dataclass(frozen=True)
class Situation:
    """Groups of nodes by kind and size, faults by node number, and the incidents."""

    groups: Sequence[tuple[str, int]]
    faults: Mapping[int, Fault]
    incidents: Sequence[str] = ()
    cluster: str = ""
    titles: Sequence[str] = field(default_factory=tuple)  # parts of titles

    def documents(self) -> list[dict[str, Any]]:
        """Return the nodes, numbered across all groups."""
        kinds = [kind for kind, count in self.groups for _ in range(count)]
        nodes = (member(KINDS[kind](), f"gpu{number:03d}", number, len(kinds), 7)
                 for number, kind in enumerate(kinds, start=1))  # fmt: skip
        return [evidence(self.faults[node.number](node) if node.number in self.faults else node) for node in nodes]


def several(numbers: Sequence[int], fault: str | Fault, *more: Fault) -> dict[int, Fault]:
    """Plant the same faults in several nodes."""
    planted = FAULTS[fault] if isinstance(fault, str) else fault
    return dict.fromkeys(numbers, both(planted, *more))


SITUATIONS: Mapping[str, Situation] = {
    "one leaf of a rail slow, a port of another rail down": Situation(
        [("roce", 24)], {**several((1, 2, 3), "port 5 slow"), 4: FAULTS["port 9 down"]},
        ["rdma.port-rate @gpu[001-003] network slows-job", "rdma.port-state @gpu004 network slows-job"],
        CLUSTER, ["all on leaf-"],
    ),
    "several ports of each node slow at one leaf of two, and a GPU off the bus": Situation(
        [("roce", 16)],
        {**several(range(1, 9), LEAF_7), **several(range(9, 17), LEAF_8),
         1: both(LEAF_7, nic("mlx5_5", rate=HALF), nic("mlx5_9", rate=HALF), nic("mlx5_10", rate=HALF)),
         2: both(LEAF_7, nic("mlx5_5", rate=HALF)), 3: both(LEAF_7, nic("mlx5_9", rate=HALF), gpu(5, on_bus=False))},
        ["rdma.port-rate @gpu[001-003] network slows-job", "gpu.count @gpu003 node blocks-job"],
        CLUSTER, ["all on leaf-07"],
    ),
    "power brake in a rack, MTU of a third of the nodes, ECC of one GPU": Situation(
        [("roce", 32)],
        {**several(range(1, 6), "power brake"), **several(range(13, 24), "interface left at MTU 1500"),
         32: FAULTS["ECC off"]},
        ["gpu.throttling @gpu[001-005] node slows-job", "roce.chain @gpu[013-023] site slows-job",
         "gpu.ecc-mode @gpu032 site loses-redundancy"],
        CLUSTER + '\n[racks]\nr1 = "gpu[001-008]"\nr2 = "gpu[009-032]"\n', ["all in rack r1"],
    ),
    "NVLink of one GPU and IMEX of another tray in an NVL72": Situation(
        [("gb200", 18)], {3: gpu(2, nvlink=False), 7: IMEX_STOPPED},
        ["nvlink.links @gpu003 node slows-job", "nvlink.imex @gpu007 site slows-job"],
    ),
    "two models: an old driver on one, a hot GPU in the other": Situation(
        [("infiniband", 8), ("b200", 8)],
        {3: FAULTS["another driver"], 12: health(4, temperature_c=87, temperature_margin_c=0, event_reasons=0x48)},
        ["fleet.driver-equal @gpu003 site slows-job", "gpu.temperature-margin @gpu012 node slows-job"],
    ),
    "the kernel log proves a lost GPU on one node, and names one that answers again on another": Situation(
        [("infiniband", 8)],
        {3: both(FAULTS["GPU off the bus in the log"], gpu(3, on_bus=False)), 5: FAULTS["GPU off the bus in the log"]},
        ["gpu.count @gpu003 node blocks-job", "xid.gpu @gpu005 node blocks-job"],
        "[class.h100]\ngpus = 8\n",
    ),
    "a rail that is down everywhere, and little locked memory on two nodes": Situation(
        [("roce", 12)],
        {**several(range(1, 13), "port down"), **several((8, 9), "port down", FAULTS["low memlock"])},
        ["rdma.port-state @gpu[001-012] network slows-job", "host.memlock @gpu[008-009] site blocks-job"],
        CLUSTER,
    ),
    "a variable left on all nodes, another one on one": Situation(
        [("infiniband", 12)],
        {**several(range(1, 13), "NCCL_P2P_DISABLE left over"),
         4: both(FAULTS["NCCL_P2P_DISABLE left over"], FAULTS["NCCL_IB_DISABLE too"])},
        ["nccl.left-over-disables @gpu[001-012] job slows-job", "nccl.left-over-disables @gpu004 job slows-job"],
    ),
    "no driver and a NIC without its own on one node, the fabric manager of another": Situation(
        [("infiniband", 8)],
        {2: both(FAULTS["driver not loaded"], FAULTS["HCA without driver"]),
         5: FAULTS["fabric manager of another version"]},
        ["gpu.driver @gpu002 node blocks-job", "rdma.registered @gpu002 site slows-job",
         "nvlink.fabric-manager @gpu005 site blocks-job"],
    ),
    "PFC off in the switch and MTU 1500 on the same nodes": Situation(
        [("roce", 24)],
        several(range(11, 17), "PFC off in the switch", FAULTS["MTU 1500 on port 9"]),
        ["switch.pfc @gpu[011-016] network slows-job", "roce.chain @gpu[011-016] site slows-job"],
        CLUSTER,
    ),
    "a dirty fibre, a flapping port and a dead cable": Situation(
        [("roce", 16)],
        {1: both(FAULTS["little light"], FAULTS["symbol errors all the time"]), 2: FAULTS["port 9 flaps"],
         3: FAULTS["port 10 down"]},
        ["optics.module @gpu001 network slows-job", "counters.flaps @gpu002 network blocks-job",
         "rdma.port-state @gpu003 network slows-job"],
        CLUSTER,
    ),
    "another BIOS in part of the fleet, a GPU that needs a reset, small /dev/shm": Situation(
        [("infiniband", 16)],
        {**several(range(1, 5), "another BIOS"), 9: FAULTS["GPU3 needs a reset"],
         **several((10, 14), "small /dev/shm")},
        ["fleet.host @gpu[001-004] site drifts", "gpu.recovery-action @gpu009 node blocks-job",
         "host.shm @gpu[010,014] site blocks-job"],
    ),
    # healthy twins
    "two leaves": Situation([("roce", 12)], {**several(range(1, 7), LEAF_7), **several(range(7, 13), LEAF_8)},
                            cluster=CLUSTER),
    "an NVL72": Situation([("gb200", 18)], {}),
    "two models, each with its own firmware": Situation([("infiniband", 8), ("b200", 8)], {}),
    "errors of applications in three logs": Situation(
        [("infiniband", 8)], several((1, 2, 3), "errors of applications (no fault)")
    ),
}  # fmt: skip


def named(report: Mapping[str, Any]) -> list[str]:
    """Return check, nodes, owner and impact of each incident."""
    return [
        f"{report['findings'][incident['findings'][0]]['check']} @{fold(incident['nodes'])} {incident['owner']}"
        f" {incident['impact']}"
        for incident in report["incidents"]
    ]


@pytest.mark.parametrize("name", SITUATIONS)
def test_a_situation(name: str) -> None:
    situation = SITUATIONS[name]
    evidences = [from_document(document, document["node"]) for document in situation.documents()]
    cluster = decode(situation.cluster.encode(), "cluster.toml") if situation.cluster else None
    report = judge(evidences, registry().checks, cluster)
    assert sorted(named(report)) == sorted(situation.incidents)
    titles = "\n".join(incident["title"] for incident in report["incidents"])
    assert [words for words in situation.titles if words not in titles] == []
