"""Effect of a cluster file on saved evidence: failures with and without it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from preflight.evidence.document import Evidence
from preflight.expectations import Cluster
from preflight.judge import judge
from preflight.model import Check, counted
from preflight.nodeset import fold

_STATUSES = (("fail", "would fail"), ("unknown", "unknown"))


def preview(
    evidences: Sequence[Evidence], checks: Sequence[Check], cluster: Cluster, processes: int = 1
) -> Iterator[str]:
    """Yield lines on failing and unknown nodes, and on what differs without the file."""
    report = judge(evidences, checks, cluster, processes=processes)
    plain = judge(evidences, checks, Cluster(), processes=processes)
    planned = report["coverage"]["nodes"]["planned"]
    for status, words in _STATUSES:
        mine, theirs = _gating(report, status), _gating(plain, status)
        nodes, before = _nodes(mine), _nodes(theirs)
        yield f"{len(nodes)} of {counted(planned, 'node')} {words}{':' if nodes else ''}"
        for (check, message), names in mine.items():
            yield f"  {check}  {fold(names)}  {message}"
        if new := nodes - before:
            yield f"  only with this file: {fold(new)}"
        if gone := before - nodes:
            yield f"  only without this file: {words}: {fold(gone)}"
    yield from _classes(report, cluster)
    for waiver in report["coverage"].get("waivers", []):
        if not waiver["matched"]:
            yield f"the waiver for {waiver['check']} has no effect here"


def _gating(report: Mapping[str, Any], status: str) -> dict[tuple[str, str], list[str]]:
    """Return the nodes with gating findings of a status, by check and message.

    Nodes that did not answer are unknown.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for finding in report["findings"]:
        if finding["gating"] and finding["status"] == status:
            found.setdefault((finding["check"], finding["message"]), []).extend(finding["nodes"])
    silent = [node["name"] for node in report["nodes"] if node.get("no_answer")]
    if status == "unknown" and silent:
        found["no answer", ""] = silent
    return found


def _nodes(found: Mapping[tuple[str, str], Sequence[str]]) -> set[str]:
    return {node for nodes in found.values() for node in nodes if not node.startswith("@")}


def _classes(report: Mapping[str, Any], cluster: Cluster) -> Iterator[str]:
    """Yield lines on classes without any of these nodes, and on nodes without a class."""
    met: dict[str | None, list[str]] = {}
    for node in report["nodes"]:
        met.setdefault(cluster.class_of(node["name"]), []).append(node["name"])
    for name in cluster.classes:
        if name not in met:
            yield f"class {name} contains none of these nodes"
    if None in met and cluster.classes:
        yield f"in no class, so no expectations apply: {fold(met[None])}"
