"""Rank numbers and placements, compared with Megatron-Core's own enumeration written out by hand."""

from __future__ import annotations

from itertools import product

import pytest

from preflight.layout.hardware import described
from preflight.layout.job import LayoutError, Parallelism, Schedule, TrainingJob, Transformer
from preflight.layout.placement import RankPlacement
from preflight.layout.rank_map import RankMap, dense_map, expert_map

MODEL = Transformer(16, 4096, 16384, 32, 32, 51200, 128, experts=8, active_experts=2, expert_feed_forward=1024)


def job(gpus: int, **changes: object) -> TrainingJob:
    return TrainingJob(MODEL, Parallelism(), Schedule(2048, 1, 512), gpus).changed(**changes)


def test_groups_of_the_example_in_parallel_state() -> None:
    """Megatron-Core documents 16 GPUs with tensor 2 and pipeline 4: g0..g15."""
    ranks = dense_map(job(16, tensor=2, pipeline=4))
    assert [list(group) for group in ranks.groups("tp")] == [[n, n + 1] for n in range(0, 16, 2)]
    assert [list(group) for group in ranks.groups("dp")] == [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11], [12, 14],
                                                              [13, 15]]  # fmt: skip
    assert [list(group) for group in ranks.groups("pp")] == [[n, n + 4, n + 8, n + 12] for n in range(4)]


def test_order_with_the_pipeline_before_data() -> None:
    ranks = dense_map(job(16, tensor=2, pipeline=4, order="tp-cp-ep-pp-dp"))
    assert list(next(iter(ranks.groups("pp")))) == [0, 2, 4, 6]
    assert list(next(iter(ranks.groups("dp")))) == [0, 8]


def test_experts_divide_the_same_ranks() -> None:
    ranks = expert_map(job(16, tensor=2, expert=4, expert_tensor=1))
    assert [list(group) for group in ranks.groups("ep")] == [[n, n + 1, n + 2, n + 3] for n in range(0, 16, 4)]


@pytest.mark.parametrize("sizes", [{"tp": 2, "cp": 3, "dp": 4, "pp": 2}, {"tp": 1, "dp": 5}, {"dp": 2, "tp": 2}])
def test_groups_part_all_ranks(sizes: dict[str, int]) -> None:
    ranks = RankMap(sizes)
    for number in range(1, len(sizes) + 1):
        for axes in product(sizes, repeat=number):
            groups = [list(group) for group in ranks.groups(*axes)]
            assert sorted(rank for group in groups for rank in group) == list(range(ranks.world))


def test_an_unknown_order_is_refused() -> None:
    with pytest.raises(LayoutError, match="not an order of"):
        dense_map(job(16, order="tp-dp"))


@pytest.mark.parametrize("cyclic", ["", ", cyclic"])
def test_a_spread_is_that_of_its_ranks(cyclic: str) -> None:
    place = RankPlacement(described(f"12 x HGX H100, units of 4 nodes{cyclic}"), 96)
    for group in (range(0, 16), range(4, 12), range(0, 96, 8), range(0, 96, 12), range(5, 90, 17)):
        spread = place.spread(group)
        assert spread.nodes == len({place.node(rank) for rank in group})
        assert spread.domains == len({place.domain(rank) for rank in group})
        assert spread.units == len({place.unit(rank) for rank in group})


def test_block_and_cyclic_distribution() -> None:
    block = RankPlacement(described("4 x HGX H100"), 32)
    assert [block.node(rank) for rank in (0, 7, 8, 31)] == [0, 0, 1, 3]
    cyclic = RankPlacement(described("4 x HGX H100, cyclic"), 32)
    assert [(cyclic.node(rank), cyclic.rail(rank)) for rank in (0, 1, 4, 31)] == [(0, 0), (1, 0), (0, 1), (3, 7)]


def test_a_domain_of_72() -> None:
    place = RankPlacement(described("2 x GB200 NVL72"), 144)
    assert [place.domain(rank) for rank in (0, 71, 72)] == [0, 0, 1]
    assert place.hardware.nodes == 36


@pytest.mark.parametrize(
    ("phrase", "message"),
    [
        ("HGX H100", "does not describe a cluster"),
        ("4 x HGX H999", "not in the part catalogue"),
        ("4 x L40S PCIe", "not connected by NVLink"),
        ("4 x HGX H100, three rails", "is not recognised"),
        ("9999999 x HGX H100", "does not describe a cluster"),
    ],
)
def test_a_phrase_that_is_not_understood(phrase: str, message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        described(phrase)
