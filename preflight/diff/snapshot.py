"""One side of a comparison: a saved report, or evidence judged now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from preflight._startup.lightclass import dataclass, field
from preflight.archive.directory import ArchiveError
from preflight.archive.lazy import load as load_evidence
from preflight.diff.node_profile import profile
from preflight.errors import PreflightError
from preflight.evidence.document import NODE
from preflight.expectations import Cluster
from preflight.facts.node import NodeFacts
from preflight.judge import judge
from preflight.model import Check
from preflight.reports import stored


class SnapshotError(PreflightError):
    """A side of a comparison cannot be read; the message names the path."""


@dataclass
class Snapshot:
    """A report, and the values of its nodes if evidence is available."""

    path: str
    report: Mapping[str, Any]
    values: Mapping[str, Mapping[str, str]] | None = None
    at: str = field(default="")


def load(path: Path, checks: Sequence[Check], cluster: Cluster, processes: int = 1) -> Snapshot:
    """Read a report, or judge a file or directory of evidence; raises SnapshotError."""
    if (report := _report(path)) is not None:
        return Snapshot(str(path), report, None, str(report["run"]["at"]))
    try:
        evidences, run = load_evidence([path])
    except ArchiveError as error:
        raise SnapshotError(str(error)) from None
    report = judge(evidences, checks, cluster, run=run, processes=processes)
    values = {}
    for evidence in evidences:
        if evidence.no_answer is None and evidence.pair is None and evidence.kind == NODE:
            facts = NodeFacts(evidence)
            values[evidence.node] = profile(facts, cluster.site(facts))
    at = max((str(node.get("collected_at", "")) for node in report["nodes"]), default="")
    return Snapshot(str(path), report, values, at)


def _report(path: Path) -> Mapping[str, Any] | None:
    """Return the report in a file; None if it is not a report."""
    try:
        return stored.read(path, ("run", "coverage", "nodes", "findings", "exit_status")) if path.is_file() else None
    except stored.ReportError as error:
        raise SnapshotError(str(error)) from None
