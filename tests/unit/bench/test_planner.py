"""The planner on simulated fabrics; ``python -m tests.support.bench_campaigns`` runs the same with 200 seeds."""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations

import pytest

from preflight.bench.comparison import compare
from preflight.bench.factors import LEAF, NODE, RAIL, Factor
from preflight.bench.observation import RunEnd
from preflight.bench.planner import Round, circle, next_round
from tests.support.bench_campaigns import SCENARIOS, measured, reached
from tests.support.simulated_fabric import SimulatedFabric, SimulatedFault, campaign, cluster, named

SEEDS = {"three-of-512": 4, "thirty-of-512": 3, "three-and-false-slows": 4, "rail-and-node": 12}


@pytest.mark.parametrize("name", SCENARIOS)
def test_campaigns(name: str) -> None:
    seeds = SEEDS.get(name, 6)
    outcome = measured(SCENARIOS[name], seeds)
    assert reached(SCENARIOS[name], outcome, seeds), outcome


@pytest.mark.parametrize("count", range(2, 66))
def test_circle_method(count: int) -> None:
    names = [f"n{number}" for number in range(count)]
    pairs = [frozenset(pair) for turn in range(count - 1 + count % 2) for pair in circle(names, turn)]
    assert Counter(pairs) == {frozenset((a, b)): 1 for place, a in enumerate(names) for b in names[place + 1 :]}
    for turn in range(count):
        nodes = [node for pair in circle(names, turn) for node in pair]
        assert len(nodes) == len(set(nodes))


def test_the_seed_decides_every_round_and_no_node_runs_twice() -> None:
    rounds = [campaign(cluster(40, 7, seed=seed, goal="links"), SimulatedFabric()) for seed in (1, 1, 2)]
    assert rounds[0] == rounds[1] != rounds[2]
    for made, _ in rounds[0]:
        nodes = [end.node for run in made.runs for end in run]
        assert len(nodes) == len(set(nodes))


def test_an_odd_node_runs_in_the_second_round() -> None:
    plan = cluster(33, 33)
    past = campaign(plan, SimulatedFabric())
    assert len(past) == 2
    assert {end.node for made, _ in past for run in made.runs for end in run} == set(plan.nodes)


def test_two_nodes_end_the_campaign() -> None:
    plan = cluster(2, 2)
    assert len(campaign(plan, SimulatedFabric())) == 1
    assert next_round(cluster(1, 1), []) is None


@pytest.mark.parametrize("seed", [41, 70, 190])
def test_six_bad_nodes_of_a_leaf_are_no_bad_leaf(seed: int) -> None:
    """A leaf with six bad nodes of thirty used to be named instead of its nodes."""
    scenario = SCENARIOS["thirty-of-512"]
    plan = cluster(scenario.nodes, scenario.leaf, seed=seed, goal=scenario.goal, loaded=True)
    faults = scenario.draw(plan, random.Random(f"faults {seed}"))
    classes = named(campaign(plan, SimulatedFabric(faults, seed)))
    assert all(any(fault.factor in names for names in classes) for fault in faults)
    assert all(any(fault.factor in names for fault in faults) for names in classes)


@pytest.mark.parametrize("theta", [1.0, 0.6])
def test_a_leaf_that_is_slow_in_most_of_its_runs_is_named(theta: float) -> None:
    leaf = Factor(LEAF, "leaf004")
    for seed in range(4):
        plan = cluster(512, 32, seed=seed)
        classes = named(campaign(plan, SimulatedFabric([SimulatedFault(leaf, 0.5, theta)], seed)))
        assert classes
        assert all(leaf in names for names in classes)


def test_no_fault_hides_behind_many_others() -> None:
    """A rail beside ten bad nodes used to be replaced by its GPUs."""
    plan, draw = cluster(96, 16), random.Random(0)
    faults = [SimulatedFault(Factor(NODE, node), 0.5) for node in draw.sample(plan.nodes, 10)]
    faults.append(SimulatedFault(Factor(RAIL, plan.rails[4]), 0.07, 0.26))
    pairs = [tuple(RunEnd(node, (draw.choice(plan.rails),), plan.leaves[node]) for node in pair)
             for pair in combinations(plan.nodes, 2)]  # fmt: skip
    (comparison,) = compare(SimulatedFabric(faults, false_slow=0.01).run(Round(1, "screen", tuple(pairs))))
    assert {cause.factor for cause in comparison.slow.named} == {fault.factor for fault in faults}
