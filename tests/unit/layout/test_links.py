"""Load of a GPU's links, computed by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from preflight.layout.hardware import described
from preflight.layout.links import NIC, NVLINK, UPLINK, LinkLoad, link_loads
from preflight.layout.placement import RankPlacement
from preflight.layout.traffic import Exchange

GB = 1e9


def loads(
    on: str, collective: str, group: Sequence[int], *, size: float = GB, ranks: int = 64
) -> dict[str, float | None]:
    hardware = described(on)
    spread = RankPlacement(hardware, ranks).spread(group)
    return {own.link: own.moved for own in link_loads(hardware, [Exchange("axis", collective, spread, size, 1)])}


UNITS = "8 x HGX H100, units of 4 nodes, 2:1"


@pytest.mark.parametrize(
    ("collective", "group", "expected"),
    [
        ("all_reduce", range(8), {NVLINK: 2 * 7 / 8}),  # inside one node
        ("all_reduce", range(0, 32, 8), {NIC: 2 * 3 / 4}),  # one GPU of each node of a unit: all passes its NIC
        # a ring of 16 ranks on two nodes leaves each node once, which the eight NICs share
        ("all_gather", range(16), {NVLINK: 15 / 16, NIC: 15 / 16 / 8}),
        ("all_gather", range(64), {NVLINK: 63 / 64, NIC: 63 / 64 / 8, UPLINK: 63 / 64 / 32}),
        # each of 16 ranks sends a 16th to each other: 8 of them on the other node
        ("alltoall", range(16), {NVLINK: 7 / 16, NIC: 8 / 16}),
        ("alltoall", range(64), {NVLINK: 7 / 64, NIC: 56 / 64, UPLINK: 32 / 64}),
        ("sendrecv", (0, 8), {NIC: 1.0}),
        ("sendrecv", (0, 1), {NVLINK: 1.0}),
        ("sendrecv", (24, 32), {NIC: 1.0, UPLINK: 1.0}),
    ],
)
def test_bytes_over_each_link(collective: str, group: Sequence[int], expected: dict[str, float]) -> None:
    assert loads(UNITS, collective, group) == pytest.approx({link: share * GB for link, share in expected.items()})


def test_uplinks_are_unknown_where_the_leaves_are() -> None:
    assert loads("8 x HGX H100", "all_reduce", range(0, 64, 8)) == {NIC: pytest.approx(2 * 7 / 8 * GB), UPLINK: None}
    assert UPLINK not in loads("8 x HGX H100", "all_reduce", range(8))


def test_a_link_is_busy_for_the_time_that_its_bytes_take() -> None:
    hardware = described(UNITS)
    spread = RankPlacement(hardware, 64).spread(range(64))
    busy = {own.link: own.busy(2.0) for own in link_loads(hardware, [Exchange("data", "alltoall", spread, GB, 100)])}
    assert busy == pytest.approx(
        {NVLINK: 100 * 7 / 64 / 450 / 2, NIC: 100 * 56 / 64 / 50 / 2, UPLINK: 0.5 * 100 / 25 / 2}
    )
    assert LinkLoad(UPLINK, 1.0, None).busy(1.0) is None
