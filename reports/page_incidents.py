"""The incidents of a report for a page.

<<<<<<< HEAD
Each names what is wrong, what it costs, who acts, and which findings are behind it.
=======
Each names what is wrong, what it costs, who acts, and the findings behind it.
>>>>>>> 0028e6c1 (reports: the page on incidents, in standard words)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from preflight.reports.sanitize import fold

Document = Mapping[str, Any]

#: What each impact means to the reader of the page.
IMPACT = {
    "blocks-job": "blocks a job",
    "slows-job": "slows a job down",
    "loses-redundancy": "loses redundancy",
    "drifts": "drifts from its peers or its declaration",
}

#: Who acts on it.
OWNER = {"node": "node", "network": "network", "site": "site settings", "job": "job"}

#: Findings of one incident that the page lists, and incidents that it shows before the rest is folded.
SHOWN_FINDINGS, SHOWN_INCIDENTS = 12, 10


@dataclass(frozen=True)
class IncidentCard:
    """One incident."""

    ident: str  # the permalink: the same in every report while the cause lasts
    incident: Document
    impact: str
    owner: str
    nodes: str
    node_count: int
    findings: tuple[Document, ...]
    more: int  # findings beyond those


def incident_cards(report: Document) -> tuple[IncidentCard, ...]:
    """Return the incidents of a report, the gravest first.

    A report of an older version has none.
    """
    return tuple(_card(report, incident) for incident in report.get("incidents", ()))


def _card(report: Document, incident: Document) -> IncidentCard:
    places = incident["findings"]
    nodes = incident["nodes"]
    return IncidentCard(
        ident=f"incident-{incident['fingerprint']}",
        incident=incident,
        impact=IMPACT[incident["impact"]],
        owner=OWNER[incident["owner"]],
        nodes=fold(nodes),
        node_count=len(nodes),
        findings=tuple(report["findings"][place] for place in places[:SHOWN_FINDINGS]),
        more=max(0, len(places) - SHOWN_FINDINGS),
    )
