"""Faults: root findings, each with all the findings that it explains."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.incidents.findings import Findings
from preflight.incidents.parts import ends_of
from preflight.model import PROCESS, SHADOW


@dataclass
class NodeFault:
    """An unexplained finding on one node, with all findings it explains."""

    root: int
    node: str
    members: frozenset[int]
    far: frozenset[str] = frozenset()  # nodes at the other end of its cable


def faults_of(findings: Findings) -> list[NodeFault]:
    """Return the faults of all nodes, in the order of the findings."""
    on: dict[str, list[int]] = {}
    for number, finding in enumerate(findings.all):
        if finding["status"] in ("fail", "warn", "unknown"):
            for node in finding["nodes"]:
                on.setdefault(node, []).append(number)
    roots = [
        NodeFault(root, node, members)
        for node, numbers in on.items()
        for root, members in findings.relations.roots(
            {number: findings[number] for number in numbers}, findings.parts(node)
        ).items()
        if not _accepted(findings, root, members)
    ]
    return _with_logs(findings, _with_cables(findings, sorted(roots, key=lambda fault: fault.root)))


def _accepted(findings: Findings, root: int, members: Iterable[int]) -> bool:
    """Return whether a cause and all failures that it explains are waived."""
    return _waived(findings[root]) and all(
        findings[number]["status"] != "fail" or _waived(findings[number]) for number in members
    )


def _waived(finding: Mapping[str, Any]) -> bool:
    """Return whether a waiver covers a finding; shadow is not a waiver."""
    return finding["status"] in ("warn", "unknown") and finding.get("excused", "") not in ("", SHADOW)


def _with_cables(findings: Findings, faults: list[NodeFault]) -> list[NodeFault]:
    """Join faults of switches with those of the hosts cabled to them."""
    of_switches = [fault for fault in faults if findings.is_of_switches(fault.root)]
    if not of_switches:
        return faults
    at: dict[str, dict[int, NodeFault]] = {}  # name of an end -> id of a host's fault -> the fault
    for fault in faults:
        if not findings.is_of_switches(fault.root):
            for end in findings.parts(fault.node).ends(fault.node, findings.subject(fault.root)):
                at.setdefault(end, {})[id(fault)] = fault
    facing = [
        (there, here)
        for there in of_switches
        for here in {id: here for end in ends_of(findings[there.root]) for id, here in at.get(end, {}).items()}.values()
    ]
    at_cable = findings.relations.at_cable
    homes: dict[int, NodeFault] = {}  # id of a switch's fault -> the fault that explains it
    explained: set[int] = set()
    for there, here in facing:
        if any(at_cable(findings[number], findings[there.root]) for number in here.members):
            here.members |= there.members
            homes[id(there)] = here
            explained.add(id(there))
    for there, here in facing:
        home = homes.get(id(there), there)
        if home is not here and at_cable(findings[there.root], findings[here.root]):
            home.members |= here.members
            home.far |= {here.node}
            explained.add(id(here))
    return [fault for fault in faults if id(fault) not in explained]


def _with_logs(findings: Findings, faults: list[NodeFault]) -> list[NodeFault]:
    """Move log findings to the faults that caused them; return the remaining faults."""
    within: dict[int, list[NodeFault]] = {}
    for fault in faults:
        for number in fault.members if not _of_log(findings, fault) else ():
            within.setdefault(number, []).append(fault)
    causes = {number: findings[number] for number in sorted(within)}
    lost, left = _lost_gpus(findings, faults), []
    for fault in faults:
        same, alone = _of_log(findings, fault), set[int]()
        for number in same:
            blamed = findings[number].get("cause", {}).get("nodes", ())
            homes = [
                home for named in findings.relations.of_logs(findings[number], causes) for home in within[named]
                if not home.far.union((home.node,)).isdisjoint(blamed)
                and _of_same_part(findings[number], findings[named], home, findings, lost.get(home.node, _LostGpus()))
            ]  # fmt: skip
            for home in homes:
                home.members |= fault.members - (same - {number})
            at = {home.node for home in homes}.union(*(home.far for home in homes))
            if not homes or not at.issuperset(blamed):
                alone.add(number)
        if same and alone:
            fault.root, fault.members = min(alone), fault.members - (same - alone)
        if alone or not same:
            left.append(fault)
    return left


def _of_same_part(
    logged: Mapping[str, Any], cause: Mapping[str, Any], home: NodeFault, findings: Findings, lost: _LostGpus
) -> bool:
    """Return whether a log may be about the GPU, NIC or process of a finding.

    True if both name the same part, or if one of them names no part; False if they name different processes.
    """
    node = home.node
    parts, places = findings.parts(node), [place.partition(": ")[0] for place in logged.get("parts", ())]
    here = [at.removeprefix(f"{node} ") for at in places if at.startswith(f"{node} ")]
    blamed, held = _processes(here), _processes(cause.get("parts", ()))
    if blamed and held and blamed.isdisjoint(held):
        return False
    devices = parts.gpus.union(parts.names.values(), lost.addresses)
    shown = [lost.numbered(at) or parts.of_subject(at) & devices for at in here]
    is_loss = home is lost.fault and not cause["subject"]
    mine = lost.addresses if is_loss else parts.of_subject(cause["subject"]) & devices
    return not mine or not any(shown) or any(mine & part for part in shown)


@dataclass(frozen=True)
class _LostGpus:
    """The GPUs that a node lacks, and those that are left."""

    fault: NodeFault | None = None
    count: int = 0
    left: tuple[str, ...] = ()
    addresses: frozenset[str] = frozenset()  # of the lost ones; empty unless all are known

    def numbered(self, name: str) -> frozenset[str]:
        """Return the GPUs that may have had a number, such as GPU6, before the loss."""
        if not self.count or not (match := re.fullmatch(r"GPU(\d{1,3})", name)):
            return frozenset()
        number = int(match[1])
        if self.addresses:
            return frozenset(sorted(self.addresses.union(self.left))[number : number + 1])
        return frozenset(self.left[max(0, number - self.count) : number + 1])


def _lost_gpus(findings: Findings, faults: Iterable[NodeFault]) -> dict[str, _LostGpus]:
    """Return the GPUs that nodes lack, by node."""
    lost = {}
    for fault in faults:
        check, parts = findings.check(fault.root), findings.parts(fault.node)
        expected = re.match(r"\d{1,4}\b", str(findings[fault.root]["expected"] or ""))
        if expected and check and any(relation.on == "missing" for relation in check.relations):
            left, subjects = tuple(sorted(parts.gpus)), set(map(findings.subject, fault.members))
            count, addresses = int(expected[0]) - len(left), frozenset(filter(parts.lacks, subjects))
            if len(addresses) != count:
                addresses = frozenset()
            lost[fault.node] = _LostGpus(fault, max(0, count), left, addresses)
    return lost


def _processes(parts: Iterable[str]) -> set[str]:
    return {part for part in parts if part.startswith(PROCESS)}


def _of_log(findings: Findings, fault: NodeFault) -> set[int]:
    """Return the root of a log's fault and findings like it; none without a cause.

    These have the check and subject of the root, and are not explained by it.
    """
    root, parts = findings[fault.root], findings.parts(fault.node)
    same = {
        number for number in fault.members
        if (findings[number]["check"], findings[number]["subject"]) == (root["check"], root["subject"])
        and (number == fault.root or not findings.relations.explains(root, findings[number], parts))
    }  # fmt: skip
    return same if any("cause" in findings[number] for number in same) else set()
