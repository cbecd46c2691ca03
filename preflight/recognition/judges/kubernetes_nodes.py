"""Judges of a described node: its conditions, taints and devices."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.model import Finding, failed, passed, unknown, warned
from preflight.parsers.cluster.kubernetes_node import NodeDescription
from preflight.recognition.judges import PastedValue
from preflight.recognition.judges.kubernetes_words import DEVICES, GOOD_IF_TRUE, ILL, ORDINARY_TAINT
from preflight.textprep.plain_text import ends_of


def _node_name(node: NodeDescription) -> str:
    return f"node {node.name}" if node.name else "the node"


def node_conditions(part: PastedValue) -> Iterator[Finding]:
    """Report bad conditions, a cordon, and taints that keep pods off the node."""
    node: NodeDescription = part.value
    bad = False
    for item in node.conditions:
        good = item.status == ("True" if GOOD_IF_TRUE.fullmatch(item.type) else "False")
        if good or (item.type == "NetworkUnavailable" and item.status == "Unknown"):
            continue
        bad = True
        report = failed if item.type == "Ready" or item.type.endswith("Pressure") else warned
        words = f": {ends_of(item.message, 320)}" if item.message else ""
        yield report(f"{_node_name(node)}: {item.type} is {item.status} ({item.reason}{words}; line {item.line})",
                     subject=node.name, found=f"{item.type}={item.status}", evidence=part.evidence,
                     fix=f"`kubectl describe node {node.name}`: events; kubelet's log and `dmesg` of the"
                         " node.")  # fmt: skip
    if node.unschedulable:
        bad = True
        yield warned(
            f"{_node_name(node)} is cordoned: it accepts no new pods",
            subject=node.name,
            found="unschedulable",
            expected="schedulable",
            evidence=part.evidence,
            fix=f"Find out why, then `kubectl uncordon {node.name}`.",
        )
    for taint in node.taints:
        if not ORDINARY_TAINT.match(taint) and not taint.endswith("PreferNoSchedule"):
            bad = True
            report = warned if ILL.search(taint) else unknown
            yield report(f"{_node_name(node)}: the taint {taint} keeps pods off", subject=node.name, found=taint,
                         expected="no taint, or one that the pod tolerates", evidence=part.evidence,
                         fix="Find out who set it and why: a controller of the cluster, or a person.")  # fmt: skip
    if not bad and part.complete and any(item.type == "Ready" for item in node.conditions):
        yield passed(f"{_node_name(node)} is ready and reports no pressure", evidence=part.evidence)


def node_devices(part: PastedValue) -> Iterator[Finding]:
    """Compare the node's allocatable devices with its capacity."""
    node: NodeDescription = part.value
    fewer = False
    for name, number in node.capacity.items():
        offered = node.allocatable.get(name)
        if DEVICES.fullmatch(name) and offered is not None and offered < number:
            fewer = True
            yield failed(
                f"{_node_name(node)}: {offered} of {number} {name} are allocatable: the device plug-in "
                "reports the rest unhealthy",
                subject=node.name,
                found=offered,
                expected=number,
                evidence=part.evidence,
                fix="Run `kubectl logs` for the device plug-in on that node, and on the node "
                "`nvidia-smi` and `dmesg | grep -i xid`.",
            )
    counted = [f"{number} {name}" for name, number in node.allocatable.items() if DEVICES.fullmatch(name)]
    if counted and not fewer:
        yield passed(f"{_node_name(node)} offers all of its {', '.join(counted[:6])}", evidence=part.evidence)
