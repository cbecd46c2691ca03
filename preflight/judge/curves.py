"""Curves for the report: nccl-tests in the logs, and metrics over earlier runs.

Metrics are included only if a trend check fails or warns about their subject.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from preflight import parsers
from preflight.evidence.document import COURSE, EvidenceError
from preflight.facts.job import RunFacts, report_subjects
from preflight.facts.node import NodeFacts
from preflight.facts.time_series import series_of

#: Maximum number of curves of each kind, and of points per curve.
MOST_CURVES, MOST_POINTS = 12, 120

#: Maximum message size; a larger one is a damaged line.
MOST_BYTES = 2**50

Document = Mapping[str, Any]


def curves(findings: Sequence[Document], nodes: Mapping[str, NodeFacts], run: RunFacts | None) -> list[dict[str, Any]]:
    """Return the curves of the report, at most MOST_CURVES of each kind."""
    of_logs = islice(_of_logs(run), MOST_CURVES) if run is not None else ()
    return [*of_logs, *islice(_of_nodes(findings, nodes), MOST_CURVES)]


def _of_logs(run: RunFacts) -> Iterator[dict[str, Any]]:
    try:
        reports = run.nccl_tests
    except EvidenceError:
        return
    for key, listed in reports.items():
        for subject, report in zip(report_subjects(key.partition(":")[2], listed), listed, strict=True):
            points = [point for point in parsers.nccl_tests.curve.curve(report.rows) if point.bytes <= MOST_BYTES]
            if len(points) > 1 and report.copies == 1:
                yield {
                    "kind": "nccl-tests", "name": f"{subject} busbw", "node": None, "unit": "GB/s",
                    "points": [[point.bytes, point.busbw] for point in points[:MOST_POINTS]],
                }  # fmt: skip


def _of_nodes(findings: Sequence[Document], nodes: Mapping[str, NodeFacts]) -> Iterator[dict[str, Any]]:
    done: set[tuple[str, str]] = set()
    for finding in findings:
        if not finding["check"].startswith("trend.") or finding["status"] not in ("fail", "warn"):
            continue
        for name in finding["nodes"]:
            if name in nodes and (name, finding["subject"]) not in done:
                done.add((name, finding["subject"]))
                yield from _courses(name, finding["subject"], nodes[name])


def _courses(name: str, subject: str, node: NodeFacts) -> Iterator[dict[str, Any]]:
    try:
        metrics = [str(metric) for metric in node.evidence.value(COURSE)]
        courses = [(metric, course) for metric in metrics for course in series_of(node.evidence, metric)]
    except (EvidenceError, TypeError):
        return
    for metric, course in courses:
        if course.subject == subject and len(course.values) > 1 and len(set(course.values)) > 1:
            points = zip(course.days[-MOST_POINTS:], course.values[-MOST_POINTS:], strict=True)
            yield {
                "kind": "trend", "name": f"{subject}: {(metric.partition('.')[2] or metric).replace('_', ' ')}",
                "node": name, "unit": "s" if metric == "job.seconds" else "",
                "points": [[round(day - course.days[-1], 4), value] for day, value in points],
            }  # fmt: skip
