"""Changes of incidents between two runs: new, worse, changed, gone."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from preflight.model import IMPACTS

Incident = Mapping[str, Any]

#: In display order. ``unclear``: not judged again, or hidden by another fault.
CHANGES = ("new", "worse", "changed", "unclear", "gone")


def recorded(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the data of incidents that a later run needs for comparison."""
    fields = ("fingerprint", "title", "status", "impact", "owner", "nodes", "subjects")
    return [
        {**{key: incident[key] for key in fields}, "check": _check(report, incident)}
        for incident in report.get("incidents", ())
    ]


def changes(
    before: Sequence[Incident], report: Mapping[str, Any], then: Collection[str], now: Collection[str]
) -> list[dict[str, Any]]:
    """Return the incidents that changed, and those that are gone.

    ``before`` are ``recorded`` incidents; ``then`` and ``now`` are the nodes judged in each run. A node that was judged
    in only one run does not make an incident better or worse.
    """
    after = recorded(report)
    old: dict[str, Incident] = {incident["fingerprint"]: incident for incident in before}
    new: dict[str, Incident] = {incident["fingerprint"]: incident for incident in after}
    rows = []
    for incident in after:
        earlier = [old[incident["fingerprint"]]] if incident["fingerprint"] in old else _parts_of(incident, before, new)
        how, was = _step(earlier, incident, then, now)
        if how:
            rows.append(_row(how, incident, was))
    grown = {earlier["fingerprint"] for incident in after for earlier in _parts_of(incident, before, new)}
    for ended in before:
        if ended["fingerprint"] not in new and ended["fingerprint"] not in grown:
            rows.append(_row(_end(ended, report, now), ended, ""))
    return sorted(rows, key=lambda row: (CHANGES.index(row["change"]), IMPACTS.index(row["impact"])))


def _parts_of(incident: Incident, before: Iterable[Incident], new: Mapping[str, Incident]) -> list[Incident]:
    """Return earlier incidents that became part of this one, or contained it."""
    return [
        earlier
        for earlier in before
        if earlier["fingerprint"] not in new
        and earlier["check"] == incident["check"]
        and (_within(earlier, incident) or _within(incident, earlier))
    ]


def _within(small: Incident, large: Incident) -> bool:
    return set(small["nodes"]) <= set(large["nodes"]) and set(small["subjects"]) <= set(large["subjects"])


def _step(
    earlier: Sequence[Incident], incident: Incident, then: Collection[str], now: Collection[str]
) -> tuple[str, str]:
    """Return how an incident changed, and its earlier state; empty if unchanged."""
    if not earlier:
        return "new", ""
    had = {node for part in earlier for node in part["nodes"] if _judged(node, now)}
    has = {node for node in incident["nodes"] if _judged(node, then)}
    gravest = min((part["impact"] for part in earlier), key=IMPACTS.index)
    failed = any(part["status"] == "fail" for part in earlier)
    if IMPACTS.index(incident["impact"]) < IMPACTS.index(gravest) or (incident["status"] == "fail" and not failed):
        return "worse", f"was {'a failure' if failed else 'a warning'}, {gravest}"
    if has - had:
        return "worse", f"was on {_count(had)}, now on {_count(has)}"
    if had - has:
        return "changed", f"was on {_count(had)}, now on {_count(has)}"
    titles = {part["title"] for part in earlier}
    return ("", "") if incident["title"] in titles else ("changed", f"was: {min(titles)}")


def _judged(node: str, nodes: Collection[str]) -> bool:
    return node in nodes or node.startswith("@")


def _end(incident: Incident, report: Mapping[str, Any], now: Collection[str]) -> str:
    """Return ``gone`` if the check now passes on all its nodes."""
    checks = {node["name"]: node["checks"] for node in report["nodes"]}
    left = set(_left(report, incident))
    for node in incident["nodes"]:
        if node in left or not _judged(node, now):
            return "unclear"
        if not node.startswith("@") and checks.get(node, {}).get(incident["check"], "skip") == "skip":
            return "unclear"
    return "gone"


def _left(report: Mapping[str, Any], incident: Incident) -> Iterator[str]:
    """Yield the nodes on which the check still reports a subject of the incident."""
    for finding in report["findings"]:
        same = not incident["subjects"] or not finding["subject"] or finding["subject"] in incident["subjects"]
        if finding["check"] == incident["check"] and finding["status"] not in ("pass", "skip") and same:
            yield from finding["nodes"]


def _check(report: Mapping[str, Any], incident: Incident) -> str:
    return str(report["findings"][incident["findings"][0]]["check"])


def _row(change: str, incident: Incident, was: str) -> dict[str, Any]:
    return {
        "change": change, "fingerprint": incident["fingerprint"], "title": incident["title"],
        "impact": incident["impact"], "owner": incident["owner"], "nodes": list(incident["nodes"]), "was": was or None,
    }  # fmt: skip


def _count(nodes: Collection[str]) -> str:
    return f"{len(nodes)} node{'' if len(nodes) == 1 else 's'}"
