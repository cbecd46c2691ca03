"""Lower rates that distance on the fabric explains, and low nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

from preflight.bench import blocks, factors
from preflight.bench.bits import ENOUGH, gain
from preflight.bench.nic_rates import port_rate
from preflight.bench.reference import FEWEST, RESOLVED, UNRESOLVED, deviations, spread

if TYPE_CHECKING:
    from preflight.bench.comparison import ComparedRun, Comparison
    from preflight.bench.explanation import Explanation

#: Maximum gap between levels, and maximum difference of a node from the cost of distance, that noise explains, in
#: standard deviations.
_NOISE_Z = 3.0

#: Minimum number of a node's runs for concluding that all of them are low.
_FEWEST_LOW = 3

#: Collectives that show the rate of each port.
_POINT_TO_POINT = ("sendrecv", "alltoall")

#: Ratio of the standard deviation of a median to that of a mean.
_OF_MEDIAN = 1.26


@dataclass(frozen=True)
class RateLevel:
    """Runs at a lower rate, which distance or different rails explain."""

    relation: str  # one of ``factors.RELATIONS``
    share: float  # median as a fraction of the reference
    runs: int
    bits: float
    usual: bool  # whether distance has such an effect on a healthy fabric
    blocks: tuple[tuple[str, ...], ...] = ()  # groups of nodes whose mutual runs reach the reference


@dataclass(frozen=True)
class LowNode:
    """A node with low rates in all of its runs, but none below the limit.

    If the topology is unknown, the node may be alone on a leaf, or slow: losing one of eight rails costs an eighth of
    the rate.
    """

    node: str
    share: float  # median as a fraction of the other runs
    runs: int


@dataclass(frozen=True)
class _Divided:
    """The runs on both sides of the widest gap, and the node blocks that explain it."""

    near: tuple[float, ...]  # shares of the reference, of runs above the gap
    across: tuple[tuple[float, tuple[str, ...]], ...]  # share and nodes of the runs between blocks
    blocks: tuple[tuple[str, ...], ...]
    bits: float


def usual_level(held: Sequence[ComparedRun]) -> RateLevel | None:
    """Return the lower level that distance causes, below the widest gap, or None."""
    if (divided := _divided(held)) is None:
        return None
    share = median(share for share, _ in divided.across) / median(divided.near)
    return RateLevel(factors.BLOCKS_DIFFER, share, len(divided.across), divided.bits, True, divided.blocks)


def _divided(held: Sequence[ComparedRun]) -> _Divided | None:
    """Divide the runs of pairs at the widest gap between their rates.

    None unless blocks of nodes explain the gap, by the same test as for a fault.
    """
    pairs = [(item.share, item.run.nodes) for item in held if item.share is not None and len(item.run.ends) == 2]
    sound = sorted(((share, nodes) for share, nodes in pairs if share >= UNRESOLVED), reverse=True)
    if len(sound) < FEWEST or len(sound) < len(pairs):
        return None
    at = max(range(1, len(sound)), key=lambda place: sound[place - 1][0] / sound[place][0])
    near, far = sound[:at], sound[at:]
    gap = math.log(near[-1][0] / far[0][0])
    if gap <= _NOISE_Z * max(spread([share for share, _ in near]), spread([share for share, _ in far])):
        return None
    return _divided_at(sound, at)


def _divided_at(sound: Sequence[tuple[float, tuple[str, ...]]], at: int) -> _Divided | None:
    """Divide sorted runs at an index; return None unless blocks of nodes explain it."""
    near, far = sound[:at], sound[at:]
    groups = blocks.components(
        {node for _, nodes in sound for node in nodes}, [(nodes[0], nodes[1]) for _, nodes in near]
    )
    block = {node: number for number, group in enumerate(groups) for node in group}
    across = tuple((share, nodes) for share, nodes in sound if block[nodes[0]] != block[nodes[1]])
    bits = gain(len(across), len(across), len(far), len(sound)) - blocks.cost(len(group) for group in groups)
    return _Divided(tuple(share for share, _ in near), across, tuple(groups), bits) if bits >= ENOUGH else None


def low_nodes(held: Sequence[ComparedRun], explanation: Explanation) -> tuple[LowNode, ...]:
    """Return the nodes whose runs are all slower than distance explains.

    A block of one node does not prove distance, but a block of two nodes with fast mutual runs does. If blocks of
    several nodes show the cost of distance, a single node at that rate may be alone on its leaf, and is not returned.
    """
    if any(end.leaf is not None for item in held for end in item.run.ends):
        return ()
    sound = [item for item in held if not item.slow and item.share is not None and len(item.run.ends) == 2]
    if len(sound) < FEWEST:
        return ()
    divided = _divided(sound)
    usual = divided.near if divided else [item.share for item in sound if item.share is not None]
    middle, noise = median(usual), spread(usual)
    shares: dict[str, list[float]] = {}
    for item in sound:
        for node in item.run.nodes:
            shares.setdefault(node, []).append((item.share or 0.0) / middle)
    blamed = {cause.factor.node or cause.factor.of for cause in explanation.named}
    low = []
    for node, own in sorted(shares.items()):
        if node in blamed or len(own) < _FEWEST_LOW or max(own) >= RESOLVED:
            continue
        share = median(own)
        if -math.log(share) <= deviations(len(shares)) * noise * _OF_MEDIAN / math.sqrt(len(own)):
            continue
        low.append(LowNode(node, share, len(own)))
    if not low:
        return ()
    if divided is None:  # noise hides the gap; few runs are on the wrong side of the middle between usual and low rates
        limit = middle * math.sqrt(median(item.share for item in low))
        pairs = sorted(((item.share or 0.0, item.run.nodes) for item in sound), reverse=True)
        divided = _divided_at(pairs, sum(share >= limit for share, _ in pairs))
    if not (far := _cost_of_distance(divided) if divided else []):
        return tuple(low)
    usual_far, tolerance = median(far) / middle, _NOISE_Z * max(noise, spread(far))
    return tuple(item for item in low if math.log(usual_far / item.share) > tolerance)


def _cost_of_distance(divided: _Divided) -> list[float]:
    """Return the shares of the runs between blocks of several nodes."""
    several = {node for block in divided.blocks if len(block) > 1 for node in block}
    return [share for share, nodes in divided.across if several.issuperset(nodes)]


def separate_distant(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Move nodes from ``low`` to ``distant`` if alltoall uses their ports fully."""
    alltoall = [item for item in comparisons if item.kind.collective == "alltoall"]
    separated = []
    for item in comparisons:
        candidates = item.low if item.kind.collective in _POINT_TO_POINT else ()
        distant = tuple(low for low in candidates if any(_refutes(other, low, item) for other in alltoall))
        separated.append(replace(item, low=tuple(low for low in item.low if low not in distant), distant=distant))
    return separated


def _refutes(alltoall: Comparison, low: LowNode, of: Comparison) -> bool:
    """Return whether alltoall shows that no port of a low node is slow.

    In alltoall, each GPU sends to other nodes. If a port carries at least as much there as in the usual runs of ``of``,
    a slow port would cost alltoall at least as much of its rate as it costs those runs. So the ports are not slow if
    alltoall loses less than half of that.
    """
    gpus = {gpu for held in _runs(of, low.node) for gpu in _gpus(held, low.node)}
    own = [held for held in _runs(alltoall, low.node) if gpus.issubset(_gpus(held, low.node))]
    if alltoall.models != of.models or not gpus or len(own) < _FEWEST_LOW:
        return False
    lows = {item.node for item in of.low}
    usual = [held for held in of.judged if not held.slow and lows.isdisjoint(held.run.nodes)]
    if not usual or _port_rate(alltoall, own) < _port_rate(of, usual):
        return False
    sound = [held.share for held in alltoall.judged if held.share is not None and not held.slow]
    loss = math.log(median(sound) / median(held.share for held in own if held.share is not None)) if sound else math.inf
    return loss + _NOISE_Z * spread(sound) < -math.log(low.share) / 2


def _gpus(held: ComparedRun, node: str) -> tuple[str, ...]:
    return next(end.gpus for end in held.run.ends if end.node == node)


def _runs(comparison: Comparison, node: str) -> list[ComparedRun]:
    return [held for held in comparison.judged if node in held.run.nodes]


def _port_rate(comparison: Comparison, runs: Sequence[ComparedRun]) -> float:
    """Return the median rate of each GPU's port in some runs, in GB/s."""
    busbw = median(held.run.busbw[held.bytes] for held in runs if held.bytes is not None)
    return port_rate(comparison.kind, busbw)
