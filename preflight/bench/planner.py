"""Choice of the next pairs to run, given a plan and the previous runs.

The first round runs every node once, in parallel. On a small cluster, nodes run again with other partners until there
are enough runs for a comparison. A good run clears all its parts. Each remaining node runs again with another partner,
in a new launch, until it is reported or cleared. With the goal ``links``, single rails and the uplinks of leaves
follow, and slow ones run again with other nodes. Within a round, each node runs at most once.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from preflight.bench.comparison import References, hold
from preflight.bench.explanation import Explanation, explain
from preflight.bench.factors import GPU, LEAF_PAIR, NODE, RAIL, UPLINKS
from preflight.bench.observation import QUIET, SHARED, Observation, RunEnd
from preflight.bench.reference import FEWEST

#: Purposes of rounds, in order.
SCREEN, REPEAT, RAILS, ONE_RAIL, DRILL, ACROSS, LOADED = (
    "screen",
    "repeat",
    "rails",
    "one rail",
    "drill",
    "across",
    "loaded",
)

#: Maximum number of rounds per purpose.
_MOST = {SCREEN: 8, REPEAT: 4, RAILS: 4, ONE_RAIL: 5, DRILL: 10, ACROSS: 7, LOADED: 2}

#: Minimum number of rounds over quiet uplinks, in each of which a leaf has another partner; there are more if few
#: leaves give too few runs for a comparison.
_ACROSS_ALWAYS = 3

#: Number of runs up to which idle good nodes also run, since evidence against a node needs good runs for comparison.
_FEW_RUNS = 24

#: Number of rounds with other partners that confirm a slow node.
_CONFIRMING = 3

#: Number of runs after which a suspect node is no longer repeated, and remains unknown.
_ENOUGH_RUNS = 6


@dataclass(frozen=True)
class BenchPlan:
    """The nodes, their topology, and the goal of the measurement."""

    nodes: tuple[str, ...]
    leaves: Mapping[str, str] = field(default_factory=dict)  # node -> leaf; empty if unknown
    rails: tuple[str, ...] = ()  # PCI addresses of the GPUs, if equal on all nodes
    goal: str = "nodes"  # or "links"
    seed: int = 1
    loaded: bool = False  # whether to load the uplinks as well, which affects other jobs
    given: References = field(default_factory=dict)  # references from a baseline


@dataclass(frozen=True)
class Round:
    """Runs that start in parallel, none of which share a node."""

    number: int
    purpose: str
    runs: tuple[tuple[RunEnd, ...], ...]
    load: str = ""  # as in ``RunKind``


@dataclass(frozen=True)
class Assessment:
    """The conclusions from the runs so far."""

    explanation: Explanation
    runs: tuple[Observation, ...]  # the judged runs
    slow: frozenset[int]  # indexes of the slow ones in ``runs``
    cleared: frozenset[str]  # nodes with a good run on all their GPUs
    stopped: Explanation = field(default_factory=Explanation)  # causes of runs that did not complete
    tried: tuple[Observation, ...] = ()  # all runs, including those that were not judged

    @property
    def named(self) -> frozenset[str]:
        """The nodes that are reported as a cause, or whose GPU is."""
        return frozenset(
            cause.factor.node or cause.factor.of
            for cause in (*self.explanation.named, *self.stopped.named) if cause.factor.kind in (NODE, GPU)
        )  # fmt: skip


Past = Sequence[tuple[Round, Sequence[Observation]]]


def assess(past: Past, given: References | None = None) -> Assessment:
    """Explain the slow and incomplete runs, except in rounds that load shared uplinks."""
    runs = [run for made, results in past if made.purpose != LOADED for run in results]
    held = [item for item in hold(runs, given) if item.reference is not None]
    slow = frozenset(place for place, item in enumerate(held) if item.slow)
    judged = tuple(item.run for item in held)
    resolved = all(end.leaf is not None for run in judged for end in run.ends)
    stopped = explain(runs, [place for place, run in enumerate(runs) if not run.complete], relations=False)
    widest = max((len(end.gpus) for run in judged for end in run.ends), default=0)
    good = {
        end.node for place, run in enumerate(judged) for end in run.ends
        if place not in slow and len(end.gpus) == widest
    }  # fmt: skip
    return Assessment(explain(judged, slow, relations=not resolved), judged, slow, frozenset(good), stopped,
                      tuple(runs))  # fmt: skip


def next_round(plan: BenchPlan, past: Past) -> Round | None:
    """Return the next round; None if the plan is complete."""
    number = len(past) + 1
    draw = random.Random(f"{plan.seed}:{number}")
    counts = Counter(made.purpose for made, _ in past)
    if not past:
        first = _within(plan, plan.nodes, draw, plan.rails) or _paired(plan, plan.nodes, draw, plan.rails)
        return _made(number, SCREEN, first) if first else None
    state = assess(past, plan.given)
    if not state.runs and counts[SCREEN] < _MOST[SCREEN] and (more := _screens(plan, past)):
        return _made(number, SCREEN, more)
    for purpose, runs in _wanted(plan, state, counts, draw):
        if runs and counts[purpose] < max(_MOST[purpose], math.ceil(_FEW_RUNS / len(runs)) if purpose == ACROSS else 0):
            return _made(number, purpose, runs)
    return None


def fixed_rounds(plan: BenchPlan) -> list[Round]:
    """Return rounds that do not depend on results, for a script.

    Each node runs with several partners within its leaf, as often as it needs for a report. With the goal ``links``,
    pairs over quiet uplinks follow.
    """
    pairs = max(1, len(plan.nodes) // 2)
    count = max(_CONFIRMING, math.ceil(_FEW_RUNS / pairs))
    order = random.Random(f"{plan.seed}:fixed").sample(plan.nodes, len(plan.nodes))
    leaves = _by_leaf(plan, order)
    groups = list(leaves.values()) if any(len(members) > 1 for members in leaves.values()) else [order]
    made: list[Round] = []
    longest = max(len(members) for members in groups)
    for turn in range(min(count, longest if longest % 2 else longest - 1)):
        runs = [pair for members in groups for pair in circle(members, turn)]
        made.append(_made(len(made) + 1, SCREEN, [(_end(plan, a, plan.rails), _end(plan, b, plan.rails))
                                                  for a, b in runs]))  # fmt: skip
    for turn in range(_ACROSS_ALWAYS if plan.goal == "links" and len(leaves) > 1 else 0):
        across = [(leaves[a][turn % len(leaves[a])], leaves[b][turn % len(leaves[b])])
                  for a, b in circle(sorted(leaves), turn)]  # fmt: skip
        made.append(_made(len(made) + 1, ACROSS, [(_end(plan, a, plan.rails), _end(plan, b, plan.rails))
                                                  for a, b in across]))  # fmt: skip
    return [planned for planned in made if planned.runs]


def _made(number: int, purpose: str, runs: Sequence[tuple[RunEnd, ...]]) -> Round:
    return Round(number, purpose, tuple(runs), {ACROSS: QUIET, LOADED: SHARED}.get(purpose, ""))


def _wanted(
    plan: BenchPlan, state: Assessment, counts: Counter[str], draw: random.Random
) -> Iterator[tuple[str, list[tuple[RunEnd, ...]]]]:
    """Yield (purpose, runs) of possible next rounds, the most urgent first."""
    yield REPEAT, _repeats(plan, state, draw)
    if plan.goal != "links":
        return
    if len(plan.rails) > 1:
        if counts[RAILS] < _MOST[RAILS]:
            yield RAILS, _rotated(plan, state, counts[RAILS], draw)
        yield ONE_RAIL, _one_rail(plan, state, draw)
        yield DRILL, _drill(plan, state, draw)
    if len(set(plan.leaves.values())) > 1:
        yield ACROSS, _across(plan, state, counts[ACROSS], draw)
        if plan.loaded:
            yield LOADED, _loaded(plan, state, counts[LOADED], draw)


# --- runs --------------------------------------------------------------------------------------------


def _end(plan: BenchPlan, node: str, gpus: tuple[str, ...]) -> RunEnd:
    return RunEnd(node, gpus, plan.leaves.get(node))


def _by_leaf(plan: BenchPlan, nodes: Sequence[str]) -> dict[str, list[str]]:
    leaves: dict[str, list[str]] = {}
    for node in nodes:
        leaves.setdefault(plan.leaves.get(node, ""), []).append(node)
    return leaves


def _within(
    plan: BenchPlan, nodes: Sequence[str], draw: random.Random, gpus: tuple[str, ...]
) -> list[tuple[RunEnd, ...]]:
    """Return disjoint pairs within each leaf; an odd node remains unpaired."""
    runs: list[tuple[RunEnd, ...]] = []
    for members in _by_leaf(plan, nodes).values():
        order = draw.sample(members, len(members))
        runs += [
            (_end(plan, a, gpus), _end(plan, b, gpus)) for a, b in zip(order[::2], order[1::2], strict=False)
        ]  # fmt: skip
    return runs


def _paired(
    plan: BenchPlan, nodes: Sequence[str], draw: random.Random, gpus: tuple[str, ...]
) -> list[tuple[RunEnd, ...]]:
    """Return disjoint pairs of nodes, regardless of leaves."""
    order = draw.sample(nodes, len(nodes))
    return [(_end(plan, a, gpus), _end(plan, b, gpus)) for a, b in zip(order[::2], order[1::2], strict=False)]


def _screens(plan: BenchPlan, past: Past) -> list[tuple[RunEnd, ...]]:
    """Return the pairs with the fewest runs, within leaves if possible."""
    if len(plan.nodes) < 3:
        return []  # a single pair cannot be compared
    runs = Counter(frozenset(run.nodes) for _, results in past for run in results)
    leaves = _by_leaf(plan, plan.nodes).values()
    groups = leaves if any(len(members) > 1 for members in leaves) else [list(plan.nodes)]
    pairs: list[tuple[str, str]] = []
    for members in groups:
        turns = [circle(members, turn) for turn in range(max(1, len(members) - 1))]
        pairs += min(turns, key=lambda turn: sum(runs[frozenset(pair)] for pair in turn))
    return [(_end(plan, a, plan.rails), _end(plan, b, plan.rails)) for a, b in pairs]


def _sound(plan: BenchPlan, state: Assessment, draw: random.Random) -> list[str]:
    """Return the cleared nodes that are not a cause, in random order."""
    nodes = [node for node in plan.nodes if node in state.cleared and node not in state.named]
    return draw.sample(nodes, len(nodes))


def _repeats(plan: BenchPlan, state: Assessment, draw: random.Random) -> list[tuple[RunEnd, ...]]:
    """Return each open node paired with a good node of its leaf, preferably a new one."""
    met: dict[str, Counter[str]] = {}
    for run in state.tried:
        for end in run.ends:
            met.setdefault(end.node, Counter()).update(run.nodes)
    open_ = [node for node in plan.nodes if node not in state.cleared and node not in state.named]
    free = _sound(plan, state, draw)
    if len(open_) > len(free):
        return []
    runs: list[tuple[RunEnd, ...]] = []
    for node in open_:
        leaf = plan.leaves.get(node)
        times = met.get(node, Counter[str]())
        partners = [other for other in free if plan.leaves.get(other) == leaf]
        if partners and times[node] < _ENOUGH_RUNS:
            partner = min(partners, key=lambda other: times[other])
            free.remove(partner)
            runs.append((_end(plan, partner, plan.rails), _end(plan, node, plan.rails)))
    if runs and len(state.runs) < _FEW_RUNS:
        runs += _within(plan, free, draw, plan.rails)
    return runs


def _rotated(plan: BenchPlan, state: Assessment, turn: int, draw: random.Random) -> list[tuple[RunEnd, ...]]:
    """Return pairs of good nodes, each on one rail; rails are used equally often."""
    runs: list[tuple[RunEnd, ...]] = _within(plan, _sound(plan, state, draw), draw, ())
    return [
        tuple(_end(plan, end.node, (plan.rails[(place + turn) % len(plan.rails)],)) for end in run)
        for place, run in enumerate(runs)
    ]


def _one_rail(plan: BenchPlan, state: Assessment, draw: random.Random) -> list[tuple[RunEnd, ...]]:
    """Return pairs of good nodes on the unreported rail with the most slow runs.

    Slow runs that a reported cause explains do not make a rail suspect.
    """
    explained = {place for cause in state.explanation.named for place in cause.places}
    slow = Counter(_rail(state.runs[place]) for place in state.slow - explained)
    slow.pop("", None)
    named = {cause.factor.of for cause in state.explanation.named if cause.factor.kind in (RAIL, GPU)}
    rails = [rail for rail in plan.rails if slow[rail] and rail not in named]
    if not rails:
        return []
    worst = max(rails, key=lambda rail: slow[rail])
    return _within(plan, _sound(plan, state, draw), draw, (worst,))


def _rail(run: Observation) -> str:
    used = {gpu for end in run.ends for gpu in end.gpus}
    return used.pop() if len(used) == 1 else ""


def _drill(plan: BenchPlan, state: Assessment, draw: random.Random) -> list[tuple[RunEnd, ...]]:
    """Return runs of each reported or open node on one rail that it has not used yet."""
    free = _sound(plan, state, draw)
    runs: list[tuple[RunEnd, ...]] = []
    open_ = {node for node in plan.nodes if node not in state.cleared}
    for node in sorted(state.named | open_):
        done = {_rail(run) for run in state.runs if node in run.nodes}
        left = [rail for rail in plan.rails if rail not in done]
        partners = [other for other in free if plan.leaves.get(other) == plan.leaves.get(node)]
        if left and partners:
            free.remove(partners[0])
            runs.append((_end(plan, node, (left[0],)), _end(plan, partners[0], (left[0],))))
    return runs


def _across(plan: BenchPlan, state: Assessment, turn: int, draw: random.Random) -> list[tuple[RunEnd, ...]]:
    """Return a pair of nodes for each pair of leaves; rounds pair leaves differently."""
    leaves = _by_leaf(plan, _sound(plan, state, draw))
    names = sorted(leaves)
    measured = sum(run.kind.load == QUIET for run in state.tried)
    if turn >= _ACROSS_ALWAYS and measured >= FEWEST and not _open_above(state):
        return []
    runs: list[tuple[RunEnd, ...]] = []
    for a, b in circle(names, turn):
        runs.append((_end(plan, leaves[a][0], plan.rails), _end(plan, leaves[b][0], plan.rails)))
    return runs


def _open_above(state: Assessment) -> bool:
    """Return whether slow runs between leaves lack a cause, or a cause has rivals."""
    slow = {place for place in state.slow if len({end.leaf for end in state.runs[place].ends}) > 1}
    above = [cause for cause in state.explanation.named if cause.factor.kind in (UPLINKS, LEAF_PAIR)]
    explained = {place for cause in state.explanation.named for place in cause.places}
    rivals = any(rival.kind in (UPLINKS, LEAF_PAIR) for cause in above for rival in cause.alike)
    return bool(slow - explained) or rivals


def _loaded(plan: BenchPlan, state: Assessment, turn: int, draw: random.Random) -> list[tuple[RunEnd, ...]]:
    """Pair the good nodes of each leaf with those of another leaf.

    With an odd number of leaves, one is left out, so a second turn follows.
    """
    leaves = _by_leaf(plan, _sound(plan, state, draw))
    names = sorted(leaves)
    if turn > len(names) % 2:
        return []
    return [
        (_end(plan, node, plan.rails), _end(plan, peer, plan.rails))
        for a, b in circle(names, turn)
        for node, peer in zip(leaves[a], leaves[b], strict=False)
    ]


def circle(names: Sequence[str], turn: int) -> list[tuple[str, str]]:
    """Return the pairs of one turn of the circle method (round robin)."""
    places: list[str | None] = [*names, *([None] if len(names) % 2 else [])]
    if len(places) < 2:
        return []
    first, *rest = places
    turn %= len(rest)
    ring = [first, *rest[turn:], *rest[:turn]]
    pairs = [(ring[place], ring[-1 - place]) for place in range(len(ring) // 2)]
    return [(a, b) for a, b in pairs if a is not None and b is not None]
