"""The report as one self-contained HTML page: no script, no external asset, no network request."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from preflight.reports import page_cards, page_incidents
from preflight.reports import page_model as model
from preflight.reports.cluster_scope import remarks
from preflight.reports.coverage_text import waiting
from preflight.reports.history_text import before
from preflight.reports.sanitize import fold, one_line, visible
from preflight.reports.verdict_line import headline, verdict
from preflight.version import VERSION

#: Instances of one card, and groups of nodes, that are shown before the rest is folded.
SHOWN_INSTANCES, SHOWN_NODES = 6, 6

_CODE = re.compile(r"`([^`\n]+)`")
_EXIT = {0: "nothing that gates failed or is unknown", 1: "a gating check failed", 3: "could not tell"}


def render(report: Mapping[str, Any]) -> str:
    """Return the page of a ``preflight.report/1`` document; pure."""
    failures, warnings = (page_cards.cards(report["findings"], status) for status in ("fail", "warn"))
    unknown = page_cards.gaps(report["findings"])
    css = _style()
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
        incidents=page_incidents.incident_cards(report),
        failures=failures,
        warnings=warnings,
        unknown=unknown,
        passes=page_cards.quiet(report, "pass"),
        skips=page_cards.quiet(report, "skip"),
        whole=sum(not card.share for card in page_cards.quiet(report, "pass")),
        silences=model.silences(report["nodes"]),
        heat=model.heat_map(report["nodes"]),
        groups=model.node_groups(report["nodes"]),
        fabrics=model.fabrics(report.get("fabrics", ())),
        checklists=model.checklists(report["checklists"]),
        checklist_counts=model.tally(report["checklists"]),
        anchors=page_cards.anchors(failures, warnings, unknown),
        exit_meaning=_EXIT,
        shown_instances=SHOWN_INSTANCES,
        shown_nodes=SHOWN_NODES,
        shown_incidents=page_incidents.SHOWN_INCIDENTS,
        css=Markup(css),  # ours, from the package
        css_hash=base64.b64encode(hashlib.sha256(css.encode()).digest()).decode(),
    )  # fmt: skip


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
        visible=_visible, line=_line, prose=_prose, tone=_tone, many=_many, fold=fold, before=before, waiting=waiting
    )
    return environment


@lru_cache(maxsize=1)
def _style() -> str:
    environment = _environment()
    assert environment.loader is not None
    source, _, _ = environment.loader.get_source(environment, "report.css")
    return source.replace("\r\n", "\n")


def _visible(text: object) -> str:
    return visible(str(text))


def _line(text: object) -> str:
    return one_line(str(text))


def _prose(text: object) -> Markup:
    """Escape a sentence and set what stands between backticks as code."""
    parts = _CODE.split(visible(str(text)))
    code = Markup("<code>{}</code>")
    return Markup("").join(code.format(part) if number % 2 else escape(part) for number, part in enumerate(parts))


def _tone(status: object) -> str:
    """Return a class name for a status; one that is not known looks like *unknown*."""
    word = str(status).replace(" ", "-")
    return word if word in (*model.STATUSES, "no-answer") else "unknown"


def _many(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'' if count == 1 else 's'}"
