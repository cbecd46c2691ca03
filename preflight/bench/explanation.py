"""The factors that explain slow runs, with their evidence in bits.

A run is slow because of one of its factors, or by chance (noisy-or model). Candidates are added greedily until each
slow run has one. Each is then judged together with the other candidates, by the bits that it gains over chance on the
runs that it explains. If each were judged alone against all other runs, several faults would mask each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from preflight.bench import blocks as of_nodes
from preflight.bench import factors
from preflight.bench.bits import ENOUGH, evidence, gain
from preflight.bench.factor_runs import Counts, FactorRuns, SelectedFactors, factor_runs
from preflight.bench.factors import Factor
from preflight.bench.observation import Observation

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


def explain(runs: Sequence[Observation], slow: Iterable[int], relations: bool = True) -> Explanation:
    """Return the causes of slow runs, which are given by their indexes.

    Without ``relations``, only parts are considered as causes, since the runs already have the same distance.
    """
    flagged = frozenset(slow)
    if not flagged:
        return Explanation()
    groups = blocks(runs, flagged) if relations else ()
    members = factor_runs(runs, flagged, groups, relations)
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


def _causes(members: FactorRuns) -> tuple[FactorEvidence, ...]:
    """Return the factors that explain the slow runs better than chance."""
    chosen = SelectedFactors(members)
    _cover(members, chosen, members.slow)
    _prune(members, chosen)
    rivals = _refine(members, chosen)
    bits = _prune(members, chosen)
    elsewhere = _total(chosen.free)
    causes = []
    for factor in chosen.factors:
        own = members.runs[factor]
        slow = tuple(place for place in own if place in members.slow)
        alike = dict.fromkeys((*rivals.get(factor, ()), *_alike(members, chosen, factor)))
        causes.append(FactorEvidence(factor, len(slow), len(own), elsewhere, bits[factor], tuple(alike), slow))
    return tuple(sorted(causes, key=lambda cause: (-cause.bits, cause.factor)))


def _prune(members: FactorRuns, chosen: SelectedFactors) -> dict[Factor, float]:
    """Remove factors that gain nothing; return the bits of the remaining ones."""
    while True:
        bits = {factor: _bits(members, chosen, factor) for factor in chosen.factors}
        weakest = min(chosen.factors, key=lambda factor: (bits[factor], factor), default=None)
        if weakest is None or bits[weakest] > 0:
            return bits
        chosen.remove(weakest)


def _refine(members: FactorRuns, chosen: SelectedFactors) -> dict[Factor, tuple[Factor, ...]]:
    """Replace factors with narrower ones that explain more: a leaf with two nodes.

    Return the rivals of each factor: if a leaf and six of its nodes explain the same runs, and neither is ruled out by
    100 to 1, they are rivals.
    """
    score = _score(members, chosen)
    rivals: dict[Factor, tuple[Factor, ...]] = {}
    for factor in sorted(chosen.factors, key=lambda factor: -len(members.runs[factor]))[:_MOST_REFINED]:
        slow = members.slow & chosen.only(factor)
        chosen.remove(factor)
        covers = []
        for worth in (True, False):
            cover = _cover(members, chosen, slow, without=factor, worth=worth)
            covers.append((_score(members, chosen), cover))
            for other in cover:
                chosen.remove(other)
        better, narrower = max(covers)
        if abs(better - score) < ENOUGH and len(narrower) > 1:
            rivals |= {factor: tuple(narrower), **dict.fromkeys(narrower, (factor,))}
        for other in narrower if better > score else [factor]:
            chosen.add(other)
        score = max(score, better)
    return rivals


def _score(members: FactorRuns, chosen: SelectedFactors) -> float:
    """Return the joint evidence of factors in bits, minus their price."""
    groups = (*chosen.free.values(), *chosen.shares())
    return sum(evidence(slow, runs) for slow, runs in groups) - members.price_together(chosen.factors)


def _total(counts: Counts) -> tuple[int, int]:
    """Return the numbers of slow runs and of runs of all kinds."""
    return sum(count[0] for count in counts.values()), sum(count[1] for count in counts.values())


def _cover(
    members: FactorRuns,
    chosen: SelectedFactors,
    slow: Collection[int],
    without: Factor | None = None,
    worth: bool = False,
) -> list[Factor]:
    """Add factors, best first, until they cover the ``slow`` runs; return them.

    With ``worth``, stop at a factor that does not gain more bits than it costs.
    """
    cover: list[Factor] = []
    while len(cover) < _MOST and (slow := chosen.open(slow)):
        total = _total(chosen.free)
        candidates = set[Factor]().union(*(members.at[place] for place in slow)) - {without}
        gains = {factor: gain(chosen.slow[factor], chosen.runs[factor], *total) for factor in candidates}
        useful = [factor for factor, bits in gains.items() if bits > 0]
        if not useful:
            break
        best = min(
            useful, key=lambda factor: (members.price(factor) - gains[factor], factor.kind == factors.GPU, factor)
        )
        if worth and gains[best] <= members.price(best):
            break
        chosen.add(best)
        cover.append(best)
    return cover


def _bits(members: FactorRuns, chosen: SelectedFactors, factor: Factor) -> float:
    """Return the bits that a factor adds to the other chosen ones, minus its price."""
    return _gained(members, chosen, factor, members.counted(chosen.only(factor)), factor)


def _gained(members: FactorRuns, chosen: SelectedFactors, factor: Factor, mine: Counts, without: Factor) -> float:
    """Return the bits that a factor gains in place of a chosen one, minus its price.

    ``mine`` are the counts of its runs.
    """
    others = [other for other in chosen.factors if other != without]
    everything = {kind: list(count) for kind, count in chosen.free.items()}
    for kind, (slow, runs) in members.counted(chosen.only(without)).items():
        everything[kind][0] += slow
        everything[kind][1] += runs
    return _against(everything, mine) - members.price_beside(factor, others)


def _against(everything: Counts, mine: Counts) -> float:
    """Return the bits gained by a separate rate of slow runs for some runs.

    ``everything`` has the counts of all runs that no other cause explains, including these.
    """
    slow, runs = _total(mine)
    chance = sum(count[1] * everything[kind][0] / everything[kind][1] for kind, count in mine.items())
    if slow <= chance:
        return 0.0
    bits = evidence(slow, runs)
    for kind, (own_slow, own_runs) in mine.items():
        all_slow, all_runs = everything[kind]
        bits += evidence(all_slow - own_slow, all_runs - own_runs) - evidence(all_slow, all_runs)
    return bits


def _alike(members: FactorRuns, chosen: SelectedFactors, factor: Factor) -> tuple[Factor, ...]:
    """Return the rivals of a factor that are not ruled out by 100 to 1, best first."""
    only = chosen.only(factor)
    mine = _bits(members, chosen, factor)
    slow = only & members.slow
    shared = Counter(rival for place in slow for rival in members.at[place])
    alike: list[tuple[float, Factor]] = []
    for rival, count in shared.items():
        if 2 * count < len(slow) or rival in chosen.factors:
            continue
        own = members.runs[rival]
        theirs = members.counted([*chosen.open(own), *only.intersection(own)])
        bits = _gained(members, chosen, rival, theirs, factor)
        if mine - bits < ENOUGH:
            alike.append((-bits, rival))
    return tuple(rival for _, rival in sorted(alike)[:_MOST_ALIKE])
