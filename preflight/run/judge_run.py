"""The report of a run: the judge's document, the ``run`` block and the history."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from preflight.terminal import progress

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from preflight.collect.request import Collected
    from preflight.run.request import RunRequest

#: Commands that judge saved evidence, of one node or of the cluster.
_OF_MANY = ("judge", "checklist")


def judge_run(request: RunRequest, collected: Collected) -> dict[str, Any]:
    """Judge the collected evidence, record it in the history, return the report."""
    from preflight.judge import judge
    from preflight.run import saved_cluster
    from preflight.run.run_block import run_block

    cluster, history, evidences = request.cluster, request.history, collected.evidences
    with progress(f"judging {len(evidences)} nodes"):
        cores = len(os.sched_getaffinity(0))
        evidences = history.add_time_series(evidences) if history else evidences
        here = dict(collected.unjudged or {})
        report = judge(
            evidences, request.checks, cluster, run=collected.run, off=request.off, processes=cores, refused=here
        )
    seconds = time.monotonic() - request.started
    report["run"] = run_block(request.command, time.time(), seconds, saved_cluster.shown(cluster.path))
    if request.cluster_origin:
        report["run"]["cluster_origin"] = request.cluster_origin
    of_many = request.command in _OF_MANY or collected.via
    if of_many and (missing := cluster.unjudged(node["name"] for node in report["nodes"])):
        report["coverage"]["without_evidence"] = missing
    if collected.via:
        report["run"]["via"] = collected.via
    if collected.through_openssh:
        report["run"]["openssh"] = _by_reason(collected.through_openssh)
    if request.options.judge_on_nodes:
        answered = {node["name"] for node in report["nodes"] if "no_answer" not in node}
        report["run"]["judged_on_nodes"] = len(answered - here.keys())
        if here := {node: why for node, why in here.items() if node in answered}:
            report["run"]["judged_here"] = _by_reason(here)
    if history:
        history.record(report, evidences, collected.run)
    return report


def _by_reason(hosts: Mapping[str, str]) -> list[dict[str, str]]:
    """Return each reason, with its hosts."""
    from preflight.nodeset import fold

    reasons = sorted(set(hosts.values()))
    return [{"nodes": fold(host for host in hosts if hosts[host] == why), "why": why} for why in reasons]
