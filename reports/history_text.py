"""History of a finding in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from preflight.reports.sanitize import fold, one_line


def before(finding: Mapping[str, Any]) -> str:
    """Return what a finding was in earlier runs; empty without a history, or without an entry.

    Nodes are named where not all of them have the same past.
    """
    entries = finding.get("history") or []
    if len(entries) == 1 and len(entries[0]["nodes"]) == len(finding["nodes"]):
        return one_line(entries[0]["said"])
    return "; ".join(f"{fold(one['nodes'])}: {one_line(one['said'])}" for one in entries)


def summary(report: Mapping[str, Any]) -> str:
    """Return in one line what is new and what is gone since the run before; empty without a history."""
    history = report.get("history")
    if not history:
        return ""
    if history["previous"] is None:
        return "history: the first run that is recorded"
    new = sum(one["new"] for finding in report["findings"] for one in finding.get("history") or [])
    gone = history["gone"]
    named = "; ".join(" ".join((one["check"], one_line(one["subject"]), "on", fold(one["nodes"]))) for one in gone[:8])
    more = f" and {len(gone) - 8} more" if len(gone) > 8 else ""
    line = f"history: {new} new since {history['previous']}, {len(gone)} gone"
    return f"{line}: {named}{more}" if gone else line
