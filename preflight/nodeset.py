"""Folding and unfolding of node names (``gpu[001-064]``), with limits on size."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

#: Maximum number of names in one folded list.
MOST_NAMES = 100_000

_LONGEST_EXCERPT, _LONGEST_ERROR = 60, 300

#: One item of a plain list: a name ending in a number or bracketed numbers, and an optional suffix.
_ITEM = re.compile(
    r"([A-Za-z](?:[A-Za-z0-9_.-]{0,200}[A-Za-z_.-])?)(?:\[([0-9,-]{1,10000})\]|([0-9]{1,9}))((?:[_.-][A-Za-z_.-]{0,200})?)"
)
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")

#: A name without operators, ranges, groups or wildcards.
_NAME = re.compile(r"[A-Za-z0-9_.:%+-]{1,255}")

#: The numbers of a name, and the maximum digits of a number in a range; identifiers have more.
_NUMBER, _LONGEST_NUMBER = re.compile(r"([0-9]+)"), 18

#: Names of groups and of their sources. ClusterShell inserts group names into shell commands unquoted.
_GROUP = re.compile(r"[A-Za-z0-9_.:+*@-]{1,255}")
_GROUP_TAKES = "a group name may only contain letters, digits and . : + * @ _ -"


def unfold(text: str, groups: bool = False) -> tuple[str, ...]:
    """Return the sorted, distinct names of a list in NodeSet syntax.

    With ``groups``, ``@group`` and wildcards are resolved by ClusterShell's configuration, which runs commands of the
    site; use it only for text typed by the operator. Otherwise such a name is taken literally. Raises ValueError with
    the reason; a list of more than ``MOST_NAMES`` names is rejected before it is unfolded.
    """
    text = re.sub(r" ?([],!&^[]) ?", r"\1", " ".join(text.split())).replace(" ", ",")
    if (number := how_many(text)) > MOST_NAMES:
        raise ValueError(f"names {number} nodes; at most {MOST_NAMES} are allowed")
    if plain := _plain(text):
        return plain
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

    try:
        found = NodeSet(text, resolver=_OperatorGroups() if groups else RESOLVER_NOGROUP)
        number = len(found)
    except Exception as error:  # its parser raises anything on untrusted text: AssertionError, KeyError
        raise ValueError(str(error)[:_LONGEST_ERROR] or f"{excerpt(text)} is not a list of names") from None
    if number > MOST_NAMES:
        raise ValueError(f"names {number} nodes; at most {MOST_NAMES} are allowed")
    if not number:
        group = "; `cluset -ll` lists the groups that ClusterShell knows" if groups and "@" in text else ""
        raise ValueError(f"{excerpt(text)} names nothing{group}")
    return tuple(found)


def is_name(text: str) -> bool:
    """Return whether a string is a single name: not a list, group or wildcard."""
    return _NAME.fullmatch(text) is not None


class _OperatorGroups:
    """ClusterShell's groups; names unsafe for a shell are not resolved."""

    def group_nodes(self, group: str, namespace: str | None = None) -> list[str]:
        return self._resolver(group, namespace).group_nodes(group, namespace)  # type: ignore[no-any-return]

    def all_nodes(self, namespace: str | None = None) -> list[str]:
        return self._resolver(namespace).all_nodes(namespace)  # type: ignore[no-any-return]

    def grouplist(self, namespace: str | None = None) -> list[str]:
        return self._resolver(namespace).grouplist(namespace)  # type: ignore[no-any-return]

    def _resolver(self, *names: str | None) -> Any:
        from ClusterShell.NodeSet import std_group_resolver

        for name in names:
            if name is not None and not _GROUP.fullmatch(name):
                raise ValueError(f"group {excerpt(name)} is not resolved: {_GROUP_TAKES}")
        return std_group_resolver()


def _plain(text: str) -> tuple[str, ...]:
    """Unfold a simple list; empty for anything else, which the library handles.

    The names differ in their last number.
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


def fold(names: Iterable[str], brackets: int = 1) -> str:
    """Return names as one folded list (``gpu[001-063]``); empty for none.

    A folded name has at most ``brackets`` pairs of brackets, counted from its end, because Slurm does not accept a
    second pair everywhere. ClusterShell's folding takes 4 minutes for 10,000 names such as ``ip-10-3-141-59``; this one
    is linear.
    """
    names = list(dict.fromkeys(names))
    if not all(map(is_name, names)):
        return ",".join(names)
    alike: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for name in names:
        pieces = _NUMBER.split(name)  # text, number, text, …, text
        head = max(0, len(pieces) - 1 - 2 * brackets)
        texts = ("".join(pieces[: head + 1]), *pieces[head + 2 :: 2])
        alike.setdefault(texts, []).append(tuple(pieces[head + 1 :: 2]))
    return ",".join(sorted(folded for texts, numbers in alike.items() for folded in _folded(texts, numbers)))


def _folded(texts: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    """Yield folded names: their common text, with the differing numbers in brackets."""
    for place in range(len(texts) - 2, -1, -1):
        differing: dict[tuple[str, ...], list[str]] = {}
        for row in rows:
            differing.setdefault((*row[:place], *row[place + 1 :]), []).append(row[place])
        rows = [(*rest[:place], _ranges(numbers), *rest[place:]) for rest, numbers in differing.items()]
    for row in rows:
        yield "".join(piece for pair in zip(texts, (*row, ""), strict=True) for piece in pair)


def _ranges(numbers: list[str]) -> str:
    """Return a number, or several in brackets; ranges preserve leading zeros."""
    if len(numbers) == 1:
        return numbers[0]
    runs: list[list[str]] = []
    for number in sorted(numbers, key=lambda digits: (len(digits), digits)):
        if runs and _follows(runs[-1][-1], number):
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    return f"[{','.join('-'.join(run) for run in runs)}]"


def _follows(number: str, other: str) -> bool:
    """Return whether ``other`` is the successor of ``number``, in the same format."""
    if len(number) > _LONGEST_NUMBER or int(other) != int(number) + 1:
        return False
    return len(other) == len(number) or number[0] != "0" != other[0]


def fold_for_slurm(names: Iterable[str]) -> str:
    """Return names as one list in which no text follows a bracket, for Slurm."""
    foldable: list[str] = []
    others: list[str] = []
    for name in names:
        (foldable if name[-1:].isdigit() else others).append(name)
    return ",".join(part for part in (fold(foldable), *others) if part)


def how_many(folded: str) -> int:
    """Return an upper bound on the number of names in a list, without unfolding it."""
    total = 0
    for pattern in _patterns(folded):
        number = 1
        for lead, ranges in re.findall(r"(?<!\d)(\d*)\[([^\[\]]*)\]", pattern):
            number = min(number * sum(_length(item, lead) for item in re.split(r"[,!&^]", ranges)), 10**18)
        total += number if pattern else 0
    return total


def _patterns(folded: str) -> Iterator[str]:
    """Yield the parts of a list between the operators outside brackets."""
    start, inside = 0, False
    for mark in re.finditer(r"[],!&^[]", folded):
        if mark[0] in "[]":
            inside = mark[0] == "["
        elif not inside:
            yield folded[start : mark.start()]
            start = mark.end()
    yield folded[start:]


def _length(item: str, lead: str) -> int:
    """Return the length of a range such as ``001-064`` or ``0-100/2``.

    ``lead`` contains the digits before the bracket, with which both ends begin.
    """
    ends, _, steps = item.replace("_", "").partition("/")
    numbers = [int(lead[-18:] + digits[:18]) for digits in re.findall(r"\d+", ends)[:3]]
    if len(numbers) < 2:
        return 1
    if ends.lstrip().startswith("-"):
        return sum(numbers) + 1
    step = re.match(r"\d{1,18}", steps)
    return (max(numbers) - min(numbers)) // max(int(step[0]) if step and not lead else 1, 1) + 1


def excerpt(text: str) -> str:
    """Return the start of a string in quotes, for a message."""
    return repr(text if len(text) <= _LONGEST_EXCERPT else text[:_LONGEST_EXCERPT] + "…")
