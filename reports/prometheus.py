"""The report as Prometheus metrics, for node_exporter's textfile collector."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Any

from preflight.reports.prometheus_format import Metric

#: Maximum number of per-node series of one metric; the most urgent come first.
MOST_SERIES = 2000

#: Numeric value of a status: higher is more urgent.
LEVELS = {"pass": 0, "skip": 0, "warn": 1, "unknown": 2, "fail": 3}


def render(report: Mapping[str, Any]) -> str:
    """Return a report as metrics."""
    left_out = Metric("preflight_series_left_out", f"Series of a per-node metric omitted beyond {MOST_SERIES}.")
    metrics = [*_run(report), *_counts(report), *_nodes(report, left_out), left_out]
    return "".join(f"{line}\n" for metric in metrics for line in metric.lines())


def _run(report: Mapping[str, Any]) -> Iterator[Metric]:
    run = report["run"]
    build = Metric("preflight_build_info", "Version of preflight that made the report.")
    build.add(1, version=run["version"], command=run["command"])
    yield build
    for name, about, value in (
        ("exit_status", "Exit status: 0 passed, 1 failed, 3 unknown.", report["exit_status"]),
        ("run_duration_seconds", "How long the run took.", run["seconds"]),
        ("run_timestamp_seconds", "When the run ended, in seconds since 1970 UTC.", _seconds(run["at"])),
    ):
        if value is not None:
            made = Metric(f"preflight_{name}", about)
            made.add(value)
            yield made


def _counts(report: Mapping[str, Any]) -> Iterator[Metric]:
    coverage = report["coverage"]
    results = Metric("preflight_results", "Pairs of node and check, by result.")
    for status in ("passed", "warned", "failed", "unknown", "skipped", "no_answer"):
        results.add(coverage[status], status=status)
    nodes = Metric("preflight_nodes", "Nodes to collect from, and those that answered.")
    for state in ("planned", "answered", "no_answer"):
        nodes.add(coverage["nodes"][state], state=state)
    checks = Metric("preflight_check_nodes", "Nodes on which a check passed, warned, failed, was skipped or unknown.")
    statuses = Counter((check, status) for node in report["nodes"] for check, status in node["checks"].items())
    for (check, status), number in sorted(statuses.items()):
        checks.add(number, check=check, status=status)
    items = Metric("preflight_checklist_items", "Items of the operators' checklists, by answer.")
    for (document, status), number in sorted(
        Counter((i["document"], i["status"]) for i in report["checklists"]).items()
    ):
        items.add(number, document=document, status=status)
    yield from (results, nodes, checks, items)


def _nodes(report: Mapping[str, Any], left_out: Metric) -> Iterator[Metric]:
    levels = ", ".join(f"{level} {status}" for status, level in LEVELS.items() if status != "skip")
    status = Metric("preflight_node_status", f"The worst result of a node: {levels}.")
    answered = Metric("preflight_node_answered", "Whether a node answered.")
    seen = Metric(
        "preflight_node_evidence_timestamp_seconds", "When a node's evidence was collected, in seconds since 1970 UTC."
    )
    checks = Metric("preflight_check_status", f"Result of a check on a node, unless it passed: {levels}.")
    gating = {check["check"]: check["gating"] for check in report["findings"] if check["status"] in ("fail", "unknown")}
    nodes = sorted(report["nodes"], key=lambda node: -LEVELS[node["status"]])
    for node in nodes:
        labels = {"node": node["name"], "class": node.get("class") or ""}
        status.add(LEVELS[node["status"]], **labels)
        answered.add(0 if node.get("no_answer") else 1, **labels)
        if (at := _seconds(node.get("collected_at", ""))) is not None:
            seen.add(at, **labels)
    rows = [
        (LEVELS[result], node["name"], check)
        for node in nodes
        for check, result in node["checks"].items()
        if LEVELS[result]
    ]
    for level, name, check in sorted(rows, key=lambda row: -row[0]):
        checks.add(level, check=check, node=name, gating=str(gating.get(check, True)).lower())
    for metric in (status, answered, seen, checks):
        left_out.add(max(0, len(metric.samples) - MOST_SERIES), metric=metric.name)
        del metric.samples[MOST_SERIES:]
        yield metric


def _seconds(at: str) -> float | None:
    try:
        return datetime.strptime(at, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return None
