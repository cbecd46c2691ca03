"""Each planted fault of the nodes is one incident, with the right owner and impact."""

from __future__ import annotations

import random
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from preflight.incidents import incidents
from tests.scenarios import test_switches as fabric
from tests.support import whole_nodes
from tests.support.clos import Clos
from tests.support.whole_nodes import CHECKS, Table

TABLES: dict[str, Table] = {}
for table in whole_nodes.tables():  # of one node in several modules
    earlier = TABLES.get(table.node, table)
    TABLES[table.node] = replace(table, faults={**earlier.faults, **table.faults})

LOUD = ("fail", "warn")

FAULTS = [(node, name) for node, table in TABLES.items() for name in table.faults]

#: Table entries that plant two unrelated faults, and their incidents.
SEVERAL = {
    "uncorrected memory error, and a machine check": 2,  # two parts
    "PCIe stuck at generation 1 under load": 2,  # the load is a process, which counts as left over before a job
    "card stuck at PCIe 1 under load": 2,
    "boot options of a fault long gone": 2,
    "image without the HPC limits": 2,  # two limits
    "image with a small /dev/shm and few ports": 2,
}

#: Cause -> owner, impact of a failure, impact of a warning (empty: no planted fault has it). Written by hand.
EXPECTED: Mapping[str, tuple[str, str, str]] = {
    "checkpoint.age": ("job", "", "loses-redundancy"),
    "container.device-plugin": ("job", "slows-job", ""),
    "container.gpu-devices": ("job", "blocks-job", ""),
    "container.networks": ("job", "slows-job", ""),
    "container.rdma-address": ("job", "slows-job", ""),
    "container.state": ("job", "", "drifts"),
    "counters.balance": ("job", "", "slows-job"),
    "counters.congestion": ("network", "", "slows-job"),
    "counters.cpu": ("site", "", "slows-job"),
    "counters.flaps": ("network", "blocks-job", ""),
    "counters.gpu-links": ("node", "slows-job", "slows-job"),
    "counters.link-quality": ("network", "slows-job", "slows-job"),
    "counters.loss": ("network", "slows-job", "slows-job"),
    "counters.receiver": ("site", "slows-job", "slows-job"),
    "counters.traffic-class": ("job", "slows-job", ""),
    "counters.visible": ("site", "", "drifts"),
    "gpu.clocks": ("site", "", "slows-job"),
    "gpu.compute-mode": ("site", "blocks-job", "drifts"),
    "gpu.count": ("node", "blocks-job", ""),
    "gpu.driver": ("node", "blocks-job", ""),
    "gpu.ecc-corrected": ("node", "", "drifts"),
    "gpu.ecc-mode": ("site", "loses-redundancy", ""),
    "gpu.ecc-uncorrected": ("node", "blocks-job", ""),
    "gpu.fabric-state": ("node", "blocks-job", ""),
    "gpu.firmware": ("site", "", "drifts"),
    "gpu.left-over-processes": ("job", "", "drifts"),
    "gpu.memory-headroom": ("job", "", "drifts"),
    "gpu.mig": ("site", "blocks-job", "drifts"),
    "gpu.pcie-link": ("node", "slows-job", ""),
    "gpu.persistence": ("site", "", "drifts"),
    "gpu.power-limit": ("site", "", "slows-job"),
    "gpu.process-per-gpu": ("job", "", "slows-job"),
    "gpu.recovery-action": ("node", "blocks-job", ""),
    "gpu.retired-pages": ("node", "loses-redundancy", ""),
    "gpu.right-part": ("node", "slows-job", ""),
    "gpu.row-remap": ("node", "loses-redundancy", "loses-redundancy"),
    "gpu.temperature-margin": ("node", "slows-job", "slows-job"),
    "gpu.throttling": ("node", "slows-job", ""),
    "gpu.utilisation-visible": ("node", "", "drifts"),
    "gpudirect.iommu": ("site", "slows-job", ""),
    "gpudirect.path": ("site", "slows-job", "slows-job"),
    "gpudirect.peer-memory": ("site", "slows-job", "slows-job"),
    "host.failed-units": ("site", "", "drifts"),
    "host.file-systems": ("site", "", "drifts"),
    "host.inventory": ("node", "", "drifts"),
    "host.local-ports": ("site", "blocks-job", "drifts"),
    "host.memlock": ("site", "blocks-job", ""),
    "host.mounts": ("site", "blocks-job", ""),
    "host.open-files": ("site", "", "drifts"),
    "host.processes": ("site", "slows-job", ""),
    "host.services": ("site", "blocks-job", ""),
    "host.shm": ("site", "blocks-job", ""),
    "host.time-sync": ("site", "", "drifts"),
    "host.zombies": ("node", "", "drifts"),
    "kernel.boot-options": ("site", "", "slows-job"),
    "kernel.cpu-governor": ("site", "", "slows-job"),
    "kernel.events": ("node", "blocks-job", "drifts"),
    "kernel.modules": ("site", "blocks-job", ""),
    "kernel.numa-balancing": ("site", "", "slows-job"),
    "nccl.contradictions": ("job", "", "slows-job"),
    "nccl.debug-output": ("job", "", "drifts"),
    "nccl.fabric-fit": ("job", "", "slows-job"),
    "nccl.gid-index": ("job", "blocks-job", ""),
    "nccl.ib-hca": ("job", "slows-job", "slows-job"),
    "nccl.left-over-disables": ("job", "slows-job", "slows-job"),
    "nccl.load-balancing": ("job", "", "slows-job"),
    "nccl.mnnvl": ("job", "blocks-job", ""),
    "nccl.named-files": ("job", "slows-job", ""),
    "nccl.pinned-choices": ("job", "", "slows-job"),
    "nccl.pytorch-variables": ("job", "", "drifts"),
    "nccl.sharp": ("job", "", "slows-job"),
    "nccl.sharp-plugin": ("job", "", "slows-job"),
    "nccl.socket-ifname": ("job", "blocks-job", ""),
    "nccl.socket-threads": ("job", "", "drifts"),
    "nccl.unknown-variables": ("job", "", "drifts"),
    "nccl.variable-values": ("job", "blocks-job", "slows-job"),
    "nccl.variable-version": ("job", "", "drifts"),
    "numa.affinity": ("job", "slows-job", "slows-job"),
    "numa.memory": ("job", "", "slows-job"),
    "numa.nccl-affinity": ("job", "", "slows-job"),
    "nvlink.errors": ("node", "", "drifts"),
    "nvlink.fabric-manager": ("site", "blocks-job", "drifts"),
    "nvlink.imex": ("site", "slows-job", "slows-job"),
    "nvlink.links": ("node", "slows-job", ""),
    "nvlink.switches": ("node", "blocks-job", ""),
    "optics.ber": ("network", "", "drifts"),
    "optics.fec": ("network", "", "drifts"),
    "optics.module": ("network", "drifts", "drifts"),
    "pcie.max-read-request": ("site", "", "slows-job"),
    "pcie.nic-link": ("node", "slows-job", "slows-job"),
    "pcie.relaxed-ordering": ("site", "", "slows-job"),
    "pcie.replay": ("node", "", "drifts"),
    "rails.isolated": ("site", "", "slows-job"),
    "rails.subnets": ("site", "slows-job", ""),
    "rdma.active-mtu": ("network", "slows-job", ""),
    "rdma.device-count": ("node", "slows-job", ""),
    "rdma.device-nodes": ("site", "slows-job", ""),
    "rdma.firmware": ("site", "", "drifts"),
    "rdma.link-layer": ("site", "slows-job", ""),
    "rdma.port-rate": ("network", "slows-job", ""),
    "rdma.port-state": ("network", "slows-job", ""),
    "rdma.registration-cache": ("job", "", "slows-job"),
    "rdma.registered": ("site", "slows-job", ""),
    "roce.chain": ("site", "slows-job", ""),
    "storage.network": ("site", "slows-job", ""),
    "switch.dscp": ("network", "slows-job", ""),
    "switch.ets": ("network", "slows-job", ""),
    "switch.mtu": ("network", "blocks-job", ""),
    "switch.pfc": ("network", "slows-job", ""),
    "topology.nearest-nic": ("site", "", "slows-job"),
    "versions.compatibility": ("site", "blocks-job", ""),
    "versions.driver-files": ("site", "blocks-job", ""),
    "versions.nccl": ("site", "", "drifts"),
    "xid.gpu": ("node", "blocks-job", "drifts"),
    "xid.nvswitch": ("node", "blocks-job", ""),
}

#: The same for faults of switches (``test_switches.FAULTS``), and their cables.
OF_SWITCHES: Mapping[str, tuple[str, str, str]] = {
    "fabric.host-storm": ("node", "slows-job", ""),
    "ethernet.peers-equal": ("network", "", "drifts"),
    "fabric.pause-root": ("network", "slows-job", "slows-job"),
    "link.counters-agree": ("network", "", "slows-job"),
    "link.dscp": ("network", "slows-job", "slows-job"),
    "link.errors": ("network", "slows-job", "slows-job"),
    "link.flaps": ("network", "blocks-job", ""),
    "link.mtu": ("network", "blocks-job", "drifts"),
    "link.pfc": ("network", "slows-job", ""),
    "link.speed-fec": ("network", "slows-job", "slows-job"),
    "optics.fec-margin": ("network", "slows-job", "slows-job"),
    "optics.switch-end": ("network", "slows-job", "slows-job"),
    "switch.bgp": ("network", "loses-redundancy", ""),
    "switch.buffer-pools": ("network", "", "slows-job"),
    "switch.ecn": ("network", "slows-job", ""),
    "switch.ecn-before-pfc": ("network", "", "slows-job"),
    "switch.hash": ("network", "", "slows-job"),
    "switch.headroom": ("network", "slows-job", "slows-job"),
    "switch.lossless-drops": ("network", "slows-job", ""),
    "switch.marks": ("network", "", "slows-job"),
    "switch.queue-depth": ("network", "", "slows-job"),
    "switch.watchdog-fired": ("network", "slows-job", ""),
}

#: Faults with a higher cost, or another owner, than their cause alone.
RATHER = {
    **dict.fromkeys(("hgx-h100: queue pair died", "hgx-h100-roce: queue pair died"), ("network", "blocks-job")),
    **dict.fromkeys(("hgx-h100: receiver gave up", "hgx-h100-roce: receiver gave up"), ("site", "blocks-job")),
    **dict.fromkeys(
        (f"hgx-h100{more}: link that came back twelve times" for more in ("", "-roce")), ("network", "drifts")
    ),
    "l40s-pcie: ECC of the GDDR6 switched off": ("site", "slows-job"),  # and the cards differ in memory
    "hgx-h100-roce: bit error ratio before FEC": ("network", "slows-job"),  # and the counters show it
    "gb200-tray: driver asks to recover the IMEX domain": ("site", "blocks-job"),  # its action is the site's
}


@cache
def alone(node: str, name: str) -> Mapping[str, Any]:
    """Return the report of a node with one planted fault, without permanent findings."""
    table = TABLES[node]
    report = whole_nodes.report(table.faults[name][0](table.describe(node)), whole_nodes.site(node))
    return report


@pytest.mark.parametrize(("node", "name"), FAULTS)
def test_planted_fault_is_one_incident(node: str, name: str) -> None:
    report = alone(node, name)
    always = TABLES[node].always
    loud = [finding for finding in TABLES[node].faults[name][1] - always if finding[0] != "unknown"]
    assert len(report["incidents"]) == SEVERAL.get(name, int(bool(loud))), report["incidents"]
    for incident in report["incidents"]:
        cause = report["findings"][incident["findings"][0]]
        assert cause["check"] in EXPECTED, f"add the owner and impact of {cause['check']} to EXPECTED in {__file__}"
        owner, of_failure, of_warning = EXPECTED[cause["check"]]
        expected = RATHER.get(f"{node}: {name}", (owner, of_failure if incident["status"] == "fail" else of_warning))
        assert (incident["owner"], incident["impact"]) == expected, cause["check"]
    grouped = {place for incident in report["incidents"] for place in incident["findings"]}
    assert {number for number, finding in enumerate(report["findings"]) if finding["status"] in LOUD} <= grouped


@pytest.mark.parametrize("name", [name for name, (_, (status, *_)) in fabric.FAULTS.items() if status in LOUD])
def test_planted_fault_of_a_switch_has_its_owner(name: str) -> None:
    plant, (status, check, _) = fabric.FAULTS[name]
    clos = Clos()
    plant(clos)
    incidents = fabric.report(clos)["incidents"]
    owner, *impacts = OF_SWITCHES[check]
    if name in ("slow receiver behind two tiers", "flaps of a host alone"):  # a host
        owner = "node"
    impact = impacts[status == "warn"]
    assert [(incident["owner"], incident["impact"]) for incident in incidents] == [(owner, impact)]


# --- one fault on each of two nodes; two faults of one node are in test_combinations.py ---------------

#: Pairs of the planted faults of one node.
PAIRS, PAIRED = 1000, "hgx-h100-roce"


def _pairs() -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    seeded = random.Random(20)
    names = [name for name in TABLES[PAIRED].faults if name not in SEVERAL]
    return [(alone(PAIRED, first), alone(PAIRED, second)) for first, second in
            (seeded.sample(names, 2) for _ in range(PAIRS))]  # fmt: skip


def _joined(first: Mapping[str, Any], second: Mapping[str, Any]) -> set[str]:
    """Return the fingerprints of the findings of two reports together, the second on another node."""
    other = deepcopy({key: second[key] for key in ("nodes", "findings")})
    other["nodes"][0]["name"] = "other"
    for finding in other["findings"]:
        finding["nodes"] = ["other"]
    findings = [*first["findings"], *other["findings"]]
    return _fingerprints(
        {"incidents": incidents({"nodes": [*first["nodes"], *other["nodes"]], "findings": findings}, CHECKS)}
    )


def _fingerprints(report: Mapping[str, Any]) -> set[str]:
    return {incident["fingerprint"] for incident in report["incidents"]}


def test_pairs_on_two_nodes_are_the_union_of_both() -> None:
    for first, second in _pairs():
        moved = _joined({"nodes": [], "findings": []}, second)
        assert _joined(first, second) == _fingerprints(first) | moved
