"""The report as one HTML file: no external assets, no network requests.

Its only script is admitted by its hash. Without the script everything is readable, but search, filters and the node
panel are missing.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from preflight.reports import curve_svg, keep_off, page_cards, page_incidents, page_map, page_nodes
from preflight.reports import page_model as model
from preflight.reports.cluster_scope import remarks
from preflight.reports.coverage_text import waiting
from preflight.reports.history_text import before
from preflight.reports.incident_text import markdown
from preflight.reports.page_data import page_data
from preflight.reports.sanitize import fold, one_line, visible
from preflight.reports.verdict_line import headline, verdict
from preflight.version import VERSION

#: Parts of the style sheet and of the script, in order.
STYLES = ("report.css", "controls.css")
SCRIPTS = ("data.js", "filter.js", "node.js", "copy.js")


#: Maximum numbers of items shown before the rest is folded (shown), or only counted (most).
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

_PLAIN_SET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._,\[\]-]*")
_CODE = re.compile(r"`([^`\n]+)`")
_EXIT = {0: "no gating check failed or is unknown", 1: "a gating check failed", 3: "unknown"}


def render(report: Mapping[str, Any]) -> str:
    """Return the page of a ``preflight.report/1`` document; pure."""
    failures, warnings = (page_cards.cards(report["findings"], status) for status in ("fail", "warn"))
    unknown = page_cards.gaps(report["findings"])
    incidents = page_incidents.incident_cards(report)
    passes = page_cards.quiet(report, "pass")
    marks = page_nodes.part_marks(report)
    groups, wiring = page_nodes.node_groups(report, marks), page_nodes.find_wiring(report, marks)
    silences = model.silences(report["nodes"])
    css, script = _joined(STYLES), _joined(SCRIPTS)
    return _environment().get_template("report.html.j2").render(
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
        curves=tuple((curve, curve_svg.draw(curve)) for curve in report.get("curves", ())),
        checklists=model.checklists(report["checklists"]),
        checklist_counts=model.tally(report["checklists"]),
        anchors=page_cards.anchors(failures, warnings, unknown),
        exit_meaning=_EXIT,
        limits=LIMITS,
        node_anchors=_anchors(report, groups.shown),
        data=page_data(report, incidents, failures, warnings, unknown, groups.shown, wiring),
        css=Markup(css),  # trusted, from the package
        css_hash=_hash(css),
        script=Markup(script),
        script_hash=_hash(script),
    )  # fmt: skip


def _anchors(report: Mapping[str, Any], groups: Iterable[page_nodes.NodeGroup]) -> dict[str, tuple[str, int]]:
    """Return a node's anchor on the page, and its index in the report."""
    ident = {name: group.ident for group in groups for name in group.members}
    return {
        node["name"]: ("no-answer" if node.get("no_answer") else ident.get(node["name"], "nodes"), place)
        for place, node in enumerate(report["nodes"])
    }


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("preflight.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        visible=_visible, line=_line, prose=_prose, tone=_tone, many=_many, fold=fold, before=before, waiting=waiting,
        node_status=page_map.status_of, plain_set=_is_plain_set,
    )  # fmt: skip
    return environment


@lru_cache(maxsize=4)
def _joined(names: tuple[str, ...]) -> str:
    """Return files of the package as one text."""
    environment = _environment()
    assert environment.loader is not None
    texts = (environment.loader.get_source(environment, name)[0] for name in names)
    return "".join(text.replace("\r\n", "\n") for text in texts)


def _hash(text: str) -> str:
    """Return the hash by which a content security policy admits a text."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _is_plain_set(text: str) -> bool:
    """Return whether a folded set of nodes is a single shell word."""
    return _PLAIN_SET.fullmatch(text) is not None


def _visible(text: object) -> str:
    return visible(str(text))


def _line(text: object) -> str:
    return one_line(str(text))


def _prose(text: object) -> Markup:
    """Escape a sentence and mark text between backticks as code."""
    parts = _CODE.split(visible(str(text)))
    code = Markup("<code>{}</code>")
    return Markup("").join(code.format(part) if number % 2 else escape(part) for number, part in enumerate(parts))


def _tone(status: object) -> str:
    """Return a class name for a status; an unrecognised one looks like *unknown*."""
    word = str(status).replace(" ", "-")
    return word if word in (*model.STATUSES, "no-answer") else "unknown"


def _many(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'' if count == 1 else 's'}"
