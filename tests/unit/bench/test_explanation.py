"""Parts that explain slow runs: each fault next to the similar healthy cluster."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations

import pytest

from preflight.bench import blocks
from preflight.bench.bits import ENOUGH, gain
from preflight.bench.comparison import Comparison, compare
from preflight.bench.factors import Factor
from preflight.bench.nic_rates import without_nvlink
from preflight.bench.observation import FAILED, Observation, RunEnd, RunKind
from preflight.bench.reference import RESOLVED, UNRESOLVED, UsualRate, levels, reference

KIND = RunKind("alltoall", 2, 2)
GIB = 2**30
NODES = [f"n{number:02d}" for number in range(16)]
RAILS = [f"0000:{number:02x}:00" for number in range(8)]

Rate = Callable[[RunEnd, RunEnd], float | None]


def runs(rate: Rate, seed: int = 1, sigma: float = 0.01, leaf: int | None = None) -> list[Observation]:
    """Return a run for each pair of nodes on random rails; a rate of None is a failed run."""
    draw = random.Random(seed)
    made = []
    for item, other in combinations(range(len(NODES)), 2):
        ends = [
            RunEnd(NODES[place], (draw.choice(RAILS),), None if leaf is None else f"leaf{place // leaf}")
            for place in (item, other)
        ]
        value = rate(*ends)
        busbw = {} if value is None else {GIB: value * (1 + draw.gauss(0, sigma))}
        made.append(Observation(KIND, tuple(ends), busbw, FAILED if value is None else "ran"))
    return made


def only(observations: Sequence[Observation]) -> Comparison:
    (comparison,) = compare(observations)
    return comparison


def named(comparison: Comparison) -> list[str]:
    return [str(cause.factor) for cause in comparison.slow.named]


def _touches(node: str, *ends: RunEnd) -> bool:
    return any(end.node == node for end in ends)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("sigma", [0.002, 0.01, 0.05])
def test_noise_names_nothing(seed: int, sigma: float) -> None:
    comparison = only(runs(lambda *ends: 40.0, seed, sigma))
    assert not comparison.slow.causes
    assert not comparison.levels


@pytest.mark.parametrize("seed", range(20))
def test_pairs_that_are_slow_at_random_name_nothing(seed: int) -> None:
    draw = random.Random(seed)
    comparison = only(runs(lambda *ends: 20.0 if draw.random() < 0.1 else 40.0, seed))
    assert any(held.slow for held in comparison.held)
    assert not named(comparison)


def test_a_slow_node() -> None:
    assert named(only(runs(lambda *ends: 20.0 if _touches("n03", *ends) else 40.0))) == ["node n03"]


def test_two_slow_nodes_do_not_hide_each_other() -> None:
    bad = ("n03", "n11")
    comparison = only(runs(lambda *ends: 20.0 if any(_touches(node, *ends) for node in bad) else 40.0))
    assert sorted(named(comparison)) == ["node n03", "node n11"]


def _a_third_of(rail: str, draw: random.Random) -> Rate:
    return lambda a, b: 3.0 if rail in a.gpus + b.gpus and draw.random() < 0.33 else 40.0


def test_a_rail_that_is_slow_in_a_third_of_its_runs() -> None:
    """The rail is named if there are enough runs, and never another part."""
    counts = 0
    for seed in range(40):
        comparison = only(runs(_a_third_of(RAILS[5], random.Random(seed)), seed))
        assert set(named(comparison)) <= {f"rail {RAILS[5]}", f"rail {RAILS[5]} facing another rail"}
        counts += bool(named(comparison))
    assert counts >= 32


def test_a_node_and_a_rail() -> None:
    comparison = only(
        runs(lambda a, b: 20.0 if _touches("n09", a, b) else 10.0 if RAILS[2] in a.gpus + b.gpus else 40.0)
    )
    assert sorted(named(comparison)) == ["node n09", f"rail {RAILS[2]}"]


def test_half_of_the_cluster_cut_off_from_the_other() -> None:
    """No node is blamed: most pairs are slow, so the median of all pairs is not a reference."""
    comparison = only(runs(lambda a, b: 40.0 if (a.node < "n08") is (b.node < "n08") else 10.0))
    assert not named(comparison)
    (level,) = comparison.levels
    assert not level.usual
    assert {frozenset(block) for block in level.blocks} == {frozenset(NODES[:8]), frozenset(NODES[8:])}


def test_a_node_slow_behind_the_bottleneck_of_two_halves() -> None:
    def rate(a: RunEnd, b: RunEnd) -> float:
        return (20.0 if _touches("n02", a, b) else 40.0) * (1 if (a.node < "n08") is (b.node < "n08") else 0.25)

    comparison = only(runs(rate, sigma=0.002))
    assert named(comparison) == ["node n02"]


@pytest.mark.parametrize("share", [0.87, 0.92])
def test_distance_is_no_fault(share: float) -> None:
    """Three leaves, one with a single node, and a tenth less rate between them, as on a healthy fabric."""
    block = {node: 0 if place < 13 else 1 if place < 15 else 2 for place, node in enumerate(NODES)}
    comparison = only(runs(lambda a, b: 40.0 if block[a.node] == block[b.node] else share * 40, sigma=0.002))
    assert not comparison.slow.causes
    (level,) = comparison.levels
    assert level.usual
    assert [len(group) for group in level.blocks] == [13, 2, 1]


def test_other_rails_are_no_fault() -> None:
    comparison = only(runs(lambda a, b: 44.0 if a.gpus == b.gpus else 30.0))
    assert not named(comparison)
    assert all(cause.factor.kind not in ("node", "gpu", "rail") for cause in comparison.slow.causes)


def test_where_leaves_are_known_a_tenth_is_a_fault() -> None:
    comparison = only(
        runs(lambda a, b: (0.9 if _touches("n05", a, b) else 1) * (40.0 if a.leaf == b.leaf else 36.0), leaf=8,
             sigma=0.004)
    )  # fmt: skip
    assert named(comparison) == ["node n05"]


def test_the_uplinks_of_a_leaf() -> None:
    comparison = only(
        runs(lambda a, b: 13.0 if a.leaf != b.leaf and "leaf1" in (a.leaf, b.leaf) else 40.0, leaf=4)
    )  # fmt: skip
    first, *_ = comparison.slow.named
    assert first.factor == Factor("uplinks", "leaf1")


def test_a_node_with_runs_that_fail_is_not_slow() -> None:
    comparison = only(runs(lambda *ends: None if _touches("n07", *ends) else 40.0))
    assert not comparison.slow.causes
    assert [str(cause.factor) for cause in comparison.stopped.named] == ["node n07"]


def test_few_runs_are_not_compared() -> None:
    comparison = only(runs(lambda *ends: 40.0)[:7])
    assert not comparison.judged
    assert not comparison.slow.causes


def test_nvlink_between_two_nodes_is_no_reference() -> None:
    """Three fast pairs among 120 do not make all others slow."""
    fast = {("n00", "n01"), ("n02", "n03"), ("n04", "n05")}
    comparison = only(runs(lambda a, b: 400.0 if (a.node, b.node) in fast else 40.0))
    assert not any(held.slow for held in comparison.held)


def test_reference_is_the_upper_level() -> None:
    values = [40.0] * 20 + [10.0] * 60
    result = reference(values, UNRESOLVED)
    assert result is not None
    assert result.busbw == 40.0
    assert result.limit == pytest.approx(34.0)
    assert [len(level) for level in levels(values, UNRESOLVED)] == [20, 60]


def test_noise_widens_the_limit() -> None:
    draw = random.Random(3)
    result = reference([40 * (1 + draw.gauss(0, 0.05)) for _ in range(200)], RESOLVED)
    assert result is not None
    assert result.limit < 0.85 * result.busbw


def test_a_given_reference_needs_no_runs() -> None:
    result = reference([10.0] * 3, RESOLVED, given=UsualRate(40.0, 0.01))
    assert result is not None
    assert result.given
    assert result.limit == pytest.approx(38.0)


def test_bits() -> None:
    assert gain(0, 10, 0, 100) == 0
    assert gain(8, 31, 8, 131) > ENOUGH
    assert gain(3, 30, 10, 100) == 0
    assert gain(1, 1, 1, 100) < ENOUGH


def test_components() -> None:
    assert blocks.components("abcde", [("a", "b"), ("b", "c")]) == [("a", "b", "c"), ("d",), ("e",)]


def test_the_order_of_runs_changes_nothing() -> None:
    made = runs(lambda a, b: 10.0 if RAILS[2] in a.gpus + b.gpus else 40.0)
    shuffled = random.Random(5).sample(made, len(made))
    assert [(str(cause.factor), cause.bits) for cause in only(made).slow.causes] == [
        (str(cause.factor), cause.bits) for cause in only(shuffled).slow.causes
    ]


# --- healthy clusters that look sick, and sick ones that look healthy --------------------------------


def screen(rate: Rate, pairs: int, seed: int = 1, sigma: float = 0.01) -> list[Observation]:
    """Return the first runs of a small campaign: this many pairs of nodes, each on its first GPU."""
    chosen = random.Random(seed).sample(list(combinations(NODES[:8], 2)), pairs)
    draw = random.Random(seed)
    made = []
    for nodes in chosen:
        ends = tuple(RunEnd(node, (RAILS[0],)) for node in nodes)
        made.append(Observation(KIND, ends, {GIB: (rate(*ends) or 0) * (1 + draw.gauss(0, sigma))}))
    return made


@pytest.mark.parametrize("fast", [2, 3])
def test_a_few_fast_runs_of_a_small_campaign_are_no_reference(fast: int) -> None:
    """Two pairs share a leaf, or six of eight runs are slow: eight runs are too few."""
    rates = iter([46.0] * fast + [38.0] * (8 - fast))
    comparison = only(screen(lambda *ends: next(rates), 8))
    assert not comparison.judged
    assert not comparison.slow.causes


def test_half_of_a_small_campaign_is_a_reference() -> None:
    rates = iter([40.0] * 4 + [20.0] * 4)
    comparison = only(screen(lambda *ends: next(rates), 8))
    assert sum(held.slow for held in comparison.held) == 4


@pytest.mark.parametrize("seed", range(20))
def test_scattered_runs_are_not_judged(seed: int) -> None:
    draw = random.Random(seed)
    values = [10 * 1.3 ** (number + draw.random() / 4) for number in range(8)]
    assert reference(values, UNRESOLVED) is None


@pytest.mark.parametrize("seed", range(5))
def test_nodes_with_other_gpus_are_compared_with_their_like(seed: int) -> None:
    """Half of the nodes have GPUs and NICs of half the rate: no node is slow."""

    def models(run: Observation) -> tuple[str, ...]:
        return tuple(sorted({"A100" if node < "n08" else "H100" for node in run.nodes}))

    def rate(a: RunEnd, b: RunEnd) -> float:
        return 20.0 if min(a.node, b.node) < "n08" else 40.0

    comparisons = compare([replace(run, models=models(run)) for run in runs(rate, seed)])
    assert {item.models for item in comparisons} == {("A100",), ("A100", "H100"), ("H100",)}
    assert not any(item.slow.causes for item in comparisons)


def test_a_slow_node_among_nodes_with_other_gpus_is_named() -> None:
    def rate(a: RunEnd, b: RunEnd) -> float:
        return (10.0 if "n12" in (a.node, b.node) else 20.0) if min(a.node, b.node) < "n08" else (
            20.0 if "n12" in (a.node, b.node) else 40.0
        )  # fmt: skip

    made = [replace(run, models=tuple(sorted({"A" if node < "n08" else "H" for node in run.nodes})))
            for run in runs(rate)]  # fmt: skip
    causes = {cause for item in compare(made) for cause in named(item)}
    assert causes == {"node n12"}


def test_a_run_without_a_list_of_devices_is_among_the_others() -> None:
    made = [replace(run, models=("H100",) if place else ()) for place, run in enumerate(runs(lambda *ends: 40.0))]
    assert len(compare(made)) == 1


# --- nodes that are low by less than the limit of one run ---------------------------------------------


def low(comparison: Comparison) -> list[str]:
    return [item.node for item in comparison.low]


@pytest.mark.parametrize("sigma", [0.005, 0.01, 0.02])
@pytest.mark.parametrize("bad", [("n10",), ("n02", "n10")])
def test_a_node_that_lost_one_of_eight_rails_is_not_distance(bad: tuple[str, ...], sigma: float) -> None:
    """A block of one node does not show distance."""
    comparison = only(runs(lambda *ends: 35.0 if any(_touches(node, *ends) for node in bad) else 40.0, sigma=sigma))
    assert low(comparison) == list(bad)
    assert not comparison.levels
    assert not comparison.slow.causes


def test_a_node_that_lost_a_rail_beside_a_slow_one() -> None:
    comparison = only(runs(lambda *ends: 20.0 if _touches("n01", *ends) else 35.0 if _touches("n10", *ends) else 40.0))
    assert (named(comparison), low(comparison)) == (["node n01"], ["n10"])


def test_a_node_that_lost_a_rail_in_one_of_two_leaves() -> None:
    """Distance costs less than the rail: the level remains, and the node is not part of it."""

    def rate(a: RunEnd, b: RunEnd) -> float:
        return 35.0 if _touches("n10", a, b) else 40.0 if (a.node < "n08") is (b.node < "n08") else 37.0

    comparison = only(runs(rate, sigma=0.004))
    assert low(comparison) == ["n10"]
    assert [len(block) for block in comparison.levels[0].blocks] == [8, 7]


_LEAVES: dict[str, Callable[[int], int]] = {
    "one": lambda place: 0,
    "two": lambda place: place // 8,
    "three": lambda place: 0 if place < 6 else 1 if place < 11 else 2,
    "eight": lambda place: place // 2,
    "two and a single node": lambda place: 0 if place < 13 else 1 if place < 15 else 2,
}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("sigma", [0.005, 0.01])
@pytest.mark.parametrize("leaves", _LEAVES)
def test_no_node_is_low_by_distance(leaves: str, sigma: float, seed: int) -> None:
    leaf = {node: _LEAVES[leaves](place) for place, node in enumerate(NODES)}
    comparison = only(runs(lambda a, b: 40.0 if leaf[a.node] == leaf[b.node] else 36.5, seed, sigma))
    assert not comparison.low
    assert not comparison.slow.causes


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("sigma", [0.02, 0.05, 0.1])
def test_no_node_is_low_by_noise(sigma: float, seed: int) -> None:
    assert not only(runs(lambda *ends: 40.0, seed, sigma)).low


def _both_collectives(alltoall: Rate, gpus: Sequence[str] = RAILS) -> list[str]:
    """Return the low nodes of sendrecv, if n10 is at seven eighths, and alltoall over all GPUs has other rates."""
    made = []
    for name, rate, own in (("sendrecv", lambda *ends: 35.0 if _touches("n10", *ends) else 40.0, (RAILS[0], RAILS[7])),
                            ("alltoall", alltoall, tuple(gpus))):  # fmt: skip
        kind = RunKind(name, 16, 2)
        made += [replace(run, kind=kind, ends=tuple(replace(end, gpus=own) for end in run.ends))
                 for run in runs(rate, sigma=0.005)]  # fmt: skip
    comparison = next(item for item in compare(made) if item.kind.collective == "sendrecv")
    assert sorted([*low(comparison), *(item.node for item in comparison.distant)]) == ["n10"]
    return low(comparison)


def test_a_low_node_with_ports_at_full_rate_in_alltoall_is_distant() -> None:
    assert _both_collectives(lambda *ends: 90.0) == []


@pytest.mark.parametrize(
    ("full", "own", "gpus"),
    [
        (90.0, 79.0, RAILS),  # a port has lost an eighth
        (90.0, 84.5, RAILS),  # half of that
        (70.0, 70.0, RAILS),  # each port carries 37 GB/s, less than in sendrecv
        (90.0, 90.0, RAILS[:7]),  # not over the last of its ports
        (90.0, 90.0, ()),  # its ports are unknown
    ],
)
def test_a_low_node_remains_low_unless_alltoall_refutes_it(full: float, own: float, gpus: Sequence[str]) -> None:
    assert _both_collectives(lambda *ends: own if _touches("n10", *ends) else full, gpus) == ["n10"]


# --- two transports ------------------------------------------------------------------------------------


def outside(comparison: Comparison) -> list[str]:
    return sorted(cause.factor.of for cause in without_nvlink(comparison, comparison.slow.named))


def test_nodes_outside_an_nvlink_domain_are_no_faults() -> None:
    comparison = only(runs(lambda a, b: 700.0 if b.node < "n12" else 42.0))
    assert outside(comparison) == ["n12", "n13", "n14", "n15"]


def test_a_slow_node_outside_an_nvlink_domain_is_a_fault() -> None:
    comparison = only(runs(lambda a, b: 20.0 if _touches("n15", a, b) else 700.0 if b.node < "n12" else 42.0))
    assert outside(comparison) == ["n12", "n13", "n14"]
    assert "node n15" in named(comparison)


@pytest.mark.parametrize(("usual", "bad"), [(700.0, 350.0), (90.0, 1.2), (190.0, 42.0)])
def test_slow_nodes_on_one_transport_are_faults(usual: float, bad: float) -> None:
    """Half of an NVLink domain's rate; TCP instead of RDMA; the maximum of two 800 Gb/s NICs."""
    comparison = only(runs(lambda a, b: bad if b.node >= "n13" else usual))
    assert not outside(comparison)
    assert named(comparison) == ["node n13", "node n14", "node n15"]
