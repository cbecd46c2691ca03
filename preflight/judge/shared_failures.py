"""Failures on so many nodes that they are probably site-wide."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from preflight.facts.majority import systemic


def shared_faults(findings: Iterable[Mapping[str, Any]], nodes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the checks that fail or warn on at least 30% of the answering nodes.

    They also need at least three nodes. Failures come before warnings, and checks with the most nodes come first.
    Waived failures are ignored. The share is a judgement call: faults of nodes are independent, and the same failure
    even on a tenth of a fleet is rare.
    """
    answered = {node["name"] for node in nodes if not node.get("no_answer")}
    hit: dict[tuple[str, str], set[str]] = {}
    first: dict[tuple[str, str], str] = {}
    for finding in findings:
        status = finding["status"]
        if status in ("fail", "warn") and not finding.get("excused"):
            key = (status, finding["check"])
            hit.setdefault(key, set()).update(answered.intersection(finding["nodes"]))
            first.setdefault(key, finding["message"])
    found = [
        {"check": check, "status": status, "nodes": len(names), "of": len(answered), "message": first[status, check]}
        for (status, check), names in hit.items()
        if systemic(len(names), len(answered))
    ]
    return sorted(found, key=lambda one: (one["status"], -one["nodes"], one["check"]))
