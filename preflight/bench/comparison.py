"""Comparison of runs of the same collective and numbers of nodes and ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from preflight.bench import factors
from preflight.bench.bits import gain
from preflight.bench.distance import LowNode, RateLevel, low_nodes, separate_distant, usual_level
from preflight.bench.explanation import Explanation, explain
from preflight.bench.observation import QUIET, SHARED, Observation, RunKind
from preflight.bench.reference import FEWEST, RESOLVED, UNRESOLVED, BusbwReference, UsualRate, reference

#: References from a baseline: (kind, bytes) -> usual rate.
References = Mapping[tuple[RunKind, int], UsualRate]

#: Fraction of the runs that must have a message size for a comparison at that size.
_MOST_RUNS = 0.8

#: Minimum number of runs between leaves for a comparison with runs within leaves.
_FEWEST_FAR = 3

#: Number of times that runs are divided by distance: into blocks, then rails.
_DIVISIONS = 2

#: A run gets slower with size if its share at the largest message is below this fraction of that at the smallest.
_FALLS = 0.5


@dataclass(frozen=True)
class ComparedRun:
    """A run and its reference."""

    run: Observation
    bytes: int | None = None  # the message size that is compared
    reference: BusbwReference | None = None  # None if there are too few runs of this kind

    @property
    def share(self) -> float | None:
        """The run's bandwidth as a share of the reference; None without one."""
        if self.reference is None or self.bytes is None:
            return None
        return self.run.busbw[self.bytes] / self.reference.busbw

    @property
    def slow(self) -> bool:
        """Whether the run's bandwidth is below the limit."""
        return self.reference is not None and self.bytes is not None and (
            self.run.busbw[self.bytes] < self.reference.limit
        )  # fmt: skip


@dataclass(frozen=True)
class Comparison:
    """The runs of one kind, and the causes of slow and stopped runs."""

    kind: RunKind
    held: tuple[ComparedRun, ...]
    slow: Explanation
    stopped: Explanation  # causes of runs that did not finish
    levels: tuple[RateLevel, ...] = ()
    models: tuple[str, ...] = ()  # GPU models of the runs; empty if all runs have the same
    low: tuple[LowNode, ...] = ()  # only if leaves are unknown
    distant: tuple[LowNode, ...] = ()  # low as well, but alltoall shows that their ports are not slow

    @property
    def judged(self) -> tuple[ComparedRun, ...]:
        """The runs with a reference."""
        return tuple(held for held in self.held if held.reference is not None)

    def is_low(self, held: ComparedRun) -> bool:
        """Return whether a run is not slow, but has a low or distant node."""
        return not held.slow and any(item.node in held.run.nodes for item in (*self.low, *self.distant))


def compare(runs: Iterable[Observation], given: References | None = None) -> tuple[Comparison, ...]:
    """Return a comparison for each kind of run.

    ``given`` are references from a baseline. Each collective is explained separately, because the runs of one launch,
    such as two successive collectives, see the same state of the fabric, and are not independent evidence.
    """
    everything = list(runs)
    models = _models(everything)
    kinds: dict[tuple[RunKind, tuple[str, ...]], list[Observation]] = {}
    for run in everything:
        kinds.setdefault((run.kind, models(run)), []).append(run)
    compared = [replace(_compare(kind, own, given or {}), models=gpus) for (kind, gpus), own in kinds.items()]
    return _with_distance(separate_distant(compared))


def _models(runs: Sequence[Observation]) -> Callable[[Observation], tuple[str, ...]]:
    """Return a function that returns the GPU models of a run.

    It returns an empty tuple if all runs have the same models. Nodes with different GPUs have different rates. The
    models of a run that stopped early are unknown.
    """
    mixed = len({run.models for run in runs if run.models}) > 1
    return lambda run: run.models if mixed else ()


def _with_distance(comparisons: Sequence[Comparison]) -> tuple[Comparison, ...]:
    """Add the level of runs between leaves, relative to runs within leaves.

    Runs over quiet uplinks are a separate kind; if all of them are slow, comparing them with each other does not show
    it.
    """
    within = {(item.kind, item.models): item for item in comparisons}
    extended = []
    for item in comparisons:
        near = within.get((replace(item.kind, load=""), item.models))
        level = _distance(item, near) if item.kind.load == QUIET and near is not None else None
        extended.append(replace(item, levels=(*item.levels, level)) if level else item)
    return tuple(extended)


def _distance(far: Comparison, near: Comparison) -> RateLevel | None:
    """Return the level of runs between leaves; None if it is not lower or unknown."""
    sized = Counter((held.bytes, held.reference) for held in near.judged if held.bytes is not None and held.reference)
    if not sized:
        return None
    (size, limit), _ = sized.most_common(1)[0]
    assert size is not None
    assert limit is not None
    rates = [held.run.busbw[size] for held in far.held if size in held.run.busbw]
    if len(rates) < _FEWEST_FAR or max(rates) >= limit.limit:
        return None
    share = median(rates) / limit.busbw
    bits = gain(len(rates), len(rates), len(rates), len(rates) + len(near.judged))
    leaves: dict[str, set[str]] = {}
    for end in (end for held in (*near.held, *far.held) for end in held.run.ends):
        leaves.setdefault(end.leaf or "", set()).add(end.node)
    blocks_ = tuple(tuple(sorted(members)) for _, members in sorted(leaves.items()))
    return RateLevel(factors.LEAVES_DIFFER, share, len(rates), bits, share >= UNRESOLVED, blocks_)


def hold(runs: Sequence[Observation], given: References | None = None) -> list[ComparedRun]:
    """Return each run with the reference for its kind, size and distance.

    Runs over shared uplinks have no reference: flows that share an uplink are slow without a fault.
    """
    resolved = all(end.leaf is not None for run in runs for end in run.ends)
    rails, models = factors.RailAddresses(runs), _models(runs)
    classes: dict[tuple[object, ...], list[int]] = {}
    for place, run in enumerate(runs):
        distance = (len({end.leaf for end in run.ends}), _rails_of(run, rails)) if resolved else ()
        classes.setdefault((run.kind, models(run), *distance), []).append(place)
    held: list[ComparedRun] = [ComparedRun(run) for run in runs]
    for own in (own for own in classes.values() if runs[own[0]].kind.load != SHARED):
        for place, bytes_, limit in _references([runs[place] for place in own], RESOLVED if resolved else UNRESOLVED,
                                                given or {}):  # fmt: skip
            held[own[place]] = ComparedRun(runs[own[place]], bytes_, limit)
    return held


def _rails_of(run: Observation, rails: factors.RailAddresses) -> str:
    single = all(len(end.gpus) == 1 for end in run.ends)
    return ("other rails" if rails.differ(run) else "same rail") if single else ""


def _references(runs: Sequence[Observation], floor: float, given: References) -> list[tuple[int, int, BusbwReference]]:
    """Return (index, bytes, reference) of each run that can be compared.

    The compared size is the largest that most runs have; for a run without it, the largest size with a reference.
    """
    counts = Counter(size for run in runs for size in run.busbw)
    measured = sum(bool(run.busbw) for run in runs)
    common = [size for size, count in counts.items() if count >= _MOST_RUNS * measured]
    made: dict[int, BusbwReference | None] = {}
    results = []
    for place, run in enumerate(runs):
        wanted = max(common, default=None)
        sizes = [wanted] if wanted in run.busbw else sorted(run.busbw, reverse=True)
        for size in sizes:
            if size is None:
                continue
            if size not in made:
                values = [other.busbw[size] for other in runs if size in other.busbw]
                made[size] = reference(values, floor, given.get((run.kind, size)))
            if (limit := made[size]) is not None:
                results.append((place, size, limit))
                break
    return results


def _compare(kind: RunKind, runs: Sequence[Observation], given: References) -> Comparison:
    held = hold(runs, given)
    levels: list[RateLevel] = []
    explanation = _explained(held)
    for _ in range(_DIVISIONS):
        relation = next((cause for cause in explanation.named if cause.factor.kind in factors.RELATIONS), None)
        if relation is None:
            break
        far = set(relation.places) | _with(held, relation.factor, explanation.blocks)
        shares = [held[place].share for place in far]
        share = median(value for value in shares if value is not None)
        levels.append(RateLevel(relation.factor.kind, share, len(far), relation.bits, False, explanation.blocks))
        parts = [[place for place in range(len(held)) if (place in far) is side] for side in (False, True)]
        for part in parts:
            for place, item in zip(part, hold([held[place].run for place in part], given), strict=True):
                held[place] = item
        explanation = _explained(held, relations=len(levels) < _DIVISIONS)
    low = low_nodes(held, explanation) if not levels else ()
    apart = {item.node for item in low}
    if not levels and (usual := usual_level([item for item in held if apart.isdisjoint(item.run.nodes)])):
        levels.append(usual)
    stopped = explain([item.run for item in held], [place for place, item in enumerate(held) if not item.run.complete],
                      relations=False)  # fmt: skip
    return Comparison(kind, tuple(held), explanation, stopped, tuple(levels), low=low)


def _explained(held: Sequence[ComparedRun], relations: bool = True) -> Explanation:
    """Explain the slow runs, among the runs with a reference."""
    judged = [place for place, item in enumerate(held) if item.reference is not None]
    slow = [number for number, place in enumerate(judged) if held[place].slow]
    return explain([held[place].run for place in judged], slow, relations).moved(judged)


def _with(held: Sequence[ComparedRun], factor: factors.Factor, groups: Sequence[Sequence[str]]) -> set[int]:
    rails = factors.RailAddresses([item.run for item in held])
    block = {node: number for number, group in enumerate(groups) for node in group}
    return {place for place, item in enumerate(held) if item.reference and factor in factors.of(item.run, rails, block)}


def falls_with_size(held: ComparedRun, runs: Sequence[ComparedRun]) -> bool:
    """Return whether a slow run is even slower with larger messages."""
    sound = [item.run for item in runs if item.reference and not item.slow]
    shares = []
    for size in sorted(held.run.busbw):
        usual = [run.busbw[size] for run in sound if size in run.busbw]
        if len(usual) >= FEWEST:
            shares.append(held.run.busbw[size] / median(usual))
    return len(shares) > 1 and shares[-1] < _FALLS * shares[0]
