"""Rates of NICs in a run, and nodes outside the NVLink domain of other nodes."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from preflight.bench.observation import RunKind
from preflight.bench.reference import UNRESOLVED

if TYPE_CHECKING:
    from preflight.bench.comparison import Comparison
    from preflight.bench.explanation import FactorEvidence

#: Bandwidth of the fastest NIC (800 Gb/s) in GB/s.
_NIC = 100.0


def rate_of(comparison: Comparison, cause: FactorEvidence) -> float:
    """Return the median bandwidth of a cause's slow runs in GB/s."""
    runs = (comparison.held[place] for place in cause.places)
    return median(held.run.busbw[held.bytes] for held in runs if held.bytes is not None)


def without_nvlink(comparison: Comparison, nodes: Sequence[FactorEvidence]) -> tuple[FactorEvidence, ...]:
    """Return the slow nodes that run at NIC rate, while other nodes exceed it.

    Such a node is not faulty: outside an NVLink domain, a node is as fast as its NICs. A node that is slow even for its
    NICs is not returned.
    """
    most = _nic_limit(comparison.kind)
    rates = {cause: rate_of(comparison, cause) for cause in nodes
             if all(_reference_of(comparison, place) > most for place in cause.places)}  # fmt: skip
    over_nics = {cause: rate for cause, rate in rates.items() if rate <= most}
    usual = median(over_nics.values()) if over_nics else 0.0
    return tuple(cause for cause, rate in over_nics.items() if rate >= UNRESOLVED * usual)


def _reference_of(comparison: Comparison, place: int) -> float:
    limit = comparison.held[place].reference
    return limit.busbw if limit is not None else 0.0


def _nic_limit(kind: RunKind) -> float:
    """Return a collective's bandwidth in GB/s if each GPU has the fastest NIC.

    The bus bandwidth of a ring is that of all NICs of a node. In alltoall over n nodes, each GPU sends (n-1)/n of its
    data to other nodes over its own NIC.
    """
    if kind.collective == "sendrecv":
        return _NIC
    if kind.collective == "alltoall":
        return _NIC * kind.nodes / max(kind.nodes - 1, 1)
    return _NIC * kind.ranks / kind.nodes


def port_rate(kind: RunKind, busbw: float) -> float:
    """Return the rate in GB/s at which each GPU sends to other nodes.

    Only for sendrecv and alltoall. In sendrecv, a GPU at the border of a node sends all its data to the next node; in
    alltoall over n GPUs, each sends a part to the n-1 others, of which some are on other nodes.
    """
    if kind.collective == "sendrecv" or kind.ranks < 2:
        return busbw
    return busbw * (kind.ranks - kind.ranks / kind.nodes) / (kind.ranks - 1)
