"""Public interface for plug-ins: ``from preflight.plugin import check, …``.

Plug-ins import only this module of preflight. The names in ``__all__`` are stable between releases; other modules and
names may change at any time. ``docs/plugin-api.md`` describes each name.

Names are imported on first use, so a plug-in only costs the time of the names it uses.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from preflight.checks.applicability import no_gpu, no_rdma
    from preflight.evidence.document import EvidenceError
    from preflight.expectations import Expected, Site
    from preflight.facts.job import RunFacts
    from preflight.facts.node import NodeFacts
    from preflight.model import Finding, Status, check, compare, failed, passed, skipped, unknown, warned
    from preflight.plugin_fixture import findings_of
    from preflight.probes.probe import Probe
    from preflight.textprep.plain_text import id_list, integer

__all__ = [
    "EvidenceError",
    "Expected",
    "Finding",
    "NodeFacts",
    "Probe",
    "RunFacts",
    "Site",
    "Status",
    "check",
    "compare",
    "failed",
    "findings_of",
    "id_list",
    "integer",
    "no_gpu",
    "no_rdma",
    "passed",
    "skipped",
    "unknown",
    "warned",
]

_HOMES = {
    "EvidenceError": "preflight.evidence.document",
    "Expected": "preflight.expectations",
    "NodeFacts": "preflight.facts.node",
    "Probe": "preflight.probes.probe",
    "RunFacts": "preflight.facts.job",
    "Site": "preflight.expectations",
    "findings_of": "preflight.plugin_fixture",
    "id_list": "preflight.textprep.plain_text",
    "integer": "preflight.textprep.plain_text",
    "no_gpu": "preflight.checks.applicability",
    "no_rdma": "preflight.checks.applicability",
    **dict.fromkeys(
        ("Finding", "Status", "check", "compare", "failed", "passed", "skipped", "unknown", "warned"), "preflight.model"
    ),
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; see docs/plugin-api.md for its names")

    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
