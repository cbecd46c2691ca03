"""Load of the most loaded of parallel links if only hashing spreads flows."""

from __future__ import annotations

import random

import pytest

from preflight.facts.switch.hashing import idle_share, most_loaded

#: Flows of each link, links -> median and 99th percentile of the maximum relative to the mean: simulated, 20,000 draws
#: each.
SIMULATED = {
    (4, 8): (1.75, 2.5), (16, 8): (1.38, 1.75), (64, 8): (1.17, 1.38), (1, 16): (3.0, 5.0), (4, 16): (2.0, 2.75),
    (16, 16): (1.44, 1.88), (64, 16): (1.22, 1.41), (1, 32): (3.0, 6.0), (4, 32): (2.0, 3.0), (16, 32): (1.56, 1.94),
    (64, 32): (1.27, 1.45),
}  # fmt: skip


@pytest.mark.parametrize(("each", "links"), SIMULATED)
def test_as_simulated(each: int, links: int) -> None:
    for share, simulated in zip((0.5, 0.99), SIMULATED[each, links], strict=True):
        assert most_loaded(each * links, links, share) == pytest.approx(simulated, abs=max(0.99 / each, 0.03))
        assert most_loaded(each * links, links, share) <= simulated + 0.02


def test_one_flow_for_each_of_eight_links_by_all_draws() -> None:
    """All 8**8 draws can be counted: in 0.984% of them a link has five flows or more."""
    assert most_loaded(8, 8, 0.99) == 4.0
    assert most_loaded(8, 8, 0.991) == 5.0


def test_an_idle_link() -> None:
    chance = random.Random(3)
    draws = [len({chance.randrange(4) for _ in range(16)}) < 4 for _ in range(20_000)]
    assert sum(draws) / len(draws) == pytest.approx(idle_share(16, 4), rel=0.1)
