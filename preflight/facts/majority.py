"""Statistics across nodes: majority, outliers, duplicate identifiers.

The majority share and the outlier rule follow common practice: a value is the reference if 60% of at least three nodes
have it; a number is an outlier by the modified z-score (Iglewicz and Hoaglin, 1993: 3.5 times the median absolute
deviation, scaled by 1.4826 to a standard deviation).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from preflight._startup.lightclass import dataclass

#: Minimum share, of at least three nodes, for a value to be the reference; with two nodes it is unknown which one is
#: odd. A judgement call.
MAJORITY, QUORUM = 0.6, 3

#: Modified z-score beyond which a number is an outlier (Iglewicz and Hoaglin 1993), and the minimum number of nodes.
Z, ENOUGH = 3.5, 5


@dataclass(frozen=True)
class Vote:
    """Readings of one value on the nodes of one kind."""

    values: Mapping[str, tuple[str, ...]]  # value -> nodes, in order
    usual: str | None  # value of the majority; None if there is none
    total: int  # nodes with a value

    @property
    def holders(self) -> tuple[str, ...]:
        """The nodes that have the usual value; none without a majority."""
        return self.values[self.usual] if self.usual is not None else ()

    @property
    def odd(self) -> Mapping[str, tuple[str, ...]]:
        """Value -> nodes, for all values except the majority's; all without a majority."""
        return {value: nodes for value, nodes in self.values.items() if value != self.usual}

    @property
    def listed(self) -> str:
        """Every value with the number of its nodes."""
        return "; ".join(f"{value} on {len(nodes)}" for value, nodes in sorted(self.values.items()))


def is_majority(holders: int, total: int) -> bool:
    """Return whether ``holders`` of ``total`` nodes make a value the reference."""
    return total >= QUORUM and holders >= MAJORITY * total


def vote(reported: Iterable[tuple[str, str]]) -> Vote:
    """Count (node, value) pairs; a unanimous value is always the usual one."""
    values: dict[str, list[str]] = defaultdict(list)
    for node, value in reported:
        values[value].append(node)
    total = sum(map(len, values.values()))
    usual = None
    if values:
        most, holders = max(values.items(), key=lambda item: (len(item[1]), item[0]))
        if len(values) == 1 or is_majority(len(holders), total):
            usual = most
    return Vote({value: tuple(nodes) for value, nodes in values.items()}, usual, total)


def near(numbers: Mapping[str, float], tolerance: float) -> dict[str, float]:
    """Replace each group of close numbers with its median: node -> number.

    ``tolerance`` is the relative distance from the group's first number in ascending order.
    """
    from statistics import median

    order = sorted(numbers.items(), key=lambda item: item[1])
    runs: list[list[tuple[str, float]]] = []
    for node, number in order:
        if runs and number - runs[-1][0][1] <= tolerance * max(abs(number), abs(runs[-1][0][1])):
            runs[-1].append((node, number))
        else:
            runs.append([(node, number)])
    return {node: median(number for _, number in run) for run in runs for node, _ in run}


@dataclass(frozen=True)
class Outlier:
    """A number that deviates from those of its peers."""

    name: str
    number: float
    usual: float  # median of all
    spread: float  # median absolute deviation, scaled to a standard deviation


def outliers(numbers: Mapping[str, float], floor: float, *, up: bool = True, down: bool = True) -> list[Outlier]:
    """Return numbers more than both 3.5 spreads and ``floor`` from the median.

    The floor is in the unit of the numbers: without it, the smallest difference in a fleet with nearly equal values
    would be an outlier. Fewer than five numbers have no outlier.
    """
    if len(numbers) < ENOUGH:
        return []
    from statistics import median

    usual = median(numbers.values())
    spread = _spread(numbers.values())
    least = max(floor, Z * spread)
    found = []
    for name, number in numbers.items():
        away = number - usual
        if (up and away > least) or (down and -away > least):
            found.append(Outlier(name, number, usual, spread))
    return found


def sides(numbers: Mapping[str, float], floor: float) -> tuple[dict[str, float], dict[str, float]] | None:
    """Return the two groups of numbers, the lower first; None for one group.

    Also None for fewer than five numbers. The widest gap separates them, if it is wider than ``floor`` and than 3.5
    spreads within each group.
    """
    if len(numbers) < ENOUGH:
        return None
    order = sorted(numbers.items(), key=lambda item: item[1])
    gap, place = max((order[at][1] - order[at - 1][1], at) for at in range(1, len(order)))
    low, high = dict(order[:place]), dict(order[place:])
    return (low, high) if gap > max(floor, Z * _spread(low.values()), Z * _spread(high.values())) else None


def _spread(numbers: Iterable[float]) -> float:
    """Return the median absolute deviation, scaled to a standard deviation."""
    from statistics import median

    listed = list(numbers)
    middle = median(listed)
    return 1.4826 * median(abs(number - middle) for number in listed)


def shared(owners: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    """Return the identifiers that several nodes have: identifier -> nodes.

    ``owners`` are pairs of node and identifier.
    """
    first: dict[str, str] = {}
    several: dict[str, dict[str, None]] = {}
    for node, identifier in owners:
        owner = first.setdefault(identifier, node)
        if owner != node:
            several.setdefault(identifier, {owner: None})[node] = None
    return {identifier: tuple(nodes) for identifier, nodes in several.items()}


def systemic(hit: int, of: int, share: float = 0.3, least: int = QUORUM) -> bool:
    """Return whether a fault on ``hit`` of ``of`` nodes is likely site-wide.

    By default, this means at least 30% of the nodes, and at least three.
    """
    return hit >= least and hit >= share * of
