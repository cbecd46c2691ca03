"""Depth of pipeline stages, ranks on a node, hybrid sharding, and neighbours of stages."""

from __future__ import annotations

import pytest

from preflight._startup.lightclass import replace
from preflight.layout.hardware import described
from preflight.layout.job import LayoutError, Parallelism, Schedule, TrainingJob, Transformer
from preflight.layout.memory import memory
from preflight.layout.placement import RankPlacement
from preflight.layout.rank_map import dense_map
from preflight.layout.stages import depths, layers_of
from preflight.layout.step import bandwidth, step
from preflight.layout.traffic import exchanges, neighbours

LLAMA_70B = Transformer(80, 8192, 28672, 64, 8, 128256, 128, gated=True, tied=False)


def job(gpus: int, **changes: object) -> TrainingJob:
    schedule = Schedule(8192, 1, 512, framework="megatron")
    return TrainingJob(LLAMA_70B, Parallelism(sequence_parallel=True), schedule, gpus).changed(**changes)


@pytest.mark.parametrize(
    ("layout", "layers"),
    [
        ("Et*3|tt|tL", (3, 2, 1)),
        ("E(t|)*3L", (1, 1, 1, 0)),
        ("Et*3|(tt|)*29,m|L", (3, *[2] * 29, 0, 0)),
        ("Et|[tt]|L", None),
        ("E" + "t*9999" * 9, None),
        ("((t*99)*99)*9999", None),
    ],
)
def test_a_pipeline_layout(layout: str, layers: tuple[int, ...] | None) -> None:
    assert layers_of(layout) == layers


def test_layers_of_each_stage() -> None:
    assert depths(80, 4) == (20, 20, 20, 20)
    assert depths(61, 8, ends=(7, 6)) == (7, 8, 8, 8, 8, 8, 8, 6)
    assert depths(126, 16, counted=(True, True)) == (7, *[8] * 14, 7)
    assert depths(6, 3, layout="Et*3|tt|tL") == (3, 2, 1)
    assert depths(6, 3, layout="Et*3|tt|tL|t|t|t") == (2, 2, 2)  # not the model's layers
    assert depths(8, 2, layout="Ett|t|tt|tttL") == (4, 4)  # two virtual stages of each


def test_the_deepest_stage_sets_the_pace() -> None:
    hardware = described("8 x HGX H100, 1:1")
    even = step(job(64, tensor=8, pipeline=4), hardware).seconds
    uneven = step(job(64, tensor=8, pipeline=4, first_layers=29, last_layers=17), hardware).seconds
    assert 1.35 < uneven / even < 1.5
    assert (
        memory(job(64, tensor=8, pipeline=4, first_layers=29)).weights > memory(job(64, tensor=8, pipeline=4)).weights
    )


def test_ranks_of_a_node_that_is_half_used() -> None:
    place = RankPlacement(replace(described("4 x HGX H100, 1:1"), ranks_per_node=4), 16)
    assert [place.node(rank) for rank in range(0, 16, 4)] == [0, 1, 2, 3]
    assert place.spread(range(8)).domains == 2
    assert place.nodes == 4


def test_gpus_that_share_a_nic_share_a_rail() -> None:
    place = RankPlacement(described("2 x HGX H100, 4 x 400G, 1:1"), 16)
    assert [place.rail(rank) for rank in range(8)] == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("cyclic", ["", ", cyclic"])
def test_all_data_of_a_group_pass_the_node_with_the_fewest_ranks(cyclic: str) -> None:
    hardware = described(f"3 x HGX H100, 1:1{cyclic}")
    place = RankPlacement(hardware, 24)
    if not cyclic:
        assert place.spread(range(0, 20, 4)).fewest == 1
        uneven, _ = bandwidth(hardware, "all_reduce", place.spread(range(0, 20, 4)))
        even, _ = bandwidth(hardware, "all_reduce", place.spread(range(0, 16, 4)))
        assert uneven == pytest.approx(even / 2)
    for group in (range(0, 24, 5), range(3, 20), range(0, 8), range(1, 24, 3)):
        nodes = [place.node(rank) for rank in group]
        assert place.spread(group).fewest == min(map(nodes.count, nodes))


def test_the_slowest_pair_of_stages_counts() -> None:
    """TP4 PP3 on two nodes: only the second pair is on two nodes."""
    hardware = described("2 x HGX H100, 1:1")
    own = next(own for own in exchanges(job(12, tensor=4, pipeline=3), RankPlacement(hardware, 12))
               if own.axis == "pipeline")  # fmt: skip
    assert own.spread.level == "leaf"


def test_an_interleaved_schedule_also_sends_from_the_last_stage_to_the_first() -> None:
    hardware = described("3 x HGX H100, units of 2 nodes, 1:1")
    place = RankPlacement(hardware, 24)
    group = next(iter(dense_map(job(24, tensor=8, pipeline=3)).groups("pp")))
    assert [list(pair) for pair in neighbours(group, False)] == [[0, 8], [8, 16]]
    assert [list(pair) for pair in neighbours(group, True)] == [[0, 8], [8, 16], [0, 16]]
    looped = exchanges(job(24, tensor=8, pipeline=3, virtual_stages=2), place)
    assert next(own for own in looped if own.axis == "pipeline").spread.level == "spine"


def test_context_exchange_that_nothing_hides() -> None:
    hardware = described("4 x HGX H100, 1:1")
    for kind, hides in (("p2p", True), ("a2a+p2p", True), ("all_gather", False), ("a2a", False)):
        own = step(job(32, tensor=8, context=4, context_exchange=kind), hardware)
        part = next(part for part in own.parts if part.name == "context")
        assert (part.hidden > 0) == hides, kind


def test_hybrid_sharding_stays_in_a_shard() -> None:
    """128 nodes, four replicas of 256 shards: gathers below one group of leaves, one all-reduce over the spine."""
    hardware = described("128 x HGX H100, rail-optimised, 4:1, units of 32 nodes")
    own = job(1024, sharding="full", replicas=4, global_batch=2048)
    data = [exchange for exchange in exchanges(own, RankPlacement(hardware, 1024)) if exchange.axis == "data"]
    assert [(exchange.collective, exchange.spread.ranks, exchange.spread.level) for exchange in data] == [
        ("all_gather", 256, "leaf"), ("reduce_scatter", 256, "leaf"), ("all_reduce", 4, "spine"),
    ]  # fmt: skip
    assert data[2].count == 1
    undivided = memory(job(1024, sharding="full", global_batch=2048))
    assert memory(own).states == pytest.approx(4 * undivided.states)
    assert list(next(iter(dense_map(own).groups("rep")))) == [0, 256, 512, 768]


@pytest.mark.parametrize(
    ("phrase", "message"),
    [
        ("4 x HGX H100, 0:1", "'0:1' is not recognised"),
        ("0 x HGX H100", "does not describe a cluster"),
        ("4 x HGX H100, units of 0 nodes", "not recognised"),
        ("4 x HGX H100, 8 x 9999G", "not recognised"),
        ("4 x HGX H100, 1:1, 2:1", "states the oversubscription twice"),
        ("\u0663 x HGX H100", "does not describe a cluster"),
        ("99999 x HGX H100", "at most 262,144 are planned"),
    ],
)
def test_a_cluster_that_does_not_exist_is_refused(phrase: str, message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        described(phrase)


def test_names_of_parts_in_any_case() -> None:
    assert described("4 x dgx h100").part == described("4 x HGX H100").part
    assert described("1 x gb200 nvl72").nodes == 18


def test_the_range_of_other_frameworks_is_wide() -> None:
    hardware = described("8 x HGX H100, 1:1")
    tuned, other = (step(job(64, tensor=8, pipeline=4, framework=name), hardware) for name in ("nemo", "torchtitan"))
    assert tuned.high / tuned.seconds < 1.2
    assert other.high / other.seconds > 2


def test_a_job_that_is_larger_than_its_named_nodes_is_not_placed() -> None:
    named = replace(described("2 x HGX H100, 1:1"), names=("a", "b"))
    with pytest.raises(LayoutError, match="the job has 32 GPUs, but the cluster has 16"):
        RankPlacement(named, 32)
    assert RankPlacement(named, 16).nodes == 2


@pytest.mark.parametrize("distribution", ["block:cyclic,Pack", "block,NoPack", "plane=8:block", "Block"])
def test_forms_of_a_distribution(distribution: str) -> None:
    place = RankPlacement(replace(described("2 x HGX H100"), distribution=distribution), 16)
    assert [place.node(rank) for rank in (0, 7, 8)] == [0, 0, 1]


def test_layers_that_are_recomputed_in_part() -> None:
    hardware = described("4 x HGX H100, 1:1")
    times = [step(job(32, tensor=8, pipeline=4, recompute="full", recompute_layers=layers), hardware).seconds
             for layers in (0, 5, 20)]  # fmt: skip
    assert times[1] - times[0] == pytest.approx((times[2] - times[0]) / 4)
