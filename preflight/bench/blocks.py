"""Blocks of nodes connected by good pairs: likely leaves of an unknown topology."""

from __future__ import annotations

import math
from collections.abc import Iterable


def components(nodes: Iterable[str], pairs: Iterable[tuple[str, str]]) -> list[tuple[str, ...]]:
    """Return the connected components of nodes, largest first, each sorted by name."""
    parent = {node: node for node in nodes}

    def root(node: str) -> str:
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for a, b in pairs:
        parent[root(a)] = root(b)
    groups: dict[str, list[str]] = {}
    for node in sorted(parent):
        groups.setdefault(root(node), []).append(node)
    return sorted((tuple(group) for group in groups.values()), key=lambda group: (-len(group), group))


def cost(sizes: Iterable[int]) -> float:
    """Return the bits needed to state the block of each node.

    This is the price of an explanation by blocks that are derived from the data.
    """
    counts = list(sizes)
    ways = math.lgamma(sum(counts) + 1) - sum(math.lgamma(count + 1) for count in counts)
    return ways / math.log(2) + math.log2(max(sum(counts), 1))
