"""Data for the page's script: nodes in columns, findings and incidents by node.

Every text is a single line of visible characters, as shown on the page. Node names are stored once; all other data
refer to them by index.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from preflight.reports.page_cards import CheckCard, Gap
from preflight.reports.page_incidents import IncidentCard
from preflight.reports.page_nodes import NodeGroup, RailLayout
from preflight.reports.sanitize import one_line, short

Document = Mapping[str, Any]

#: A letter for each status of a node; ``n``: no answer.
LETTERS = {"fail": "f", "unknown": "u", "warn": "w", "pass": "p", "skip": "s"}

#: Maximum number of findings, and of characters of each text; the JSON report has the rest.
MOST_FINDINGS, MOST_TEXT = 4000, 300


def page_data(
    report: Document,
    incidents: Sequence[IncidentCard],
    failures: Sequence[CheckCard],
    warnings: Sequence[CheckCard],
    unknown: Sequence[Gap],
    groups: Sequence[NodeGroup],
    wiring: RailLayout,
) -> Markup:
    """Return the data as JSON that is safe inside a script element."""
    nodes = report["nodes"]
    places = {node["name"]: place for place, node in enumerate(nodes)}
    group_of = {name: number for number, group in enumerate(groups) for name in group.members}
    classes = sorted({str(node.get("class") or "") for node in nodes} - {""})
    racks = sorted({str(node.get("rack") or "") for node in nodes} - {""})
    rows, left = _findings(report, places)
    cards = [(card.ident, card.status, card.members) for card in (*failures, *warnings)]
    cards += [(gap.ident, "unknown", gap.members) for gap in unknown]
    document: dict[str, Any] = {
        "names": [one_line(node["name"]) for node in nodes],
        "status": "".join(_letter(node) for node in nodes),
        "classes": [one_line(name) for name in classes],
        "class": _column(nodes, "class", classes),
        "racks": [one_line(name) for name in racks],
        "rack": _column(nodes, "rack", racks) if racks else [],
        "groups": [group.ident for group in groups],
        "group": [group_of.get(node["name"], -1) for node in nodes],
        "leaves": [one_line(name) for name in wiring.leaves],
        "wirings": [list(leaves) for leaves in wiring.wirings],
        "wiring": [wiring.wiring_of.get(node["name"], -1) for node in nodes],
        "silent": [
            [_ranges([node["name"]], places), one_line(": ".join(filter(None, (silence.get("phase"),
                                                                              silence.get("reason")))))[:MOST_TEXT]]
            for node in nodes if (silence := node.get("no_answer"))
        ][:MOST_FINDINGS],
        "checks": sorted({row[0] for row in rows}),
        "findings": [],
        "left": left,
        "incidents": [
            [card.ident, LETTERS.get(card.incident["status"], "u"), card.incident["owner"],
             _ranges(card.incident["nodes"], places)]
            for card in incidents
        ],
        "incident_total": len(report.get("incidents", ())),
        "cards": [[ident, LETTERS.get(status, "u"), _ranges(members, places)] for ident, status, members in cards],
    }  # fmt: skip
    number = {check: place for place, check in enumerate(document["checks"])}
    document["findings"] = [[number[check], *rest] for check, *rest in rows]
    text = json.dumps(document, separators=(",", ":"))
    # Escaped, the text can neither close the script element nor open a comment.
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _letter(node: Document) -> str:
    return "n" if node.get("no_answer") else LETTERS.get(node["status"], "u")


def _column(nodes: Sequence[Document], key: str, values: Sequence[str]) -> list[int]:
    number = {value: place for place, value in enumerate(values)}
    return [number.get(str(node.get(key) or ""), -1) for node in nodes]


def _findings(report: Document, places: Mapping[str, int]) -> tuple[list[list[Any]], int]:
    """Return a row for each open finding, and the number of those beyond the limit.

    A row has check, letter of the status, subject, message, next step, nodes and incidents.
    """
    behind: dict[int, list[int]] = {}
    for number, incident in enumerate(report.get("incidents", ())):
        for place in incident["findings"]:
            behind.setdefault(place, []).append(number)
    rows = [
        [
            one_line(finding["check"]), LETTERS.get(finding["status"], "u"), short(finding["subject"], MOST_TEXT),
            short(finding["message"], MOST_TEXT), short(finding["fix"], MOST_TEXT), _ranges(finding["nodes"], places),
            behind.get(place, []),
        ]
        for place, finding in enumerate(report["findings"])
        if finding["status"] not in ("pass", "skip") and any(name in places for name in finding["nodes"])
    ]  # fmt: skip
    return rows[:MOST_FINDINGS], max(0, len(rows) - MOST_FINDINGS)


def _ranges(names: Iterable[str], places: Mapping[str, int]) -> str:
    """Return the report's indices of the named nodes as ``0-3,7``."""
    ordered = sorted({places[name] for name in names if name in places})
    pieces: list[str] = []
    start = last = -2
    for place in [*ordered, -2]:
        if place != last + 1:
            if last >= 0:
                pieces.append(str(start) if start == last else f"{start}-{last}")
            start = place
        last = place
    return ",".join(pieces)
