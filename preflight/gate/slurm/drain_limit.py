"""Limit on drains: a gate that is wrong everywhere must not empty the cluster.

Drains are counted in the controller's list of all nodes, because a prolog sees only its own node. The functions are
pure: if six gates fail in the same second, each computes the same result from the same nodes, including which of them
exceed the limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from preflight._startup.lightclass import dataclass
from preflight.gate.slurm import drain_reason
from preflight.gate.slurm.drain_settings import Settings
from preflight.gate.slurm.scontrol_nodes import Node


@dataclass(frozen=True)
class Drain:
    """A drain set by preflight: when it was set, its node and the failed check."""

    at: int
    node: str
    cause: str


def eligible(nodes: Mapping[str, Node], own: Node) -> tuple[Node, ...]:
    """Return the nodes from which the limit is computed, including this node.

    The other nodes share a partition with it, are in service, and have GPUs if it has any. Nodes drained by preflight
    count as in service, nodes drained by others do not.
    """
    return tuple(
        node
        for node in nodes.values()
        if (not own.partitions or set(node.partitions) & set(own.partitions))
        and (node.gpus or not own.gpus)
        and (node.name == own.name or not node.down)
        and (not node.drained or drain_reason.ours(node.name, node.reason) or node.name == own.name)
    )


def limit(number: int, settings: Settings) -> int:
    """Return how many of ``number`` nodes may be drained within the window."""
    return min(max(1, int(number * settings.share)), settings.most)


def drains(nodes: Sequence[Node]) -> list[Drain]:
    """Return our drains among nodes, oldest first."""
    marked = [(node, drain_reason.ours(node.name, node.reason)) for node in nodes if node.drained]
    return sorted(
        (Drain(node.at, node.name, mark.cause) for node, mark in marked if mark and not mark.at),
        key=lambda drain: (drain.at, drain.node),
    )


def before(nodes: Mapping[str, Node], own: Node, cause: str, now: int, settings: Settings) -> str:
    """Return why a node must not be drained for a cause now; empty if it may be."""
    counted = eligible(nodes, own)
    recent = [drain for drain in drains(counted) if drain.node != own.name and drain.at > now - settings.window_s]
    held = _held(counted, cause, now, settings)
    same = sorted({drain.node for drain in recent if drain.cause == cause} | (held - {own.name}))
    return _why(recent, same, cause, len(counted), settings)


def after(nodes: Mapping[str, Node], own: Node, settings: Settings) -> str:
    """Return why the drain just set on this node must be undone; empty if it may stay.

    Earlier drains count in the order of time and node name, each only if the limit is not yet reached and no counted
    drain has the same cause. ``nodes`` must have been read after the second in which this drain was set, so that all
    earlier drains are included.
    """
    counted = eligible(nodes, own)
    found = drains(counted)
    mine = next(drain for drain in found if drain.node == own.name)
    most = limit(len(counted), settings)
    let_through: list[Drain] = []
    for drain in found[: found.index(mine)]:
        alone = all(drain.cause != other.cause for other in let_through)
        if drain.at > mine.at - settings.window_s and alone and len(let_through) < most:
            let_through.append(drain)
    same = [drain.node for drain in let_through if drain.cause == mine.cause]
    return _why(let_through, same, mine.cause, len(counted), settings)


def _held(nodes: Sequence[Node], cause: str, now: int, settings: Settings) -> set[str]:
    """Return the nodes that failed for a cause in the window but stayed in service."""
    marks = ((node.name, drain_reason.ours(node.name, node.comment)) for node in nodes)
    return {name for name, mark in marks if mark and mark.cause == cause and mark.at > now - settings.window_s}


def _why(recent: Sequence[Drain], same: Sequence[str], cause: str, number: int, settings: Settings) -> str:
    minutes = f"{settings.window_s / 60:g} min"
    if same:
        more = f" and {len(same) - 1} more" if len(same) > 1 else ""
        return f"{same[0]}{more} failed {cause} too within {minutes}: look for a common cause"
    if len(recent) >= (most := limit(number, settings)):
        return f"{len(recent)} of {number} eligible nodes were drained within {minutes}; the limit is {most}"
    return ""
