"""Folded names (``gpu[001-064]``), unfolded and folded by ClusterShell's library, within bounds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from preflight.lean import regex

#: Names that one folded list may stand for.
MOST_NAMES = 100_000

_LONGEST_EXCERPT, _LONGEST_ERROR = 60, 300

#: One item of a plain list: a name that ends with a number or with numbers in brackets, and what may follow these.
_ITEM = regex(
    r"([A-Za-z](?:[A-Za-z0-9_.-]{0,200}[A-Za-z_.-])?)(?:\[([0-9,-]{1,10000})\]|([0-9]{1,9}))((?:[_.-][A-Za-z_.-]{0,200})?)"
)
_RANGE = regex(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


def unfold(text: str) -> tuple[str, ...]:
    """Return the names that a list in NodeSet syntax stands for, sorted, each once.

    ``@group`` is looked up as ClusterShell is configured to. Raises ValueError saying what is wrong;
    a list of more than ``MOST_NAMES`` names is refused before it is unfolded.
    """
    text = re.sub(r" ?([],!&^[]) ?", r"\1", " ".join(text.split())).replace(" ", ",")
    if (number := how_many(text)) > MOST_NAMES:
        raise ValueError(f"names {number} nodes; at most {MOST_NAMES} are taken")
    if plain := _plain(text):
        return plain
    from ClusterShell.NodeSet import NodeSet, NodeSetException
    from ClusterShell.NodeUtils import GroupResolverError, GroupSourceError

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


def _plain(text: str) -> tuple[str, ...]:
    """Unfold one name, or names that differ in their last number; empty for all else, which is the library's.

    The library takes longer to import than a node to be asked, and every gate reads a cluster file.
    """
    shared: tuple[str, str] | None = None
    ranges: list[tuple[str, str]] = []
    at = 0
    while at == 0 or text[at - 1 : at] == ",":
        if not (item := _ITEM.match(text, at)) or shared not in (None, (item[1], item[4])):
            return ()
        shared, at = (item[1], item[4]), item.end() + 1
        for part in (item[2] or item[3]).split(","):
            if not (found := _RANGE.fullmatch(part)) or int(found[1]) > int(found[2] or found[1]):
                return ()
            ranges.append((found[1], found[2] or found[1]))
    if shared is None or at != len(text) + 1:
        return ()
    ends = [number for ends in ranges for number in ends]
    width = len(ends[0]) if any(number[0] == "0" and len(number) > 1 for number in ends) else 0
    if width and any(len(number) != width for number in ends):
        return ()
    numbers = sorted({number for first, last in ranges for number in range(int(first), int(last) + 1)})
    return tuple(f"{shared[0]}{number:0{width}}{shared[1]}" for number in numbers)


def fold(names: Iterable[str]) -> str:
    """Return names as one folded list (``gpu[001-063]``); empty for none."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

    names = list(names)
    try:
        folded = NodeSet.fromlist(names, resolver=RESOLVER_NOGROUP)
    except NodeSetException:  # a name that no host can have
        return ",".join(names)
    folded.fold_axis = (-1,)  # Slurm takes a second bracket in some places only
    return str(folded)


def fold_for_slurm(names: Iterable[str]) -> str:
    """Return names as one folded list in which nothing follows a bracket: ``n[1-2]-ib`` is none to Slurm."""
    foldable: list[str] = []
    others: list[str] = []
    for name in names:
        (foldable if name[-1:].isdigit() else others).append(name)
    return ",".join(part for part in (fold(foldable), *others) if part)


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
