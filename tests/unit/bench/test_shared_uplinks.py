"""All pairs over the uplinks at once: the rounds, their length, and their results."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from preflight.bench import campaign, shared_uplinks
from preflight.bench.comparison import compare
from preflight.bench.observation import SHARED
from preflight.bench.planner import LOADED, Round
from preflight.parsers import nccl_tests
from tests.support.pair_runs import CASES
from tests.support.simulated_fabric import SimulatedFabric, cluster
from tests.support.simulated_fabric import campaign as simulated

Documents = tuple[dict[str, Any], dict[str, tuple[Any, ...]]]


@pytest.fixture
def documents() -> Documents:
    """Return plan and journal of a campaign, and its reports."""
    records: Any = copy.deepcopy(CASES["bench.shared-uplinks"]["as-fast-as-one-pair"][0])
    value = records.pop("bench:campaign")["value"]
    return value, {key.removeprefix("log:"): nccl_tests.text.parse(text) for key, text in records.items()}


@pytest.mark.parametrize(("leaves", "rounds"), [(2, 1), (3, 2), (8, 1), (9, 2)])
def test_each_leaf_is_loaded(leaves: int, rounds: int) -> None:
    plan = cluster(4 * leaves, 4, goal="links", loaded=True)
    loaded = [made for made, _ in simulated(plan, SimulatedFabric()) if made.purpose == LOADED]
    assert len(loaded) == rounds
    assert {end.node for made in loaded for run in made.runs for end in run} == set(plan.nodes)
    assert not any(made.purpose == LOADED for made, _ in simulated(replace(plan, loaded=False), SimulatedFabric()))


def test_flows_that_meet_on_an_uplink_name_nothing() -> None:
    for seed in range(20):
        past = simulated(cluster(64, 8, goal="links", loaded=True, seed=seed), SimulatedFabric(seed=seed, uplinks=4))
        runs = [run for _, results in past for run in results]
        assert any(run.kind.load == SHARED for run in runs)
        assert not any(held.slow for comparison in compare(runs) for held in comparison.held)
        assert not any(comparison.slow.named for comparison in compare(runs))


def test_runs_over_shared_uplinks_are_long_enough_to_overlap(documents: Documents) -> None:
    value, reports = documents
    done = campaign.read_record(value)
    round_ = Round(9, LOADED, done.rounds[-1].runs, SHARED)
    made = shared_uplinks.planned(done, reports, round_, {})
    assert made.iterations is not None
    seconds = 2 * made.iterations * 2**30 / 44e9 / 2
    assert 14.5 < seconds < 15.5
    assert campaign.campaign(done.plan, [{**campaign.round_document(made), "round": 1}]).rounds[0].iterations == (
        made.iterations
    )
    short = replace(done, plan=replace(done.plan, run_limit_s=4.0))
    assert (shared_uplinks.planned(short, reports, round_, {}).iterations or 0) < made.iterations / 10
    assert shared_uplinks.planned(done, reports, replace(round_, load="quiet"), {}).iterations is None


@pytest.mark.parametrize("at", ["", "yesterday", "9999-99-99T00:00:00Z", "2026-11-20T12:06:30+99:00"])
def test_an_end_without_a_time_shows_no_overlap(documents: Documents, at: str) -> None:
    value, reports = documents
    shared = shared_uplinks.shared_runs(campaign.read_record(value), reports)
    assert shared is not None
    assert shared.together > 0.9
    assert shared.largest == 4
    value["journal"][-2]["at"] = at
    shared = shared_uplinks.shared_runs(campaign.read_record(value), reports)
    assert shared is not None
    assert shared.together == 0.0
