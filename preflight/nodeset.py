"""Folded names (``gpu[001-064]``), unfolded and folded by ClusterShell's library, within bounds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

#: Names that one folded list may stand for.
MOST_NAMES = 100_000

_LONGEST_EXCERPT, _LONGEST_ERROR = 60, 300


def unfold(text: str) -> tuple[str, ...]:
    """Return the names that a list in NodeSet syntax stands for, sorted, each once.

    ``@group`` is looked up as ClusterShell is configured to. Raises ValueError saying what is wrong;
    a list of more than ``MOST_NAMES`` names is refused before it is unfolded.
    """
    from ClusterShell.NodeSet import NodeSet, NodeSetException
    from ClusterShell.NodeUtils import GroupResolverError, GroupSourceError

    text = re.sub(r" ?([],!&^[]) ?", r"\1", " ".join(text.split())).replace(" ", ",")
    if (number := how_many(text)) > MOST_NAMES:
        raise ValueError(f"names {number} nodes; at most {MOST_NAMES} are taken")
    try:
        found = NodeSet(text)
        number = len(found)
    except (NodeSetException, GroupResolverError, GroupSourceError) as error:
        raise ValueError(str(error)[:_LONGEST_ERROR]) from None
    if number > MOST_NAMES:
        raise ValueError(f"names {number} nodes; at most {MOST_NAMES} are taken")
    if not number:
        group = "; `cluset -ll` lists the groups that ClusterShell knows" if "@" in text else ""
        raise ValueError(f"{excerpt(text)} names nothing{group}")
    return tuple(found)


def fold(names: Iterable[str]) -> str:
    """Return names as one folded list (``gpu[001-063]``), as Slurm reads it too; empty for none."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

    folded = NodeSet.fromlist(list(names), resolver=RESOLVER_NOGROUP)
    folded.fold_axis = (-1,)  # Slurm takes a second bracket in some places only
    return str(folded)


def how_many(folded: str) -> int:
    """Count what a folded list stands for at most, before a library spends minutes on unfolding it."""
    total = 0
    for pattern in _patterns(folded):
        number = 1
        for ranges in re.findall(r"\[([^\[\]]*)\]", pattern):
            number = min(number * sum(_length(item) for item in re.split(r"[,!&^]", ranges)), 10**18)
        total += number if pattern else 0
    return total


def _patterns(folded: str) -> Iterator[str]:
    """Divide a list at the operators that stand outside of brackets."""
    start, inside = 0, False
    for mark in re.finditer(r"[],!&^[]", folded):
        if mark[0] in "[]":
            inside = mark[0] == "["
        elif not inside:
            yield folded[start : mark.start()]
            start = mark.end()
    yield folded[start:]


def _length(item: str) -> int:
    """Count a range such as ``001-064`` or ``0-100/2``."""
    numbers = [int(digits[:18]) for digits in re.findall(r"\d+", item)[:3]]
    if len(numbers) < 2:
        return 1
    step = numbers[2] if len(numbers) > 2 and "/" in item else 1
    return abs(numbers[1] - numbers[0]) // max(step, 1) + 1


def excerpt(text: str) -> str:
    """Return the start of a text in quotes, for a message."""
    return repr(text if len(text) <= _LONGEST_EXCERPT else text[:_LONGEST_EXCERPT] + "…")
