"""Which pairs of nodes to run next: a pure function of a plan and the runs so far.

The first round runs every node once, side by side; few nodes run again with others until there are enough runs to
compare. What a good run has is good; each node that is left runs again with
another partner, in a fresh launch, until it is named or cleared. With the goal ``links``, single rails and the links
above the leaves follow; what is slow there runs again with other nodes. Every round is disjoint: a node runs once.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from preflight.bench.comparison import hold
from preflight.bench.explanation import Explanation, explain
from preflight.bench.factors import GPU, LEAF_PAIR, NODE, RAIL, UPLINKS
from preflight.bench.observation import Observation, RunEnd

#: Purposes of rounds, in their order.
SCREEN, REPEAT, RAILS, ONE_RAIL, DRILL, ACROSS, LOADED = (
    "screen",
    "repeat",
    "rails",
    "one rail",
    "drill",
    "across",
    "loaded",
)

#: Rounds of each purpose at most; one of ``REPEAT`` clears a node, two confirm it.
_MOST = {SCREEN: 8, REPEAT: 4, RAILS: 4, ONE_RAIL: 5, DRILL: 10, ACROSS: 7, LOADED: 1}

#: Rounds over quiet uplinks that are run in any case: each leaf with so many others.
_ACROSS_ALWAYS = 3

#: Runs up to which idle sound nodes run beside suspects: evidence against a node needs sound runs to compare with.
_FEW_RUNS = 24

#: Runs of a suspect part after which it stays unknown.
_ENOUGH_RUNS = 6


@dataclass(frozen=True)
class BenchPlan:
    """What to measure: nodes, where they are, and how far to go."""

    nodes: tuple[str, ...]
    leaves: Mapping[str, str] = field(default_factory=dict)  # node -> leaf; empty: not known
    rails: tuple[str, ...] = ()  # PCI addresses of the GPUs, alike on all nodes
    goal: str = "nodes"  # or "links"
    seed: int = 1
    loaded: bool = False  # also load the uplinks, which other jobs would notice


@dataclass(frozen=True)
class Round:
    """Runs that share no node, to start side by side."""

    number: int
    purpose: str
    runs: tuple[tuple[RunEnd, ...], ...]
    load: str = ""  # of ``RunKind``


@dataclass(frozen=True)
class Assessment:
    """What the runs so far show."""

    explanation: Explanation
    runs: tuple[Observation, ...]  # those that were judged
    slow: frozenset[int]  # of them
    cleared: frozenset[str]  # nodes with a good run over all their GPUs
    stopped: Explanation = field(default_factory=Explanation)  # of the runs that did not end well
    tried: tuple[Observation, ...] = ()  # all runs, also those that were not judged

    @property
    def named(self) -> frozenset[str]:
        """Nodes that are named, also by a GPU."""
        return frozenset(
            cause.factor.node or cause.factor.of
            for cause in (*self.explanation.named, *self.stopped.named) if cause.factor.kind in (NODE, GPU)
        )  # fmt: skip


Past = Sequence[tuple[Round, Sequence[Observation]]]


def assess(past: Past) -> Assessment:
    """Explain the slow runs of all rounds, those over loaded uplinks left out."""
    runs = [run for made, results in past if made.purpose != LOADED for run in results]
    held = [item for item in hold(runs) if item.reference is not None]
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
    """Return the next round; None where nothing is left to run."""
    number = len(past) + 1
    draw = random.Random(f"{plan.seed}:{number}")
    counts = Counter(made.purpose for made, _ in past)
    if not past:
        first = _within(plan, plan.nodes, draw, plan.rails) or _paired(plan, plan.nodes, draw, plan.rails)
        return _made(number, SCREEN, first) if first else None
    state = assess(past)
    if not state.runs and counts[SCREEN] < _MOST[SCREEN] and (more := _screens(plan, past)):
        return _made(number, SCREEN, more)
    for purpose, runs in _wanted(plan, state, counts, draw):
        if runs and counts[purpose] < _MOST[purpose]:
            return _made(number, purpose, runs)
    return None


def _made(number: int, purpose: str, runs: Sequence[tuple[RunEnd, ...]]) -> Round:
    return Round(number, purpose, tuple(runs), {ACROSS: "quiet", LOADED: "loaded"}.get(purpose, ""))


def _wanted(
    plan: BenchPlan, state: Assessment, counts: Counter[str], draw: random.Random
) -> Iterator[tuple[str, list[tuple[RunEnd, ...]]]]:
    """Yield what is open, the most urgent first."""
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
            yield LOADED, _loaded(plan, state, draw)


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
    """Return disjoint pairs within each leaf; an odd node is left over."""
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
    """Return disjoint pairs of any nodes."""
    order = draw.sample(nodes, len(nodes))
    return [(_end(plan, a, gpus), _end(plan, b, gpus)) for a, b in zip(order[::2], order[1::2], strict=False)]


def _screens(plan: BenchPlan, past: Past) -> list[tuple[RunEnd, ...]]:
    """Return pairs that have run least, within leaves that have several nodes."""
    if len(plan.nodes) < 3:
        return []  # one pair has nothing to be compared with
    runs = Counter(frozenset(run.nodes) for _, results in past for run in results)
    leaves = _by_leaf(plan, plan.nodes).values()
    groups = leaves if any(len(members) > 1 for members in leaves) else [list(plan.nodes)]
    pairs: list[tuple[str, str]] = []
    for members in groups:
        turns = [circle(members, turn) for turn in range(max(1, len(members) - 1))]
        pairs += min(turns, key=lambda turn: sum(runs[frozenset(pair)] for pair in turn))
    return [(_end(plan, a, plan.rails), _end(plan, b, plan.rails)) for a, b in pairs]


def _sound(plan: BenchPlan, state: Assessment, draw: random.Random) -> list[str]:
    """Return the cleared nodes that no cause names, in a random order."""
    nodes = [node for node in plan.nodes if node in state.cleared and node not in state.named]
    return draw.sample(nodes, len(nodes))


def _repeats(plan: BenchPlan, state: Assessment, draw: random.Random) -> list[tuple[RunEnd, ...]]:
    """Return each open node with a sound one of its leaf, better one not yet met."""
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
    """Return pairs of sound nodes on one rail each, all rails alike often."""
    runs: list[tuple[RunEnd, ...]] = _within(plan, _sound(plan, state, draw), draw, ())
    return [
        tuple(_end(plan, end.node, (plan.rails[(place + turn) % len(plan.rails)],)) for end in run)
        for place, run in enumerate(runs)
    ]


def _one_rail(plan: BenchPlan, state: Assessment, draw: random.Random) -> list[tuple[RunEnd, ...]]:
    """Return pairs of sound nodes on the rail with most slow runs, until named.

    The rails that a named node used are not suspect because of its slow runs.
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
    """Return each named or open node on a rail that it has not run alone."""
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
    """Return one pair of nodes for each two leaves, other leaves every round."""
    leaves = _by_leaf(plan, _sound(plan, state, draw))
    names = sorted(leaves)
    if turn >= _ACROSS_ALWAYS and not _open_above(state):
        return []
    runs: list[tuple[RunEnd, ...]] = []
    for a, b in circle(names, turn):
        runs.append((_end(plan, leaves[a][0], plan.rails), _end(plan, leaves[b][0], plan.rails)))
    return runs


def _open_above(state: Assessment) -> bool:
    """Return whether slow runs between leaves are left without one named part."""
    slow = {place for place in state.slow if len({end.leaf for end in state.runs[place].ends}) > 1}
    above = [cause for cause in state.explanation.named if cause.factor.kind in (UPLINKS, LEAF_PAIR)]
    explained = {place for cause in state.explanation.named for place in cause.places}
    rivals = any(rival.kind in (UPLINKS, LEAF_PAIR) for cause in above for rival in cause.alike)
    return bool(slow - explained) or rivals


def _loaded(plan: BenchPlan, state: Assessment, draw: random.Random) -> list[tuple[RunEnd, ...]]:
    """Return all nodes of each leaf with those of the next one."""
    leaves = _by_leaf(plan, _sound(plan, state, draw))
    names = sorted(leaves)
    return [
        (_end(plan, node, plan.rails), _end(plan, peer, plan.rails))
        for a, b in circle(names, 0)
        for node, peer in zip(leaves[a], leaves[b], strict=False)
    ]


def circle(names: Sequence[str], turn: int) -> list[tuple[str, str]]:
    """Return the pairs of a turn of the circle method: all meet in n - 1 turns."""
    places: list[str | None] = [*names, *([None] if len(names) % 2 else [])]
    if len(places) < 2:
        return []
    first, *rest = places
    turn %= len(rest)
    ring = [first, *rest[turn:], *rest[:turn]]
    pairs = [(ring[place], ring[-1 - place]) for place in range(len(ring) // 2)]
    return [(a, b) for a, b in pairs if a is not None and b is not None]
