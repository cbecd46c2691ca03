"""Two runs compared, on the nodes that answered in both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from preflight.diff.profile import changes
from preflight.diff.side import Side
from preflight.lean import dataclass

SCHEMA = "preflight.diff/1"

#: Statuses from good to bad. What is skipped does not apply, and is as good as a pass.
_ORDER = {"skip": 0, "pass": 0, "warn": 1, "unknown": 2, "fail": 3}


_Key = tuple[str, str, str]  # node, check, subject
_Statuses = Mapping[str, Mapping[str, str]]  # node -> check -> status


@dataclass(frozen=True)
class _Said:
    status: str
    message: str


def compare(before: Side, after: Side) -> dict[str, Any]:
    """Return what changed, as ``preflight.diff/1``; equal changes stand once, with their nodes.

    ``exit_status`` is 1 where something got worse, 3 where no node was judged on both sides or one fell silent, else 0.
    """
    ours, theirs = _answered(before), _answered(after)
    both = ours & theirs
    old, new = _findings(before, both), _findings(after, both)
    judged = _judged(before, both), _judged(after, both)
    found = _changed(old, new, judged)
    values: dict[tuple[str, str, str], list[str]] = {}
    for node in sorted(both):
        if before.values is not None and after.values is not None:
            for change in changes(before.values.get(node, {}), after.values.get(node, {})):
                values.setdefault(change, []).append(node)
    silent = sorted(ours & _silent(after))
    worse = any(row[0] in ("new", "worse") for row in found)
    return {
        "schema": SCHEMA,
        "before": {"path": before.path, "at": before.at, "exit_status": before.report["exit_status"]},
        "after": {"path": after.path, "at": after.at, "exit_status": after.report["exit_status"]},
        "nodes": {
            "both": len(both),
            "came": sorted(theirs - ours - _silent(before)),
            "went": sorted(ours - theirs - _silent(after)),
            "fell_silent": silent,
            "answer_again": sorted(_silent(before) & theirs),
        },
        "findings": [
            {"change": how, "check": check, "subject": subject, "before": was or None, "after": now or None,
             "message": message, "nodes": nodes}
            for (how, check, subject, was, now, message), nodes in sorted(found.items(), key=_urgency)
        ],
        "values": [
            {"what": what, "before": was, "after": now, "nodes": nodes}
            for (what, was, now), nodes in sorted(values.items(), key=lambda item: (-len(item[1]), item[0]))
        ],
        "values_compared": before.values is not None and after.values is not None,
        "exit_status": 1 if worse else 3 if silent or not both else 0,
    }  # fmt: skip


def _changed(
    old: Mapping[_Key, _Said], new: Mapping[_Key, _Said], judged: tuple[_Statuses, _Statuses]
) -> dict[tuple[str, ...], list[str]]:
    """Return the nodes of each change: how, check, subject, status before, status after, message."""
    found: dict[tuple[str, ...], list[str]] = {}
    for key in sorted(old.keys() | new.keys()):
        node, check, subject = key
        if check not in judged[0].get(node, ()) or check not in judged[1].get(node, ()):
            continue  # it was off, or it did not apply, on one side: nobody knows
        was, now = old.get(key), new.get(key)
        told = now or was
        if told is not None and (how := _how(was, now)):
            before, after = (
                said.status if said else _all_well(one[node][check])
                for said, one in zip((was, now), judged, strict=True)
            )
            found.setdefault((how, check, subject, before, after, told.message), []).append(node)
    return found


def _all_well(status: str) -> str:
    """Return a node's status by a check if it is a good one, which holds for every subject not named; else empty."""
    return status if not _ORDER[status] else ""


def _urgency(item: tuple[tuple[str, ...], list[str]]) -> tuple[int, int, tuple[str, ...]]:
    row, nodes = item
    return ("new", "worse", "better", "gone").index(row[0]), -len(nodes), row


def _how(was: _Said | None, now: _Said | None) -> str:
    """Say how what a check says of a subject changed: new, gone, worse, better, or not at all."""
    if was is None:
        return "new" if now and _ORDER[now.status] else ""
    if now is None:
        return "gone" if _ORDER[was.status] else ""
    step = _ORDER[now.status] - _ORDER[was.status]
    if not step:
        return ""
    if not _ORDER[was.status]:
        return "new"
    if not _ORDER[now.status]:
        return "gone"
    return "worse" if step > 0 else "better"


def _answered(side: Side) -> set[str]:
    return {node["name"] for node in side.report["nodes"] if not node.get("no_answer")}


def _silent(side: Side) -> set[str]:
    return {node["name"] for node in side.report["nodes"] if node.get("no_answer")}


def _judged(side: Side, nodes: Iterable[str]) -> _Statuses:
    return {node["name"]: node["checks"] for node in side.report["nodes"] if node["name"] in nodes}


def _findings(side: Side, nodes: set[str]) -> dict[_Key, _Said]:
    """Return what was said, the worst of each node, check and subject."""
    found: dict[_Key, _Said] = {}
    for finding in side.report["findings"]:
        for node in _members(finding, nodes):
            key = node, finding["check"], finding["subject"]
            if key not in found or _ORDER[finding["status"]] > _ORDER[found[key].status]:
                found[key] = _Said(finding["status"], finding["message"])
    return found


def _members(finding: Mapping[str, Any], nodes: set[str]) -> Iterator[str]:
    return (node for node in finding["nodes"] if node in nodes)
