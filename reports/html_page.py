"""The report as one HTML file: no external assets, no network requests.

The content security policy admits its only script by hash. Without the script, everything is readable, but search,
filters and the node panel are missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from markupsafe import Markup

from preflight.reports import curve_svg, keep_off, page_cards, page_incidents, page_map, page_nodes
from preflight.reports import page_model as model
from preflight.reports.cluster_scope import remarks
from preflight.reports.incident_text import markdown
from preflight.reports.page_data import page_data
from preflight.reports.page_environment import digest, environment, joined
from preflight.reports.verdict_line import headline, verdict
from preflight.version import VERSION

#: Parts of the style sheet and of the script, in order.
STYLES = ("report.css", "controls.css")
SCRIPTS = ("data.js", "filter.js", "node.js", "copy.js")


#: Maximum numbers of items shown before the rest is folded (``shown_``), or only counted (``most_``, ``named``).
LIMITS = {
    "shown_instances": 6,
    "most_instances": 30,
    "shown_incidents": page_incidents.SHOWN_INCIDENTS,
    "named": page_incidents.MOST_NAMED,
    "shown_silences": model.MOST_SILENCES,
    "most_gaps": 60,
    "shown_reasons": 30,
    "most_wirings": page_nodes.MOST_WIRINGS,
}

_EXIT = {0: "no gating check failed or is unknown", 1: "a gating check failed", 3: "unknown"}


def render(report: Mapping[str, Any]) -> str:
    """Return the page of a ``preflight.report/1`` document."""
    failures, warnings = (page_cards.cards(report["findings"], status) for status in ("fail", "warn"))
    unknown = page_cards.gaps(report["findings"])
    incidents = page_incidents.incident_cards(report)
    passes = page_cards.quiet(report, "pass")
    marks = page_nodes.part_marks(report)
    groups, wiring = page_nodes.node_groups(report, marks), page_nodes.find_wiring(report, marks)
    silences = model.silences(report["nodes"])
    css, script = joined(STYLES), joined(SCRIPTS)
    return environment().get_template("report.html.j2").render(
        report=report,
        run=report.get("run"),
        version=(report.get("run") or {}).get("version") or VERSION,
        headline=headline(report),
        verdict=verdict(report),
        coverage=report["coverage"],
        remarks=tuple(remarks(report)),
        counts=model.counts(report["coverage"]),
        adds_up=model.adds_up(report["coverage"]),
        incidents=incidents,
        incident_total=len(report.get("incidents", ())),
        markdown=markdown(report, range(min(len(incidents), page_incidents.SHOWN_INCIDENTS))),
        bad_nodes=keep_off.bad_nodes(report),
        excluded=keep_off.excluded(report),
        exclusion_notes=tuple(keep_off.notes(report)),
        failures=failures,
        warnings=warnings,
        unknown=unknown,
        passes=passes,
        skips=page_cards.quiet(report, "skip"),
        whole=sum(not card.share for card in passes),
        silences=silences,
        heat=model.heat_map(report["nodes"]),
        map=page_map.node_map(report["nodes"]),
        wiring=wiring,
        groups=groups,
        fabrics=model.fabrics(report.get("fabrics", ())),
        pairs=model.pair_maps(report.get("pairs", ())),
        timelines=model.timelines(report.get("timelines", ())),
        curves=tuple((curve, curve_svg.draw(curve)) for curve in report.get("curves", ())),
        checklists=model.checklists(report["checklists"]),
        checklist_counts=model.tally(report["checklists"]),
        anchors=page_cards.anchors(failures, warnings, unknown),
        exit_meaning=_EXIT,
        limits=LIMITS,
        node_anchors=_anchors(report, groups.shown),
        data=page_data(report, incidents, failures, warnings, unknown, groups.shown, wiring),
        css=Markup(css),  # trusted, from the package
        css_hash=digest(css),
        script=Markup(script),
        script_hash=digest(script),
    )  # fmt: skip


def _anchors(report: Mapping[str, Any], groups: Iterable[page_nodes.NodeGroup]) -> dict[str, tuple[str, int]]:
    """Return each node's anchor on the page and its index in the report."""
    ident = {name: group.ident for group in groups for name in group.members}
    return {
        node["name"]: ("no-answer" if node.get("no_answer") else ident.get(node["name"], "nodes"), place)
        for place, node in enumerate(report["nodes"])
    }
