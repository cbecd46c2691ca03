"""The runs of each factor, and how many of them no selected factor explains."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from preflight.bench import blocks, factors
from preflight.bench.factors import Factor
from preflight.bench.observation import Observation, RunKind

#: Numbers of slow runs and of all runs, by the number of their kind: the chance of a slow run depends on it.
Counts = dict[int, list[int]]


@dataclass
class FactorRuns:
    """The runs of each factor with a slow run, and the price of a factor in bits."""

    runs: dict[Factor, list[int]]
    cost: dict[str, float]
    slow: frozenset[int]
    kinds: Sequence[int]  # number of each run's kind
    at: list[list[Factor]] = field(init=False)  # the factors of each run
    totals: Counts = field(init=False)

    def __post_init__(self) -> None:
        """Index the factors by run, and count all runs."""
        self.at = [[] for _ in self.kinds]
        for factor, own in self.runs.items():
            for place in own:
                self.at[place].append(factor)
        self.totals = self.counted(range(len(self.kinds)))

    def counted(self, places: Collection[int]) -> Counts:
        """Return the numbers of slow runs and of all runs, by kind."""
        runs = Counter(map(self.kinds.__getitem__, places))
        slow = Counter(self.kinds[place] for place in places if place in self.slow)
        return {kind: [slow[kind], count] for kind, count in runs.items()}

    def price(self, factor: Factor) -> float:
        """Return the bits needed to select a single factor."""
        return self.cost[factor.kind]

    def price_beside(self, factor: Factor, others: Sequence[Factor]) -> float:
        """Return the bits needed to select a factor in addition to others.

        If 20 of 512 nodes are already selected, another one costs fewer bits than the first.
        """
        return self.price_together([*others, factor]) - self.price_together(others)

    def price_together(self, chosen: Sequence[Factor]) -> float:
        """Return the bits needed to select several factors.

        Their kind is selected once, and their order is irrelevant. Thirty of 512 nodes therefore cost less than thirty
        times one node, so a leaf does not win only because it is a single factor.
        """
        counts = Counter(factor.kind for factor in chosen)
        kind_bits = math.log2(len(self.cost) or 1)
        return sum(
            self.cost[kind] * count - kind_bits * (count - 1) - math.lgamma(count + 1) / math.log(2)
            for kind, count in counts.items()
        )


def factor_runs(
    runs: Sequence[Observation], slow: frozenset[int], groups: Sequence[Sequence[str]], relations: bool
) -> FactorRuns:
    """Return the runs of each factor; ``groups`` are blocks of nodes."""
    rails = factors.RailAddresses(runs)
    block = {node: number for number, group in enumerate(groups) for node in group}
    having: dict[Factor, list[int]] = defaultdict(list)
    for place, run in enumerate(runs):
        for factor in factors.of(run, rails, block):
            having[factor].append(place)
    if not relations:
        for kind in factors.RELATIONS:
            having.pop(Factor(kind), None)
    kinds = Counter(factor.kind for factor, own in having.items() if len(own) < len(runs))
    cost = {kind: math.log2(count) + math.log2(len(kinds)) for kind, count in kinds.items()}
    if groups and factors.BLOCKS_DIFFER in cost:
        cost[factors.BLOCKS_DIFFER] += blocks.cost(len(group) for group in groups)
    usable = {factor: own for factor, own in having.items() if factor.kind in cost and not slow.isdisjoint(own)}
    numbers: dict[RunKind, int] = {}
    return FactorRuns(usable, cost, slow, [numbers.setdefault(run.kind, len(numbers)) for run in runs])


class SelectedFactors:
    """Factors selected as causes, and the runs that have none of them."""

    def __init__(self, members: FactorRuns) -> None:
        """Start without a factor: all runs are open."""
        self.factors: list[Factor] = []
        self.free = {kind: list(count) for kind, count in members.totals.items()}  # counts of the open runs
        self.runs = {factor: len(own) for factor, own in members.runs.items()}  # number of open runs
        self.slow = Counter(factor for place in members.slow for factor in members.at[place])  # slow open runs
        self._members = members
        self._times = [0] * len(members.kinds)  # number of selected factors of each run

    def add(self, factor: Factor) -> None:
        """Select a factor."""
        self.factors.append(factor)
        self._move(self.open(self._members.runs[factor]), -1)
        for place in self._members.runs[factor]:
            self._times[place] += 1

    def remove(self, factor: Factor) -> None:
        """Remove a selected factor."""
        self.factors.remove(factor)
        for place in self._members.runs[factor]:
            self._times[place] -= 1
        self._move(self.open(self._members.runs[factor]), 1)

    def _move(self, places: Sequence[int], sign: int) -> None:
        members = self._members
        for kind, counts in members.counted(places).items():
            for at, count in enumerate(counts):
                self.free[kind][at] += sign * count
        for place in places:
            for factor in members.at[place]:
                self.runs[factor] += sign
            if place in members.slow:
                for factor in members.at[place]:
                    self.slow[factor] += sign

    def only(self, factor: Factor) -> frozenset[int]:
        """Return the runs with this selected factor and no other."""
        return frozenset(place for place in self._members.runs[factor] if self._times[place] == 1)

    def open(self, places: Iterable[int]) -> list[int]:
        """Return the runs without a selected factor."""
        return [place for place in places if not self._times[place]]

    def shares(self) -> list[tuple[int, int]]:
        """Return the numbers of slow runs and of runs of each factor.

        A run with several factors belongs to the one that is slow most often: it is slow as often as its worst part.
        """
        runs, slow = self._members.runs, self._members.slow
        rates = {factor: len(slow.intersection(runs[factor])) / len(runs[factor]) for factor in self.factors}
        taken: set[int] = set()
        shares = []
        for factor in sorted(rates, key=lambda factor: (-rates[factor], factor)):
            own = [place for place in runs[factor] if place not in taken]
            taken.update(own)
            shares.append((len(slow.intersection(own)), len(own)))
        return shares
