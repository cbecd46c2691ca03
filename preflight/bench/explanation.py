"""The factors that explain slow runs, with their evidence in bits.

A run is slow because of one of its factors, or by chance (noisy-or model). Candidates are added greedily until each
slow run has one. Each is then judged together with the other candidates, by the bits that it gains over chance on the
runs that it explains. If each were judged alone against all other runs, several faults would mask each other.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from preflight.bench import blocks as of_nodes
from preflight.bench import factors
from preflight.bench.bits import ENOUGH, evidence, gain
from preflight.bench.factors import Factor
from preflight.bench.observation import Observation, RunKind

#: Maximum number of factors that are combined; further slow runs remain unexplained.
_MOST = 96

#: Maximum number of factors for which narrower factors are tried.
_MOST_REFINED = 24

#: Minimum number of slow runs for a factor to be reported: one may be chance, and two more confirm it.
_CONFIRMED = 3

#: Maximum number of rivals listed for a factor.
_MOST_ALIKE = 12


@dataclass(frozen=True)
class FactorEvidence:
    """A factor that explains slow runs, with its evidence."""

    factor: Factor
    slow: int  # number of slow runs with the factor
    runs: int  # number of runs with the factor
    elsewhere: tuple[int, int]  # numbers of slow runs and of runs that no cause explains
    bits: float  # log2 of the odds that it is a cause, as opposed to chance
    alike: tuple[Factor, ...] = ()  # rivals that are not ruled out
    places: tuple[int, ...] = ()  # indexes of the slow runs with the factor

    @property
    def named(self) -> bool:
        """Whether the evidence is sufficient to report the factor."""
        return self.bits >= ENOUGH and self.slow >= _CONFIRMED


@dataclass(frozen=True)
class Explanation:
    """The causes of the slow runs in a list of runs."""

    causes: tuple[FactorEvidence, ...] = ()  # in order of evidence, the strongest first
    unexplained: tuple[int, ...] = ()  # indexes of slow runs without a cause
    blocks: tuple[tuple[str, ...], ...] = ()  # nodes connected by good pairs, if there are several groups

    @property
    def named(self) -> tuple[FactorEvidence, ...]:
        """The causes with sufficient evidence."""
        return tuple(cause for cause in self.causes if cause.named)

    def moved(self, places: Sequence[int]) -> Explanation:
        """Return a copy with indexes in a longer list; ``places`` maps old to new indexes."""
        causes = tuple(
            replace(cause, places=tuple(places[place] for place in cause.places)) for cause in self.causes
        )  # fmt: skip
        return replace(self, causes=causes, unexplained=tuple(places[place] for place in self.unexplained))


@dataclass
class _Members:
    """The runs of each factor, and the price of selecting it in bits."""

    runs: dict[Factor, list[int]]
    cost: dict[str, float]
    slow: frozenset[int]
    count: int
    strata: tuple[RunKind, ...]  # kind of each run, since the chance of a slow run depends on it

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


def explain(runs: Sequence[Observation], slow: Iterable[int], relations: bool = True) -> Explanation:
    """Return the causes of slow runs, which are given by their indexes.

    Without ``relations``, only parts are considered as causes, since the runs already have the same distance.
    """
    flagged = frozenset(slow)
    if not flagged:
        return Explanation()
    groups = blocks(runs, flagged) if relations else ()
    members = _members(runs, flagged, groups, relations)
    causes = _causes(members)
    explained = {place for cause in causes for place in cause.places}
    apart = any(cause.factor.kind == factors.BLOCKS_DIFFER for cause in causes)
    return Explanation(causes, tuple(sorted(flagged - explained)), groups if apart else ())


def blocks(runs: Sequence[Observation], slow: frozenset[int]) -> tuple[tuple[str, ...], ...]:
    """Return the groups of nodes connected by good pairs; empty if there is only one."""
    pairs = [(place, run.nodes) for place, run in enumerate(runs) if len(run.ends) == 2]
    nodes = {node for _, pair in pairs for node in pair}
    good = [(a, b) for place, (a, b) in pairs if place not in slow]
    groups = tuple(group for group in of_nodes.components(nodes, good) if len(group) > 1)
    return groups if len(groups) > 1 else ()


def _members(
    runs: Sequence[Observation], slow: frozenset[int], groups: Sequence[Sequence[str]], relations: bool
) -> _Members:
    rails = factors.RailAddresses(runs)
    block = {node: number for number, group in enumerate(groups) for node in group}
    having: dict[Factor, list[int]] = {}
    for place, run in enumerate(runs):
        for factor in factors.of(run, rails, block):
            if relations or factor.kind not in factors.RELATIONS:
                having.setdefault(factor, []).append(place)
    kinds = Counter(factor.kind for factor, own in having.items() if len(own) < len(runs))
    cost = {kind: math.log2(count) + math.log2(len(kinds)) for kind, count in kinds.items()}
    if groups and factors.BLOCKS_DIFFER in cost:
        cost[factors.BLOCKS_DIFFER] += of_nodes.cost(len(group) for group in groups)
    usable = {factor: own for factor, own in having.items() if factor.kind in cost and not slow.isdisjoint(own)}
    return _Members(usable, cost, slow, len(runs), tuple(run.kind for run in runs))


def _causes(members: _Members) -> tuple[FactorEvidence, ...]:
    """Return the factors that explain the slow runs better than chance."""
    chosen, rivals = _refine(members, _cover(members, []))
    while chosen:
        bits = {factor: _bits(members, chosen, factor) for factor in chosen}
        weakest = min(chosen, key=lambda factor: (bits[factor], factor))
        if bits[weakest] > 0:
            break
        chosen.remove(weakest)
    free, _ = _assign(members, chosen)
    elsewhere = sum(place in members.slow for place in free), len(free)
    causes = []
    for factor in chosen:
        own = members.runs[factor]
        slow = tuple(place for place in own if place in members.slow)
        causes.append(
            FactorEvidence(factor, len(slow), len(own), elsewhere, _bits(members, chosen, factor),
                  tuple(dict.fromkeys((*rivals.get(factor, ()), *_alike(members, chosen, factor)))), slow)
        )  # fmt: skip
    return tuple(sorted(causes, key=lambda cause: (-cause.bits, cause.factor)))


def _refine(members: _Members, chosen: list[Factor]) -> tuple[list[Factor], dict[Factor, tuple[Factor, ...]]]:
    """Replace factors by narrower ones that explain more, such as a leaf by two nodes.

    Also return the rivals of each factor: if a leaf and six of its nodes explain the same runs, and neither is ruled
    out by 100 to 1, they are rivals.
    """
    score = _score(members, chosen)
    rivals: dict[Factor, tuple[Factor, ...]] = {}
    for factor in sorted(chosen, key=lambda factor: -len(members.runs[factor]))[:_MOST_REFINED]:
        others = [other for other in chosen if other != factor]
        covers = (_cover(members, others, without=factor, worth=worth) for worth in (True, False))
        better, narrower = max((_score(members, [*others, *cover]), cover) for cover in covers)
        if abs(better - score) < ENOUGH and len(narrower) > 1:
            rivals |= {factor: tuple(narrower), **dict.fromkeys(narrower, (factor,))}
        if better > score:
            chosen, score = [*others, *narrower], better
    return chosen, rivals


def _score(members: _Members, chosen: Sequence[Factor]) -> float:
    """Return the joint evidence of factors in bits, minus their price."""
    free, own = _assign(members, chosen)
    total = sum(evidence(*count) for count in _counted(members, free).values())
    total += sum(evidence(sum(place in members.slow for place in group), len(group)) for group in own.values())
    return total - members.price_together(chosen)


def _cover(
    members: _Members, before: Sequence[Factor], without: Factor | None = None, worth: bool = False
) -> list[Factor]:
    """Return factors that cover the slow runs that ``before`` does not, best first.

    With ``worth``, stop at a factor that does not gain more bits than it costs.
    """
    left = set(range(members.count))
    runs = {factor: len(own) for factor, own in members.runs.items()}
    slow = {factor: sum(place in members.slow for place in own) for factor, own in members.runs.items()}
    at: dict[int, list[Factor]] = {}
    for factor, own in members.runs.items():
        for place in own:
            at.setdefault(place, []).append(factor)
    all_slow = len(members.slow)
    chosen: list[Factor] = []
    for factor in before:
        all_slow -= _take(members, factor, left, runs, slow, at)
    slow.pop(without, None)  # type: ignore[arg-type]
    while all_slow and len(chosen) < _MOST:
        gains = {
            factor: gain(slow[factor], runs[factor], all_slow, len(left)) for factor in slow if slow[factor]
        }  # fmt: skip
        useful = [factor for factor, bits in gains.items() if bits > 0]
        if not useful:
            break
        best = min(
            useful, key=lambda factor: (members.price(factor) - gains[factor], factor.kind == factors.GPU, factor)
        )
        if worth and gains[best] <= members.price(best):
            break
        chosen.append(best)
        all_slow -= _take(members, best, left, runs, slow, at)
    return chosen


def _take(
    members: _Members, factor: Factor, left: set[int], runs: dict[Factor, int], slow: dict[Factor, int],
    at: dict[int, list[Factor]],
) -> int:  # fmt: skip
    """Remove a factor's runs from the counts; return the number of slow ones."""
    count = 0
    for place in members.runs[factor]:
        if place in left:
            left.discard(place)
            is_slow = place in members.slow
            count += is_slow
            for other in at[place]:
                runs[other] -= 1
                if other in slow:
                    slow[other] -= is_slow
    return count


def _assign(members: _Members, chosen: Iterable[Factor]) -> tuple[set[int], dict[Factor, list[int]]]:
    """Return the runs without a chosen factor, and the runs assigned to each factor.

    A run with several factors is assigned to the first of them.
    """
    free = set(range(members.count))
    own: dict[Factor, list[int]] = {}
    for factor in chosen:
        own[factor] = [place for place in members.runs[factor] if place in free]
        free.difference_update(own[factor])
    return free, own


def _bits(members: _Members, chosen: Sequence[Factor], factor: Factor) -> float:
    """Return the bits that a factor gains in addition to others, minus its price."""
    others = [other for other in chosen if other != factor]
    free, _ = _assign(members, others)
    own = [place for place in members.runs[factor] if place in free]
    return _against(members, _counted(members, free), own) - members.price_beside(factor, others)


def _counted(members: _Members, places: Iterable[int]) -> dict[RunKind, list[int]]:
    """Return the numbers of slow runs and of all runs, by kind."""
    counts: dict[RunKind, list[int]] = {}
    for place in places:
        count = counts.setdefault(members.strata[place], [0, 0])
        count[0] += place in members.slow
        count[1] += 1
    return counts


def _against(members: _Members, everything: dict[RunKind, list[int]], own: Sequence[int]) -> float:
    """Return the bits gained by a separate rate of slow runs for the runs ``own``.

    ``everything`` has the counts of all runs that no other cause explains, including ``own``.
    """
    mine = _counted(members, own)
    slow, runs = (sum(count[at] for count in mine.values()) for at in (0, 1))
    chance = sum(count[1] * everything[kind][0] / everything[kind][1] for kind, count in mine.items())
    if slow <= chance:
        return 0.0
    bits = evidence(slow, runs)
    for kind, (own_slow, own_runs) in mine.items():
        all_slow, all_runs = everything[kind]
        bits += evidence(all_slow - own_slow, all_runs - own_runs) - evidence(all_slow, all_runs)
    return bits


def _alike(members: _Members, chosen: Sequence[Factor], factor: Factor) -> tuple[Factor, ...]:
    """Return the rivals of a factor that are not ruled out by 100 to 1, best first."""
    others = [other for other in chosen if other != factor]
    free, _ = _assign(members, others)
    own = [place for place in members.runs[factor] if place in free]
    slow = {place for place in own if place in members.slow}
    everything = _counted(members, free)
    mine = _against(members, everything, own) - members.price_beside(factor, others)
    rivals = {rival for rival in members.runs if rival != factor and rival not in chosen}
    alike: list[tuple[float, Factor]] = []
    for rival in rivals:
        theirs = [place for place in members.runs[rival] if place in free]
        if 2 * sum(place in slow for place in theirs) < len(slow) or not slow:
            continue
        bits = _against(members, everything, theirs) - members.price_beside(rival, others)
        if mine - bits < ENOUGH:
            alike.append((-bits, rival))
    return tuple(rival for _, rival in sorted(alike)[:_MOST_ALIKE])
