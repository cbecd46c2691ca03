"""Nodes of one kind: the classes of the cluster file."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from preflight._startup.lightclass import dataclass
from preflight.expectations.catalogue import Part
from preflight.facts.majority import QUORUM
from preflight.learn.node_values import NodeValues


@dataclass(frozen=True)
class NodeKind:
    """Nodes with the same hardware."""

    name: str  # of the class, a bare key of TOML
    part: Part | None
    members: tuple[NodeValues, ...]


def kinds(nodes: Iterable[NodeValues]) -> tuple[list[NodeKind], list[NodeValues]]:
    """Return the kinds, largest first, and the nodes without a GPU."""
    by_part: dict[tuple[str, str], list[NodeValues]] = defaultdict(list)
    apart: list[NodeValues] = []
    for one in nodes:
        if one.gpus:
            label = one.part.name if one.part else f"GPU {one.gpu_ids}"
            by_part[label, "container" if one.where == "container" else ""].append(one)
        else:
            apart.append(one)
    found: list[tuple[str, Part | None, tuple[NodeValues, ...]]] = []
    for (label, where), members in sorted(by_part.items()):
        for shape in _shapes(members):
            found.append((f"{label} {where}".strip(), shape[0].part, tuple(shape)))
    found.sort(key=lambda kind: (-len(kind[2]), kind[0], kind[2][0].node))
    return [NodeKind(name, part, members) for name, (_, part, members) in zip(_names(found), found, strict=True)], apart


def _shapes(members: Sequence[NodeValues]) -> list[list[NodeValues]]:
    part = members[0].part
    if part is not None and part.gpus is not None:
        return [list(members)]
    counts = Counter((one.gpus, one.devices) for one in members)
    most = max(counts, key=lambda shape: (counts[shape], shape))
    shapes: dict[tuple[int, int], list[NodeValues]] = defaultdict(list)
    for one in members:
        shape = (one.gpus, one.devices)
        shapes[shape if counts[shape] >= QUORUM else most].append(one)
    return [shapes[shape] for shape in sorted(shapes)]


def _names(found: Sequence[tuple[str, Part | None, tuple[NodeValues, ...]]]) -> list[str]:
    """Return class names such as ``hgx-h100``; a second shape gets the suffix ``-2``."""
    taken: Counter[str] = Counter()
    names = []
    for label, _, _ in found:
        name = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")[:40] or "nodes"
        taken[name] += 1
        names.append(name if taken[name] == 1 else f"{name}-{taken[name]}")
    return names
