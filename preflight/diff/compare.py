"""Comparison of two runs on common nodes, and faults of new nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.diff.change import ABSENT, GOOD, ORDER, change, is_worse_figure
from preflight.diff.node_profile import changes
from preflight.diff.snapshot import Snapshot
from preflight.incidents.changes import changes as incident_changes
from preflight.incidents.changes import recorded

SCHEMA = "preflight.diff/1"

_Statuses = Mapping[str, Mapping[str, str]]  # node, or another subject such as the run's logs -> check -> status


@dataclass(frozen=True)
class _FindingState:
    status: str
    message: str
    gating: bool
    found: str = ""
    undecided: bool = False  # whether it is unknown which of the differing nodes is wrong
    action: str = ""


_Found = Mapping[tuple[str, str], _FindingState]  # of a node: check, subject -> its worst finding


@dataclass(frozen=True)
class _Row:
    """One change of a finding, which one or more nodes share."""

    change: str
    check: str
    subject: str
    before: str  # status; empty: no finding
    after: str
    was: str = ""  # message of the first run
    now: str = ""  # message of the second run

    def document(self, nodes: list[str]) -> dict[str, Any]:
        of_second = self.now if self.after not in ("", *GOOD) or not self.was else ""
        return {
            "change": self.change, "check": self.check, "subject": self.subject,
            "before": self.before or None, "after": self.after or None, "message": of_second or self.was,
            "was": self.was or None, "now": self.now or None, "nodes": nodes,
        }  # fmt: skip


def compare(before: Snapshot, after: Snapshot) -> dict[str, Any]:
    """Return the changes as ``preflight.diff/1``, each with all nodes that have it."""
    ours, theirs = _answered(before), _answered(after)
    was_silent, now_silent = _silent(before), _silent(after)
    both = ours & theirs
    old, new = _statuses(before), _statuses(after)
    was, now = _findings(before), _findings(after)
    found: dict[_Row, list[str]] = {}
    for name in sorted(both | _others(before) | _others(after)):
        judged = old.get(name, {}), new.get(name, {})
        for row in _changed(judged, _found(was.get(name, ())), _found(now.get(name, ()))):
            found.setdefault(row, []).append(name)
    for name in sorted(theirs - ours):
        for row in _sick(_found(now.get(name, ()))):
            found.setdefault(row, []).append(name)
    lost = _only(old, new, both | _others(before))
    nodes = {
        "came": sorted(theirs - ours - was_silent),
        "came_silent": sorted(now_silent - ours - was_silent),
        "went": sorted((ours | was_silent) - theirs - now_silent),
        "fell_silent": sorted(ours & now_silent),
        "answer_again": sorted(was_silent & theirs),
        "silent_in_both": sorted(was_silent & now_silent),
    }
    hows = {row.change for row in found}
    worse = {(name, row.check, row.subject) for row, names in found.items() for name in names if row.change == "worse"}
    unclear = "unclear" in hows or lost or not both or any(nodes[key] for key in ("came_silent", "went", "fell_silent"))
    return {
        "schema": SCHEMA,
        "before": {"path": before.path, "at": before.at, "exit_status": before.report["exit_status"]},
        "after": {"path": after.path, "at": after.at, "exit_status": after.report["exit_status"]},
        "nodes": {"both": len(both), **nodes},
        "incidents": incident_changes(
            recorded(before.report), after.report, _judged(old, ours), _judged(new, theirs), worse
        ),
        "findings": [row.document(names) for row, names in sorted(found.items(), key=_urgency)],
        "not_judged_again": [{"check": check, "nodes": names} for check, names in sorted(lost.items())],
        "values": list(_values(before, after, both)),
        "values_compared": before.values is not None and after.values is not None,
        "exit_status": 1 if hows & {"new", "worse"} else 3 if unclear else 0,
    }  # fmt: skip


def _changed(judged: tuple[Mapping[str, str], Mapping[str, str]], old: _Found, new: _Found) -> Iterator[_Row]:
    """Yield the changes on a node that was judged in both runs."""
    for key in sorted({*old, *new}):
        check, subject = key
        before, after = (one.get(check, ABSENT) for one in judged)
        was, now = old.get(key), new.get(key)
        if after == ABSENT:
            continue  # reported as not judged again
        status = was.status if was else before if before in (*GOOD, ABSENT) else "pass"
        then = now.status if now else after if after in (*GOOD, "unknown") else "pass"
        if was and not now and was.status in GOOD and after != "skip":
            continue  # the check has a different finding, with a separate row
        how = change(check, status, then)
        if was and now and (turned := _of_same(check, was, now)):
            how = turned
        if how:
            yield _Row(
                how, check, subject, was.status if was else before if before in GOOD else "",
                now.status if now else after if after in (*GOOD, "unknown") else "",
                was.message if was else "", now.message if now else "",
            )  # fmt: skip


def _of_same(check: str, was: _FindingState, now: _FindingState) -> str:
    """Return the change if the status is the same, else an empty string.

    It is ``worse`` if a tie is now decided against the node, a part must now be replaced, or there are fewer devices or
    more defects, and ``still`` for a failure with another value.
    """
    if was.status != now.status or now.status not in ("fail", "warn"):
        return ""
    is_final = now.action == "replace" != was.action
    if (was.undecided and not now.undecided) or is_final or is_worse_figure(check, was.found, now.found):
        return "worse"
    return "still" if now.status == "fail" and was.found != now.found else ""


def _sick(new: _Found) -> Iterator[_Row]:
    """Yield failures and gating unknowns of a node that did not answer before."""
    for (check, subject), now in new.items():
        if now.status == "fail" or (now.status == "unknown" and now.gating):
            how = "new" if now.status == "fail" else "unclear"
            yield _Row(how, check, subject, "", now.status, "", now.message)


def _only(old: _Statuses, new: _Statuses, names: set[str]) -> dict[str, list[str]]:
    """Return the checks that only the first run judged, with their nodes."""
    found: dict[str, list[str]] = {}
    for name in sorted(names):
        for check, status in old.get(name, {}).items():
            if status != "skip" and check not in new.get(name, {}):
                found.setdefault(check, []).append(name)
    return found


def _values(before: Snapshot, after: Snapshot, both: set[str]) -> Iterator[dict[str, Any]]:
    found: dict[tuple[str, str, str], list[str]] = {}
    if before.values is not None and after.values is not None:
        for node in sorted(both):
            for one in changes(before.values.get(node, {}), after.values.get(node, {})):
                found.setdefault(one, []).append(node)
    for (what, was, now), nodes in sorted(found.items(), key=lambda item: (-len(item[1]), item[0])):
        yield {"what": what, "before": was, "after": now, "nodes": nodes}


def _urgency(item: tuple[_Row, list[str]]) -> tuple[int, int, str, str, str]:
    row, nodes = item
    place = ("new", "worse", "unclear", "still", "better", "gone").index(row.change)
    return place, -len(nodes), row.check, row.subject, row.now or row.was


def _answered(side: Snapshot) -> set[str]:
    return {node["name"] for node in side.report["nodes"] if not node.get("no_answer")}


def _silent(side: Snapshot) -> set[str]:
    return {node["name"] for node in side.report["nodes"] if node.get("no_answer")}


def _others(side: Snapshot) -> set[str]:
    """Return subjects other than nodes: the run's logs, fabric sweeps."""
    return {name for finding in side.report["findings"] for name in finding["nodes"] if name.startswith("@")}


def _statuses(side: Snapshot) -> _Statuses:
    found = {node["name"]: node["checks"] for node in side.report["nodes"]}
    for finding in side.report["findings"]:
        for name in finding["nodes"]:
            if name.startswith("@"):
                of_it, check = found.get(name, {}), finding["check"]
                worst = max(of_it.get(check, "skip"), finding["status"], key=ORDER.__getitem__)
                found[name] = {**of_it, check: worst}
    return found


def _judged(statuses: _Statuses, answered: set[str]) -> _Statuses:
    """Return the checks of the nodes that answered, and of other subjects."""
    return {name: checks for name, checks in statuses.items() if name in answered or name.startswith("@")}


def _findings(side: Snapshot) -> Mapping[str, list[Mapping[str, Any]]]:
    """Return the findings of each node, without those that another check reports."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for finding in side.report["findings"]:
        for node in () if finding.get("reported_by") else finding["nodes"]:
            found.setdefault(node, []).append(finding)
    return found


def _found(findings: Iterable[Mapping[str, Any]]) -> _Found:
    """Return the worst finding of each check and subject on one node."""
    found: dict[tuple[str, str], _FindingState] = {}
    for finding in findings:
        key = finding["check"], finding["subject"]
        if key not in found or ORDER[finding["status"]] > ORDER[found[key].status]:
            found[key] = _FindingState(
                finding["status"], finding["message"], finding.get("gating", True), finding.get("found") or "",
                bool(finding.get("undecided")), finding.get("action") or "",
            )  # fmt: skip
    return found
