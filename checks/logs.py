"""Helpers for checks of logs: names, quotations, node counts."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.model import Finding, unknown

if TYPE_CHECKING:
    from preflight.parsers.nccl_log import LogLine

RERUN = "run again with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH,ENV"


def log_name(key: str) -> str:
    """Return a log's name as the user gave it."""
    return key.removeprefix("log:")


def cited(*lines: LogLine | None) -> str:
    """Return distinct lines with their numbers, in order; at most 600 characters."""
    ordered = sorted({line for line in lines if line is not None}, key=lambda line: line.number)
    return "\n".join(str(line) for line in ordered)[:600]


def node_count(run: RunFacts, key: str) -> int | None:
    """Return the number of nodes of the job that wrote a log; None if unknown.

    NCCL's own figure takes precedence over that of nccl-tests reports in the log.
    """
    if (log := run.nccl_logs.get(key)) is not None and log.nnodes is not None:
        return log.nnodes
    return max((report.nnodes for report in run.nccl_tests.get(key, ()) if report.nnodes), default=None)


def gpu_names(run: RunFacts, key: str, hosts: Collection[str | None]) -> list[str]:
    """Return the GPU names of hosts from nccl-tests, else from their evidence."""
    named = [
        device.name for report in run.nccl_tests.get(key, ()) for device in report.devices
        if device.host in hosts or None in hosts or not set(hosts) & {one.host for one in report.devices}
    ]  # fmt: skip
    for host in [] if named else hosts:
        if (node := run.host(host)) is not None:
            try:
                named += [gpu.name for gpu in node.driver.gpus]
            except EvidenceError:
                continue
    return named


def no_nccl(run: RunFacts, site: Site) -> Finding | None:
    """Report that there is no log, or that none has a line from NCCL."""
    if not run.logs:
        return unknown("no log was given", fix="pass the job's log: --log FILE")
    if not run.nccl_logs:
        return unknown("no log has a line from NCCL", evidence=run.logs, fix=RERUN)
    return None
