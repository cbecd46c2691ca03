"""Texts of the checks that compare runs between nodes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.model import Finding, skipped

if TYPE_CHECKING:
    from preflight.bench.comparison import Comparison
    from preflight.facts.campaign_ports import PortErrors

#: Maximum number of pairs listed separately.
MOST_LISTED = 40

#: Maximum number of ports in a message.
_MOST_PORTS = 3

#: Advice for runs with less noise.
QUIETER = "run more iterations of a larger message, without other jobs on these switches"

#: Factors that describe the design of a fabric, not its parts, with their text in messages.
WAYS = {"different blocks": "between blocks of nodes", "different rails": "between different rails",
         "different leaves": "between leaves"}  # fmt: skip
WITHIN = {"different blocks": "within a block", "different rails": "within a rail",
          "different leaves": "within a leaf"}  # fmt: skip


def no_pairs(run: RunFacts, site: Site) -> Finding | None:
    """Skip logs without runs over several groups of nodes to compare."""
    if not run.pairwise:
        return skipped(
            "no log has runs of one collective over several groups of nodes", evidence=list(run.nccl_tests)
        ).about()
    return None


def label_of(comparison: Comparison) -> str:
    """Return the kind of the compared runs as text."""
    kind = comparison.kind
    models = f" ({', '.join(comparison.models)})" if comparison.models else ""
    return f"{kind.collective} over {kind.ranks} GPUs on {kind.nodes} node{'s' * (kind.nodes != 1)}{models}"


def of_all(number: int, total: int) -> str:
    """Return ``2 of 7``, ``all 7`` or ``none of 7``."""
    return f"{number} of {total}" if 0 < number < total else f"{'all' if number else 'none of'} {total}"


def listed(nodes: Sequence[str]) -> str:
    """Return the names of nodes as text; of many, only the first 12."""
    return ", ".join(nodes[:12]) + (f" and {len(nodes) - 12} more" if len(nodes) > 12 else "")


def noise_if_blind(comparison: Comparison) -> float | None:
    """Return the noise if a run at half the rate would go unnoticed, else None."""
    limits = [held.reference for held in comparison.judged if held.reference is not None]
    return next((limit.sigma for limit in limits if limit.limit < 0.5 * limit.busbw), None)


def port_errors_during(run: RunFacts, sources: Sequence[str], node: str = "") -> str:
    """Describe ports that counted errors during the runs, of one node or of all."""
    if run.campaign is None or not run.port_errors:
        return ""
    # import-at-use: only campaigns have readings of ports
    from preflight.facts.campaign_ports import of_runs, total

    ports: dict[str, list[PortErrors]] = {}
    for errors in of_runs(run.campaign, run.port_errors, sources):
        if node in ("", errors.node):
            ports.setdefault(f"{errors.node} {errors.port}", []).append(errors)
    counts = [f"{port} counted {total(own)}" for port, own in islice(ports.items(), _MOST_PORTS)]
    return f"; meanwhile {', '.join(counts)}" if counts else ""
