"""The document of an incident: a group of faults in the report."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from preflight.incidents.cost import cost_of
from preflight.incidents.findings import Findings
from preflight.incidents.groups import Group
from preflight.incidents.places import MANY
from preflight.incidents.titles import title
from preflight.model import IMPACTS, ROLL_UP

#: Kinds of places with one switch or its uplinks behind the ports of several nodes, and the first step there.
_SWITCHES = frozenset(("leaf", "unit", "pod", "port", "ports"))
_AT_SWITCH = "Look at the switch that these ports have in common (power, uplinks, configuration) before single cables: "


def document_of(group: Group, findings: Findings, gpus: int) -> dict[str, Any]:
    """Return a group as an incident; ``gpus`` is the number of GPUs of all nodes."""
    roots = sorted({fault.root for fault in group.faults})
    effects = frozenset().union(*(fault.members for fault in group.faults)) - set(roots)
    members = [*roots, *sorted(effects)]  # the cause first
    loud = [number for number in members if findings.is_loud(number)]
    nodes = {name for fault in group.faults for name in (fault.node, *fault.far)}
    listed = [name for name in findings.nodes if name in nodes] + sorted(nodes - findings.nodes.keys())
    subjects = [name for name in dict.fromkeys(map(findings.subject, roots)) if name]
    return {
        "fingerprint": sha256("\0".join(group.identity).encode("utf-8", "surrogatepass")).hexdigest()[:12],
        "title": group.place + _title(findings, group, roots, subjects),
        "status": min((findings[number]["status"] for number in loud), key=ROLL_UP.index),
        "impact": min(map(findings.impact, loud), key=IMPACTS.index),
        "cost": cost_of([findings[number] for number in loud], listed, findings.nodes, gpus),
        "owner": findings.owner(group.faults[0].root),
        "nodes": listed,
        "subjects": subjects,
        "findings": members,
        "first_seen": None,
        "next": (_AT_SWITCH if _is_at_switch(group, findings) else "") + findings[roots[0]]["fix"],
    }  # fmt: skip


def _is_at_switch(group: Group, findings: Findings) -> bool:
    """Return whether ports of several hosts at one switch failed together."""
    root = group.faults[0].root
    return (
        group.identity[0] in _SWITCHES
        and findings.owner(root) == "network"
        and not findings.is_of_switches(root)
        and len({fault.node for fault in group.faults}) >= MANY
    )


def _title(findings: Findings, group: Group, roots: Sequence[int], subjects: Sequence[str]) -> str:
    """Return the message of the cause, with the figures of all parts and their number."""
    first = roots[0]
    several = roots if not findings.names_parts(first) else roots[:1]
    parts = {(fault.node, findings.subject(fault.root)) for fault in group.faults}
    others = len(parts) - 1 if findings.is_part(first) and len(subjects) > 1 else 0
    text = title(findings[first], [str(findings[number]["message"]) for number in several], others)
    return text if others else _with_address(text, group.faults[0].node, findings.subject(first), findings)


def _with_address(text: str, node: str, subject: str, findings: Findings) -> str:
    """Add the bus address of a GPU to its number, if the number may change."""
    if not findings.is_renumbered(node):
        return text
    parts = findings.parts(node)
    for name, address in parts.names.items():
        if address in parts.gpus and subject in (name, address):
            return re.sub(rf"\b{name}\b", f"{name} ({address})", text, count=1)
    return text
