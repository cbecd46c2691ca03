"""All nodes as one picture with a square for each.

A run of equal squares in a row is drawn as one dashed line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

Document = Mapping[str, Any]

#: Maximum number of nodes that are shown as named links instead of squares.
MOST_NAMED = 48

#: Minimum and maximum number of squares in a row.
_LEAST_COLUMNS, _MOST_COLUMNS = 25, 125


#: Relative height of a square: taller for a worse status, which is thus not shown by colour alone. The worst is last.
_HEIGHT = {"skip": 0.25, "pass": 0.35, "warn": 0.65, "unknown": 0.65, "no-answer": 1.0, "fail": 1.0}


@dataclass(frozen=True)
class NodeMap:
    """Layout of the squares in px.

    ``paths`` has, for each status, the height of its squares and their centre lines, which are drawn dashed.
    """

    columns: int
    rows: int
    cell: int  # from one square to the next
    square: int
    paths: tuple[tuple[str, float, str], ...]
    counts: tuple[tuple[str, int], ...]

    @property
    def width(self) -> int:
        """Width of the picture."""
        return self.columns * self.cell

    @property
    def height(self) -> int:
        """Height of the picture."""
        return self.rows * self.cell


def node_map(nodes: Sequence[Document]) -> NodeMap | None:
    """Lay out all nodes in report order; None if the page names each of them instead."""
    if len(nodes) <= MOST_NAMED:
        return None
    columns = min(_MOST_COLUMNS, max(_LEAST_COLUMNS, 25 * -(-round((3 * len(nodes)) ** 0.5) // 25)))
    cell = max(8, min(20, 1000 // columns))
    square = cell - (2 if cell <= 10 else 3)
    statuses = [status_of(node) for node in nodes]
    paths: dict[str, list[str]] = {}
    for status, x, y, count in _runs(statuses, columns):
        middle = y * cell + square / 2
        paths.setdefault(status, []).append(f"M{x * cell} {middle:g}h{count * cell - (cell - square)}")
    return NodeMap(
        columns, -(-len(nodes) // columns), cell, square,
        tuple(
            (status, round(square * share, 1), "".join(paths[status]))
            for status, share in _HEIGHT.items() if status in paths
        ),
        tuple((status, statuses.count(status)) for status in reversed(_HEIGHT) if status in paths),
    )  # fmt: skip


def status_of(node: Document) -> str:
    """Return the status under which the page shows a node."""
    if node.get("no_answer"):
        return "no-answer"
    return str(node["status"]) if node["status"] in ("fail", "warn", "pass", "skip") else "unknown"


def _runs(statuses: Sequence[str], columns: int) -> Iterator[tuple[str, int, int, int]]:
    """Yield status, column, row and length of each run of equal squares in a row."""
    for start in range(0, len(statuses), columns):
        x = 0
        for status, run in groupby(statuses[start : start + columns]):
            count = len(list(run))
            yield status, x, start // columns, count
            x += count
