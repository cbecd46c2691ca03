"""Incidents: groups of findings that one fault explains.

``faults`` finds the cause of each finding in the relations that checks declare; ``groups`` joins similar faults, by
their ``places``; ``document`` describes a group. The modules know the findings of a report and the parts of its nodes;
they do not read evidence, judge or render. Incidents never change a status, the verdict or the exit status.
``judge`` adds the incidents to the report; ``reports`` and ``commands`` show them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from preflight.incidents.changes import changes, recorded
from preflight.incidents.cost import gpus_of
from preflight.incidents.document import document_of
from preflight.incidents.faults import faults_of
from preflight.incidents.findings import Findings
from preflight.incidents.groups import groups_of
from preflight.incidents.order import is_loud, sort_key
from preflight.model import Check

__all__ = ["changes", "incidents", "recorded", "sort_key"]


def incidents(report: Mapping[str, Any], checks: Sequence[Check]) -> list[dict[str, Any]]:
    """Return the incidents of a report, most severe first, without waived causes."""
    if not any(map(is_loud, report["findings"])):
        return []
    findings = Findings(report, checks)
    groups, gpus = groups_of(findings, faults_of(findings)), gpus_of(findings.nodes)
    return sorted((document_of(group, findings, gpus) for group in groups), key=sort_key)
