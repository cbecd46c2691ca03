"""History of findings and incidents in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from preflight.reports.sanitize import fold, one_line


def before(finding: Mapping[str, Any]) -> str:
    """Return a finding's state in earlier runs; empty if none is recorded."""
    entries = finding.get("history") or []
    if len(entries) == 1 and len(entries[0]["nodes"]) == len(finding["nodes"]):
        return one_line(entries[0]["said"])
    return "; ".join(f"{fold(one['nodes'])}: {one_line(one['said'])}" for one in entries)


def summary(report: Mapping[str, Any]) -> str:
    """Return the changes since the previous run in one line; empty without a history."""
    history = report.get("history")
    if not history:
        return ""
    return f"{_compared(report, history)}{_later(history.get('later', 0))}"


def _later(count: int) -> str:
    if not count:
        return ""
    return f"; {count} run{' is' if count == 1 else 's are'} dated later than this one and not compared"


def _compared(report: Mapping[str, Any], history: Mapping[str, Any]) -> str:
    if history["previous"] is None:
        return "history: first recorded run"
    if "incidents" in history:
        return _of_incidents(history, report["incidents"])
    new = sum(one["new"] for finding in report["findings"] for one in finding.get("history") or [])
    gone = history["gone"]
    named = "; ".join(" ".join((one["check"], one_line(one["subject"]), "on", fold(one["nodes"]))) for one in gone[:8])
    more = f" and {len(gone) - 8} more" if len(gone) > 8 else ""
    line = f"history: {new} new since {history['previous']}, {len(gone)} gone"
    return f"{line}: {named}{more}" if gone else line


#: Display words for the states of incidents since earlier runs, used after a count.
_WORDS = {
    "new": "new", "worse": "worse", "changed": "changed", "first judged": "first judged in this run",
    "unclear": "not judged again", "gone": "gone",
}  # fmt: skip


def _of_incidents(history: Mapping[str, Any], incidents: Sequence[Mapping[str, Any]]) -> str:
    """Return the changes in incidents in one line.

    Incidents of this run are named by their numbers, earlier ones by title.
    """
    numbers = {incident["fingerprint"]: number for number, incident in enumerate(incidents, start=1)}
    pieces = []
    for change, words in _WORDS.items():
        rows = [row for row in history["incidents"] if row["change"] == change]
        if not rows:
            continue
        named = [f"#{numbers[row['fingerprint']]}" for row in rows if row["fingerprint"] in numbers]
        named += [
            f"{one_line(row['title'])} on {fold(row['nodes'])}" for row in rows if row["fingerprint"] not in numbers
        ]
        more = f" and {len(named) - 3} more" if len(named) > 3 else ""
        pieces.append(f"{len(rows)} {words} ({', '.join(named[:3])}{more})")
    return f"since {one_line(history['previous'])}: {'; '.join(pieces) or 'nothing changed'}"
