"""Groups of nodes to which the same lines of an NHC file apply."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from preflight._startup.lightclass import dataclass
from preflight.learn.conversion.targets import Target
from preflight.nodeset import MOST_NAMES

#: Maximum number of patterns times names, and of lines of all nodes together.
_MOST_TRIALS, _MOST_MEMBERSHIPS = 2_000_000, 5_000_000


@dataclass(frozen=True)
class TargetGroup:
    """Nodes, and the numbers of the lines that apply to them."""

    lines: tuple[int, ...]
    nodes: tuple[str, ...] = ()  # empty: all that no other class lists
    pattern: str = ""  # a target whose nodes cannot be listed


@dataclass(frozen=True)
class Grouping:
    """The groups of a file, and why the nodes of some targets are uncertain."""

    groups: tuple[TargetGroup, ...]
    uncertain: Mapping[str, str]


def group_nodes(targets: Sequence[tuple[int, Target]], hosts: Sequence[str]) -> Grouping:
    """Group the nodes by the lines that apply to them; raises ValueError.

    ``hosts`` are the names of all nodes; if empty, only the nodes listed in the file are known.
    """
    by_target: dict[str, tuple[Target, list[int]]] = {}
    for number, target in targets:
        by_target.setdefault(target.text, (target, []))[1].append(number)
    names = _names((target for target, _ in by_target.values()), hosts)
    lines, matched = _lines_of(by_target, names)
    members: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for name in names:
        if lines[name]:
            members[tuple(sorted(lines[name]))].append(name)
    groups = [TargetGroup(numbers, tuple(sorted(nodes))) for numbers, nodes in members.items()]
    uncertain: dict[str, str] = {}
    if hosts:
        for text in by_target:
            if text not in matched:
                uncertain[text] = "it matches none of the named nodes"
        return Grouping(tuple(groups), uncertain)
    certain = [n for target, numbers in by_target.values() if target.matches_unlisted() for n in numbers]
    patterns = {text: pair[1] for text, pair in by_target.items() if pair[0].matches_unlisted() is None}
    if certain:
        groups.append(TargetGroup(tuple(sorted(certain))))
    for text, numbers in patterns.items():
        if text in matched and not by_target[text][0].negated:
            uncertain[text] = "applies to the listed nodes that match; name all nodes with --hosts"
        elif not certain and len(patterns) == 1:
            uncertain[text] = "the class is for all nodes, because the file does not list the matching ones"
            groups.append(TargetGroup(tuple(numbers)))
        else:
            uncertain[text] = "the file does not list the matching nodes: name all nodes with --hosts"
            groups.append(TargetGroup(tuple(sorted({*certain, *numbers})), pattern=text))
    return Grouping(tuple(groups), uncertain)


def _names(targets: Iterable[Target], hosts: Sequence[str]) -> list[str]:
    names = dict.fromkeys(hosts)
    for target in targets:
        names.update(dict.fromkeys(sorted(target.names or ())))
        if len(names) > MOST_NAMES:
            raise ValueError(f"names more than {MOST_NAMES} nodes")
    return list(names)


def _lines_of(
    by_target: Mapping[str, tuple[Target, list[int]]], names: Sequence[str]
) -> tuple[dict[str, list[int]], set[str]]:
    """Return the line numbers of each node, and the targets that match a node."""
    lines: dict[str, list[int]] = {name: [] for name in names}
    matched: set[str] = set()
    tried = total = 0
    for text, (target, numbers) in by_target.items():
        listed = target.names is not None and not target.negated
        tried += 0 if listed else len(names)
        mine = (target.names or ()) if listed else [name for name in names if target.matches(name)]
        total += len(mine) * len(numbers)
        if tried > _MOST_TRIALS or total > _MOST_MEMBERSHIPS:
            raise ValueError("has too many targets and nodes to compare them all")
        for name in mine:
            lines[name] += numbers
        if mine:
            matched.add(text)
    return lines, matched
