"""Check of a log: connections between nodes stay on their rail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from preflight import parsers
from preflight.checks.logs import RERUN, no_nccl, node_count
from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.model import Finding, check, passed, skipped, unknown, warned

if TYPE_CHECKING:
    from preflight.parsers.nccl_log import NcclLog

ENV = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"


@check(
    "nccl.rails",
    title="Connections between nodes stay on their rail",
    fault="Connections between nodes leave their rail",
    impact="slows-job",
    source=f"{ENV}#nccl-cross-nic; both ends of each `via NET/X/N` line, NCCL 2.4 … 2.30",
    fix="Name the NICs in one order on every node (NCCL_IB_HCA); NCCL_CROSS_NIC=0 keeps rings and trees on one NIC.",
    action="fix-job",
    answers=("PA-17",),
    scope="run",
    gating=False,  # it can only warn
    unless=(no_nccl,),
)
def rails(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the NIC indexes of both ends of each network connection.

    ## Why it matters
    On a fabric with one leaf switch for each rail, traffic from one NIC index to another climbs to the spine: it
    shares uplinks that were sized for less, and on isolated rails it does not arrive at all.

    ## Verdicts
    One connection that joins NICs of two indexes warns: NCCL makes such by itself where it finds no shorter way.
    Without both ends of any connection in the log it is unknown; of very large logs a sample is looked at.

    ## False alarms
    A fabric without rails (every NIC on one leaf, or a full fat tree), and nodes that number their NICs
    in another order: there index N is not a rail.
    """
    for key, log in run.nccl_logs.items():
        yield _rails(log, node_count(run, key), key)


def _rails(log: NcclLog, nodes: int | None, key: str) -> Finding:
    name, found = key.removeprefix("log:"), log.rails
    if nodes == 1:
        return skipped(f"{name}: one node, no traffic between nodes", subject=name, evidence=[key])
    if log.network_names and all(parsers.nccl_log.is_tcp(network) for network in log.network_names):
        return skipped(f"{name}: TCP sockets know no rails (see nccl.transport)", subject=name, evidence=[key])
    if found is None:
        return unknown(
            f"{name}: no connection shows both of its ends, so that its rail is not known",
            evidence=[key],
            fix=f"{RERUN} on every rank, and give the logs of all of them",
        )
    sample = " of a sample" if found.sampled else ""
    if found.crossing:
        return warned(
            f"{name}: {found.crossing} of {found.seen} connections{sample} leave their rail",
            subject=name,
            found=f"{found.crossing} of {found.seen} between NICs of different indexes",
            expected="none",
            evidence=[key],
            quote=found.example or "",
        )
    return passed(f"{name}: all {found.seen} connections{sample} stay on their rail", subject=name, evidence=[key])
