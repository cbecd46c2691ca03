"""Check of the rails that connections in a log use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from preflight import parsers
from preflight.checks.logs import RERUN, no_nccl, node_count
from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.model import Finding, all_of, check, passed, skipped, unknown, verb, warned

if TYPE_CHECKING:
    from preflight.parsers.nccl_log import NcclLog

ENV = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"


@check(
    "nccl.rails",
    title="Connections between nodes stay on their rail",
    fault="Connections between nodes cross rails",
    impact="slows-job",
    source=f"{ENV}#nccl-cross-nic; both ends of each `via NET/X/N` line, NCCL 2.4 … 2.30",
    fix="List the NICs in the same order on every node (NCCL_IB_HCA); NCCL_CROSS_NIC=0 keeps rings and trees on "
    "one NIC.",
    action="fix-job",
    answers=("PA-17",),
    scope="run",
    gating=False,  # never fails
    unless=(no_nccl,),
)
def rails(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the NIC indexes of both ends of each network connection.

    ## Why it matters
    On a fabric with one leaf switch for each rail, traffic from one NIC index to another goes through the spine and can
    overload the uplinks. On isolated rails, it does not arrive at all.

    ## Verdicts
    A connection between NICs of different indexes warns: NCCL creates one if it finds no shorter path. If the log does
    not show both ends of any connection, the result is unknown; very large logs are sampled.

    ## False alarms
    A fabric without rails (every NIC on one leaf, or a full fat tree), and nodes that number their NICs in different
    orders, so that index N is not a rail.
    """
    for key, log in run.nccl_logs.items():
        yield _rails(log, node_count(run, key), key)


def _rails(log: NcclLog, nodes: int | None, key: str) -> Finding:
    name, found = key.removeprefix("log:"), log.rails
    if nodes == 1:
        return skipped(
            f"{name}: the job runs on one node, so there is no traffic between nodes", subject=name, evidence=[key]
        )
    if log.network_names and all(parsers.nccl_log.is_tcp(network) for network in log.network_names):
        return skipped(f"{name}: TCP sockets have no rails (see nccl.transport)", subject=name, evidence=[key])
    if found is None:
        return unknown(
            f"{name}: no line shows both ends of a connection, so the rails are unknown",
            evidence=[key],
            fix=f"{RERUN} on every rank, and pass the logs of all ranks",
        )
    sample = " of a sample" if found.sampled else ""
    if found.crossing:
        return warned(
            f"{name}: {found.crossing} of {found.seen} connections{sample} {verb(found.crossing, 'crosses')} rails",
            subject=name,
            found=f"{found.crossing} of {found.seen} between NICs with different indexes",
            expected="none",
            evidence=[key],
            quote=found.example or "",
        )
    stay = "stays on its rail" if found.seen == 1 else "stay on their rail"
    return passed(f"{name}: {all_of(found.seen, 'connection')}{sample} {stay}", subject=name, evidence=[key])
