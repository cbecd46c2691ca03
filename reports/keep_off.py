"""The nodes to exclude from jobs, with reasons.

These are the nodes on which a gating check failed, and those that did not answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from preflight.nodeset import fold_for_slurm
from preflight.reports.sanitize import fold, short

Document = Mapping[str, Any]

#: A valid Slurm node name.
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


def bad_nodes(report: Document) -> str:
    """Return the nodes to exclude from jobs, folded for ``sbatch --exclude``.

    These are the nodes on which a gating check failed and those that did not answer. A node with an unknown result is
    not excluded: that decision is left to the user. Nodes that differ are not excluded either if the right value is
    unknown, because all of them would be. Invalid host names are left out: the result is used in a command line, and a
    document may contain any text.
    """
    return fold_for_slurm(filter(_HOST.fullmatch, _reasons(report)))


def left_out(report: Document) -> str:
    """Return a warning about nodes that are left out; empty if none."""
    names = [name for name in _reasons(report) if not _HOST.fullmatch(name)]
    if not names:
        return ""
    return (
        f"{len(names)} of the nodes to exclude {'has' if len(names) == 1 else 'have'} no valid host "
        f"name, and {'is' if len(names) == 1 else 'are'} left out: {short(', '.join(map(repr, names)), 100)}"
    )


@dataclass(frozen=True)
class Excluded:
    """Nodes to exclude for the same reasons."""

    nodes: str
    node_count: int
    incidents: tuple[int, ...]  # indices in the report's list
    checks: tuple[str, ...]  # failed checks outside any incident
    silent: str  # phase in which the connection failed; empty if the nodes answered


def excluded(report: Document) -> tuple[Excluded, ...]:
    """Group the nodes to exclude by their reasons, the most severe incident first."""
    groups: dict[tuple[tuple[int, ...], tuple[str, ...], str], list[str]] = {}
    for name, reason in _reasons(report).items():
        groups.setdefault(reason, []).append(name)
    ordered = sorted(groups.items(), key=lambda item: (not item[0][0], item[0]))
    return tuple(Excluded(fold(names), len(names), *reason) for reason, names in ordered)


def _reasons(report: Document) -> dict[str, tuple[tuple[int, ...], tuple[str, ...], str]]:
    """Return the nodes to exclude in report order, each with its reasons."""
    behind: dict[int, list[int]] = {}
    for number, incident in enumerate(report.get("incidents", ())):
        for place in incident["findings"]:
            behind.setdefault(place, []).append(number)
    incidents: dict[str, set[int]] = {}
    checks: dict[str, set[str]] = {}
    for place, finding in enumerate(report["findings"]):
        if finding["status"] != "fail" or not finding.get("gating", True) or finding.get("undecided"):
            continue
        for name in finding["nodes"]:
            incidents.setdefault(name, set()).update(behind.get(place, ()))
            if place not in behind:
                checks.setdefault(name, set()).add(str(finding.get("check", "")))
    return {
        name: (
            tuple(sorted(incidents.get(name, ()))),
            tuple(sorted(checks.get(name, ()))),
            str((node.get("no_answer") or {}).get("phase") or "no answer") if node.get("no_answer") else "",
        )
        for node in report["nodes"]
        if (name := node["name"]) in incidents or name in checks or node.get("no_answer")
    }
