"""The nodes to exclude from jobs, with reasons.

These are the nodes on which a gating check failed, or found that something hangs, those that the logs or switches
blame for a failure, and those that did not answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from preflight.nodeset import fold_for_slurm
from preflight.reports.sanitize import RUN, SWITCHES, fold, short

Document = Mapping[str, Any]

#: Indices of incidents, failed checks outside any incident, and the phase in which the connection failed.
Reasons = tuple[tuple[int, ...], tuple[str, ...], str]

#: Stands for the incident of a finding without one.
_NONE = -1

#: A valid Slurm node name.
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


def bad_nodes(report: Document) -> str:
    """Return the nodes to exclude from jobs, folded for ``sbatch --exclude``.

    These are the nodes on which a gating check failed, those that logs or switches blame for such a failure, and those
    that did not answer. A node with an unknown result is excluded only if what a job needs hangs, such as the driver:
    other decisions are left to the user. Nodes that differ are not excluded if the right value is unknown, because all
    of them would be; nor is any node for a fault that only slows jobs down and is on all nodes, or if every node has
    such a fault, because no node is better. Invalid host names are left out: the result is used in a command line, and
    a document may contain any text.
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
    groups: dict[Reasons, list[str]] = {}
    for name, reason in _reasons(report).items():
        groups.setdefault(reason, []).append(name)
    ordered = sorted(groups.items(), key=lambda item: (not item[0][0], item[0]))
    return tuple(Excluded(fold(names), len(names), *reason) for reason, names in ordered)


def remarks(report: Document) -> Iterator[str]:
    """Yield remarks on nodes that are left out, and on failures that exclude none."""
    if names := left_out(report):
        yield f"warning: {names}"
    yield from (f"note: {note}" for note in notes(report))


def notes(report: Document) -> Iterator[str]:
    """Yield notes on failures that exclude all nodes or none."""
    reasons = _reasons(report)
    if len(reasons) == len(report["nodes"]) > 1:
        shared = sorted(set.intersection(*(set(numbers) for numbers, *_ in reasons.values())))
        title = short(report["incidents"][shared[0]]["title"], 100) if shared else "for different reasons"
        yield f"all {len(reasons)} nodes are excluded, so no job can start: {title}"
    which = " that answered" if any(node.get("no_answer") for node in report["nodes"]) else ""
    for number in sorted(_everywhere(report)):
        title = short(report["incidents"][number]["title"], 100)
        yield f"on all nodes{which}, so no node is excluded for it: {title}"
    if len(reasons) < len(_all_reasons(report)):
        yield "every node has a fault, so faults that only slow jobs down exclude none"
    ties = dict.fromkeys(finding["message"] for finding in report["findings"] if _is_tie(finding))
    if ties:
        more = f" (and {len(ties) - 1} more)" if len(ties) > 1 else ""
        yield f"which value is right is unknown, so no node is excluded for it: {short(next(iter(ties)), 100)}{more}"


def _is_tie(finding: Document) -> bool:
    """Return whether nodes differ in what jobs need, and the right value is unknown."""
    return bool(finding["status"] == "fail" and finding.get("gating", True) and finding.get("undecided"))


def _everywhere(report: Document) -> set[int]:
    """Return the failures on all nodes that do not block jobs; none of a single node."""
    answered = {node["name"] for node in report["nodes"] if not node.get("no_answer")}
    return {
        number
        for number, incident in enumerate(report.get("incidents", ()))
        if incident["impact"] != "blocks-job" and incident["status"] == "fail"
        and len(answered) > 1 and answered.issubset(incident["nodes"])
    }  # fmt: skip


def _keeps_off(finding: Document) -> bool:
    """Return whether a finding is a failure, or shows that what a job needs hangs."""
    return finding["status"] == "fail" or (finding["status"] == "unknown" and finding.get("impact") == "blocks-job")


def _blamed(report: Document, incident: Document) -> Iterator[str]:
    """Yield the nodes that the logs or switches blame for the failures of an incident.

    A log blames a node if the node's evidence shows the cause of a failure that ended the job, and switches blame the
    host that is the subject of their finding. A node is not blamed for a setting of the job.
    """
    for finding in (report["findings"][place] for place in incident["findings"]):
        if not _keeps_off(finding) or not finding.get("gating", True):
            continue
        if finding["nodes"] == [RUN] and incident["impact"] == "blocks-job" and incident["owner"] != "job":
            yield from set(incident["nodes"]).intersection(finding.get("cause", {}).get("nodes", ()))
        elif finding["nodes"] == [SWITCHES] and finding["status"] == "fail" and incident["owner"] == "node":
            yield finding["subject"]


def _reasons(report: Document) -> dict[str, Reasons]:
    """Return the nodes to exclude in report order, each with its reasons.

    If these are all nodes, those that only slow jobs down are not excluded.
    """
    reasons = _all_reasons(report)
    if len(reasons) < len(report["nodes"]) or len(reasons) == 1:
        return reasons
    impacts = [incident["impact"] for incident in report.get("incidents", ())]
    return {
        name: (numbers, checks, silent)
        for name, (numbers, checks, silent) in reasons.items()
        if checks or silent or "blocks-job" in {impacts[number] for number in numbers}
    }


def _all_reasons(report: Document) -> dict[str, Reasons]:
    """Return the nodes to exclude, even if no node is left."""
    everywhere = _everywhere(report)
    behind: dict[int, list[int]] = {}
    for number, incident in enumerate(report.get("incidents", ())):
        for place in incident["findings"]:
            behind.setdefault(place, []).append(number)
    incidents: dict[str, set[int]] = {}
    for number, incident in enumerate(report.get("incidents", ())):
        for name in _blamed(report, incident):
            incidents.setdefault(name, set()).add(number)
    checks: dict[str, set[str]] = {}
    for place, finding in enumerate(report["findings"]):
        if not _keeps_off(finding) or not finding.get("gating", True) or finding.get("undecided"):
            continue
        if everywhere.issuperset(behind.get(place, (_NONE,))):
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
