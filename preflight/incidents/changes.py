"""Changes in incidents between two runs: new, worse, changed, gone."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from preflight.model import IMPACTS, counted

Incident = Mapping[str, Any]

#: Node (or another subject, such as the run's logs) -> checks that were judged on it.
Judged = Mapping[str, Collection[str]]

#: Kinds of change, in display order. ``first judged``: the incident's check did not run before, so the fault may be
#: old. ``unclear``: not judged again, or still reported, but as part of another incident.
CHANGES = ("new", "worse", "changed", "first judged", "unclear", "gone")


def recorded(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the fields of each incident that a later run compares."""
    fields = ("fingerprint", "title", "status", "impact", "owner", "nodes", "subjects")
    return [
        {**{key: incident[key] for key in fields}, "check": checks[0], "checks": checks}
        for incident in report.get("incidents", ())
        if (checks := _checks(report, incident))
    ]


def judged_of_all(report: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the checks judged on logs, sweeps and switches, keyed by ``@run`` etc."""
    judged: dict[str, set[str]] = {}
    for finding in report["findings"]:
        for name in finding["nodes"]:
            if name.startswith("@") and finding["status"] != "skip":
                judged.setdefault(name, set()).add(finding["check"])
    return {name: sorted(checks) for name, checks in judged.items()}


def changes(
    before: Sequence[Incident], report: Mapping[str, Any], then: Judged, now: Judged,
    worse: Collection[tuple[str, str, str]] = (),
) -> list[dict[str, Any]]:  # fmt: skip
    """Return the incidents that are new, changed or gone, sorted by change and impact.

    ``worse`` are the findings that are worse than in the first run: node, check and subject. So is their incident.

    ``before`` holds the ``recorded`` incidents of the first run. A node that was judged in only one run does not make
    an incident better or worse, and a check that ran only in the second run does not make it new. Logs and sweeps are
    treated like nodes: an incident of a log is not gone just because the second run had no log.
    """
    after = recorded(report)
    old: dict[str, Incident] = {incident["fingerprint"]: incident for incident in before}
    new: dict[str, Incident] = {incident["fingerprint"]: incident for incident in after}
    rows, grown = [], set[str]()
    for incident in after:
        same = old.get(incident["fingerprint"])
        earlier = [same] if same else _parts_of(incident, before, new)
        renamed = [] if earlier else _renamed(incident, before, new, then, now)
        grown.update(part["fingerprint"] for part in (*earlier, *renamed))
        how, was = _step(earlier, incident, then, now) if earlier else _start(renamed, incident, then)
        if earlier and how in ("", "changed") and _is_any(worse, incident["fingerprint"], report):
            how, was = "worse", was or f"was: {min(part['title'] for part in earlier)}"
        if how:
            rows.append(_row(how, incident, was))
    for ended in before:
        if ended["fingerprint"] not in new and ended["fingerprint"] not in grown:
            rows.append(_row(_end(ended, report, now), ended, ""))
    return sorted(rows, key=lambda row: (CHANGES.index(row["change"]), IMPACTS.index(row["impact"])))


def _is_any(worse: Collection[tuple[str, str, str]], fingerprint: str, report: Mapping[str, Any]) -> bool:
    """Return whether any finding of an incident is worse."""
    return any(
        (node, finding["check"], finding["subject"]) in worse
        for incident in (report.get("incidents", ()) if worse else ())
        if incident["fingerprint"] == fingerprint
        for finding in (report["findings"][number] for number in incident["findings"])
        for node in finding["nodes"]
    )


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


def _renamed(
    incident: Incident, before: Iterable[Incident], new: Mapping[str, Incident], then: Judged, now: Judged
) -> list[Incident]:
    """Return earlier incidents of the same fault, if the check of its cause is new.

    Without that check, the effect itself is an incident. The same applies if the check no longer runs.
    """
    renamed = []
    for earlier in before:
        common = set(earlier["nodes"]) & set(incident["nodes"])
        explained = earlier["check"] in incident["checks"] and not _any_judged(incident["check"], common, then)
        explains = incident["check"] in earlier.get("checks", ()) and not _any_judged(earlier["check"], common, now)
        if earlier["fingerprint"] not in new and common and (explained or explains):
            renamed.append(earlier)
    return renamed


def _start(renamed: Sequence[Incident], incident: Incident, then: Judged) -> tuple[str, str]:
    """Return the change of an incident without a predecessor, and a remark on it."""
    nodes = [node for node in incident["nodes"] if node in then]
    judged = any(_any_judged(check, nodes, then) for check in incident["checks"])
    if renamed:
        judged, title = _any_judged(incident["check"], nodes, then), min(part["title"] for part in renamed)
        return ("changed", f"was: {title}") if judged else ("first judged", f"previously reported as: {title}")
    return ("first judged", f"{incident['check']} did not run before") if nodes and not judged else ("new", "")


def _step(earlier: Sequence[Incident], incident: Incident, then: Judged, now: Judged) -> tuple[str, str]:
    """Return how an incident changed, and its earlier state; both empty if unchanged."""
    had = {node for part in earlier for node in part["nodes"] if _judged(node, part, now)}
    has = {node for node in incident["nodes"] if _judged(node, incident, then)}
    gravest = min((part["impact"] for part in earlier), key=IMPACTS.index)
    failed = any(part["status"] == "fail" for part in earlier)
    if IMPACTS.index(incident["impact"]) < IMPACTS.index(gravest) or (incident["status"] == "fail" and not failed):
        return "worse", f"was {'a failure' if failed else 'a warning'}, {gravest}"
    if has - had:
        return "worse", f"was on {counted(len(had), 'node')}, now on {counted(len(has), 'node')}"
    if had - has:
        return "changed", f"was on {counted(len(had), 'node')}, now on {counted(len(has), 'node')}"
    titles = {part["title"] for part in earlier}
    return ("", "") if incident["title"] in titles else ("changed", f"was: {min(titles)}")


def _judged(node: str, incident: Incident, side: Judged) -> bool:
    """Return whether any check of an incident was judged on a node."""
    return any(check in side.get(node, ()) for check in incident.get("checks", (incident["check"],)))


def _any_judged(check: str, nodes: Iterable[str], side: Judged) -> bool:
    return any(check in side.get(node, ()) for node in nodes)


def _end(incident: Incident, report: Mapping[str, Any], now: Judged) -> str:
    """Return ``gone`` if all its nodes were judged again without it, else ``unclear``."""
    checks = {node["name"]: node["checks"] for node in report["nodes"]}
    left = set(_left(report, incident))
    for node in incident["nodes"]:
        if node in left or not _judged(node, incident, now):
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


def _checks(report: Mapping[str, Any], incident: Incident) -> list[str]:
    """Return the checks that failed or warned in an incident, the cause first."""
    findings = [report["findings"][number] for number in incident["findings"]]
    return list(dict.fromkeys(str(finding["check"]) for finding in findings if finding["status"] in ("fail", "warn")))


def _row(change: str, incident: Incident, was: str) -> dict[str, Any]:
    return {
        "change": change, "fingerprint": incident["fingerprint"], "title": incident["title"],
        "impact": incident["impact"], "owner": incident["owner"], "nodes": list(incident["nodes"]), "was": was or None,
    }  # fmt: skip
