"""Data for the heat maps of pairwise runs, by node, leaf or rail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from preflight.bench import factors
from preflight.bench.comparison import ComparedRun, Comparison
from preflight.bench.reference import UNRESOLVED

#: Maximum number of nodes for a row per node; with more nodes, a row is a leaf or a block of nodes.
MOST_NODES = 128

#: Maximum number of nodes, and of rails, for a heat map of single GPUs.
_MOST_STRIPS, _MOST_RAILS = 128, 16

#: Minimum number of nodes per block if leaves are unknown.
_BLOCK = 32


def picture(comparison: Comparison) -> dict[str, Any] | None:
    """Return the heat map of pairs; None with fewer than three nodes.

    ``cells`` are [row, column, lowest share, median share, runs, stopped runs]; the shares are null if no run has a
    reference.
    """
    pairs = [held for held in comparison.held if len(held.run.nodes) == 2]
    nodes = _ordered(comparison, {node for held in pairs for node in held.run.nodes})
    if len(nodes) < 3:
        return None
    labels, row = _rows(comparison, nodes, pairs)
    cells: dict[tuple[int, int], list[ComparedRun]] = {}
    for held in pairs:
        a, b = sorted(row[node] for node in held.run.nodes)
        cells.setdefault((a, b), []).append(held)
    kind = comparison.kind
    return {
        "title": ", ".join([f"{kind.collective}, {kind.ranks} GPUs on {kind.nodes} nodes", *comparison.models]),
        "per_row": "node" if len(labels) == len(nodes) else "block of nodes",
        "rows": labels,
        "slow_below": round(_limit(comparison), 4),
        "cells": [[a, b, *_summary(held)] for (a, b), held in sorted(cells.items())],
        "rails": _rails(nodes, pairs),
        "named": [str(cause.factor) for cause in (*comparison.slow.named, *comparison.stopped.named)
                  if cause.factor.kind not in factors.RELATIONS],
    }  # fmt: skip


def _ordered(comparison: Comparison, nodes: set[str]) -> list[str]:
    """Return the nodes sorted by leaf, block of good pairs and name."""
    leaf = {end.node: end.leaf or "" for held in comparison.held for end in held.run.ends}
    blocks = next((level.blocks for level in comparison.levels if level.blocks), ())
    block = {node: number for number, group in enumerate(blocks) for node in group}
    return sorted(nodes, key=lambda node: (leaf[node], block.get(node, len(blocks)), node))


def _rows(
    comparison: Comparison, nodes: Sequence[str], pairs: Sequence[ComparedRun]
) -> tuple[list[str], Mapping[str, int]]:
    """Return the labels of the rows, and the index of each node's row."""
    if len(nodes) <= MOST_NODES:
        return list(nodes), {node: number for number, node in enumerate(nodes)}
    leaf = {end.node: end.leaf for held in pairs for end in held.run.ends}
    if all(leaf.values()):
        labels = sorted({str(name) for name in leaf.values()})
        numbers = {name: number for number, name in enumerate(labels)}
        return labels, {node: numbers[str(leaf[node])] for node in nodes}
    size = max(_BLOCK, -(-len(nodes) // MOST_NODES))
    groups = [nodes[start : start + size] for start in range(0, len(nodes), size)]
    return (
        [f"{group[0]} to {group[-1]}" for group in groups],
        {node: number for number, group in enumerate(groups) for node in group},
    )


def _summary(held: Sequence[ComparedRun]) -> list[float | int | None]:
    shares = [item.share for item in held if item.share is not None]
    stopped = sum(not item.run.complete for item in held)
    lowest, middle = (round(min(shares), 3), round(median(shares), 3)) if shares else (None, None)
    return [lowest, middle, len(held), stopped]


def _limit(comparison: Comparison) -> float:
    limits = [item.reference.limit / item.reference.busbw for item in comparison.held if item.reference]
    return min(limits, default=UNRESOLVED)


def _rails(nodes: Sequence[str], pairs: Sequence[ComparedRun]) -> dict[str, Any] | None:
    """Return the heat map of GPUs (node by rail); None if all runs use all rails."""
    rails = sorted(factors.RailAddresses([held.run for held in pairs]).addresses)
    single = all(len(end.gpus) < len(rails) for held in pairs for end in held.run.ends)
    if not single or not 1 < len(rails) <= _MOST_RAILS or len(nodes) > _MOST_STRIPS:
        return None
    column = {rail: number for number, rail in enumerate(rails)}
    row = {node: number for number, node in enumerate(nodes)}
    cells: dict[tuple[int, int], list[ComparedRun]] = {}
    for held in pairs:
        if held.share is None:
            continue
        for end in held.run.ends:
            for gpu in end.gpus:
                if gpu in column:
                    cells.setdefault((row[end.node], column[gpu]), []).append(held)
    counted = [
        [a, b, round(min(item.share or 0.0 for item in own), 3), sum(item.slow for item in own), len(own)]
        for (a, b), own in sorted(cells.items())
    ]
    totals = [
        [sum(held.slow for held in _on(pairs, rail)), len(_on(pairs, rail))] for rail in rails
    ]  # fmt: skip
    return {"names": rails, "cells": counted, "totals": totals}


def _on(pairs: Sequence[ComparedRun], rail: str) -> list[ComparedRun]:
    return [held for held in pairs if held.reference and any(rail in end.gpus for end in held.run.ends)]
