"""Headroom by the standard, compared with the profiles that NVIDIA ships for its SN5600 switch."""

from __future__ import annotations

import math

import pytest

from preflight.facts.switch.headroom import FRAME, LIGHT, QUANTA, ROCE_FRAME, needed

#: xoff in bytes by Gb/s and metres (sonic-buildimage, ACS-SN5600, pg_profile_lookup.ini).
SHIPPED = {
    (100, 5): 113664, (100, 40): 126976, (100, 300): 225280,
    (200, 5): 131072, (200, 40): 157696, (200, 300): 355328,
    (400, 5): 231424, (400, 40): 283648, (400, 300): 677888,
    (800, 5): 257024, (800, 40): 362496, (800, 300): 1150976,
}  # fmt: skip

#: Values of Spectrum-4: bytes of a cell, bytes in MAC and PHY, seconds in its pipeline.
CELL, MAC_PHY, PIPELINE_S = 192, 0.8 * 1024, 120e-9


def spectrum(speed: int, metres: int) -> int:
    """NVIDIA's formula for packets of 64 bytes, each of which occupies a complete cell."""
    flight = 2 * metres * speed * 1e9 / LIGHT / 8
    rest = FRAME + flight + MAC_PHY + QUANTA[speed] * 64 + speed * 1e9 * PIPELINE_S / 8
    return math.ceil((ROCE_FRAME + rest * CELL / 64) / 1024) * 1024


@pytest.mark.parametrize("place", SHIPPED)
def test_times_and_speeds_give_the_shipped_profile_to_the_byte(place: tuple[int, int]) -> None:
    assert spectrum(*place) == SHIPPED[place]


@pytest.mark.parametrize("place", SHIPPED)
def test_a_shipped_profile_holds_the_worst_case(place: tuple[int, int]) -> None:
    least = needed(*place)
    assert least is not None
    assert SHIPPED[place] >= least.worst > least.minimum > least.in_flight


@pytest.mark.parametrize("place", SHIPPED)
def test_half_of_what_is_on_the_cable_is_below_the_minimum(place: tuple[int, int]) -> None:
    least = needed(*place)
    assert least is not None
    assert least.in_flight // 2 < least.minimum


def test_an_unknown_speed_has_no_response_time() -> None:
    assert needed(1600, 30) is None
