"""The incidents of a report for a page: fault, cost, owner and findings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from preflight.incidents.parts import Parts, devices
from preflight.reports import cable_svg
from preflight.reports.incident_text import markdown
from preflight.reports.sanitize import fold

Document = Mapping[str, Any]

#: Display text of each impact.
IMPACT = {
    "blocks-job": "blocks a job",
    "slows-job": "slows a job down",
    "loses-redundancy": "loses redundancy",
    "drifts": "drifts from its peers or its declaration",
}

#: Display text of each owner.
OWNER = {"node": "node", "network": "network", "site": "site settings", "job": "job"}

#: Maximum numbers of findings listed per incident, of incidents shown before the rest is folded, and of incidents on
#: the page.
SHOWN_FINDINGS, SHOWN_INCIDENTS, MOST_INCIDENTS = 12, 10, 250

#: Maximum numbers of nodes and switch ports listed for an incident.
MOST_NAMED, MOST_CABLES = 8, 8

#: Maximum number of Ethernet cables drawn for an incident.
MOST_DRAWN = 4

#: Commands with a copy button: they contain only words, quotes and patterns for the shell.
_COMMAND = re.compile(r"(?=[^ ]*[a-z])[A-Za-z0-9][\w./:=@%+,'\"\[\]{}*^-]*(?: [\w./:=@%+,'\"\[\]{}*^-]+)+", re.ASCII)
_CODE = re.compile(r"`([^`\n]{1,300})`")


@dataclass(frozen=True)
class Cable:
    """The switch port at the other end of an incident's port."""

    node: str
    port: str
    switch: str
    switch_port: str


@dataclass(frozen=True)
class IncidentCard:
    """One incident as shown on the page."""

    ident: str  # permalink: stable across reports while the cause persists
    incident: Document
    impact: str
    owner: str
    nodes: str
    node_count: int
    findings: tuple[Document, ...]
    more: int  # number of further findings
    cables: tuple[Cable, ...]
    more_cables: int
    drawn: tuple[Markup, ...]  # pictures of Ethernet cables with both ends
    command: str  # command to copy; empty if the next step has none
    markdown: str


def incident_cards(report: Document) -> tuple[IncidentCard, ...]:
    """Return the incidents of a report, the most severe first.

    Reports of older versions have none.
    """
    nodes = {node["name"]: node for node in report["nodes"]}
    return tuple(
        _card(report, number, nodes) for number in range(min(MOST_INCIDENTS, len(report.get("incidents", ()))))
    )


def _card(report: Document, number: int, by_name: Mapping[str, Document]) -> IncidentCard:
    incident = report["incidents"][number]
    places = incident["findings"]
    nodes = incident["nodes"]
    cables = _cables(incident, by_name)
    return IncidentCard(
        ident=f"incident-{incident['fingerprint']}",
        incident=incident,
        impact=IMPACT.get(incident["impact"], incident["impact"]),
        owner=OWNER.get(incident["owner"], incident["owner"]),
        nodes=fold(nodes),
        node_count=len(nodes),
        findings=tuple(report["findings"][place] for place in places[:SHOWN_FINDINGS]),
        more=max(0, len(places) - SHOWN_FINDINGS),
        cables=tuple(cables[:MOST_CABLES]),
        more_cables=max(0, len(cables) - MOST_CABLES),
        drawn=tuple(map(cable_svg.draw, _drawn(report, incident)[:MOST_DRAWN])),
        command=next(filter(_COMMAND.fullmatch, _CODE.findall(incident["next"] or "")), ""),
        markdown=markdown(report, [number]),
    )


def _drawn(report: Document, incident: Document) -> list[Document]:
    """Return the Ethernet cables that the subjects of an incident name."""
    return [
        cable
        for cable in report.get("cables", ())
        if {cable["name"], *(f"{end['device']} {end['port']}" for end in cable["ends"])} & set(incident["subjects"])
    ]


def _cables(incident: Document, by_name: Mapping[str, Document]) -> list[Cable]:
    """Return the switch ports cabled to a network incident's ports, from LLDP."""
    if incident["owner"] != "network":
        return []
    cables: list[Cable] = []
    for name in incident["nodes"]:
        node = by_name.get(name, {})
        if nics := {nic["name"]: nic for nic in devices(node, "nics") if nic.get("leaf")}:
            parts = Parts.of(node)
            ports = {part for subject in incident["subjects"] for part in parts.of_subject(subject)}
            ends = ((port, nics[port]) for port in sorted(ports & set(nics)))
            cables += [Cable(name, port, nic["leaf"], nic.get("leaf_port", "")) for port, nic in ends]
    return cables
