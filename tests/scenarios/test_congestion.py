"""Duration of pauses: both sides of each threshold, in both directions, on a complete node."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.support.machines import hgx_h100, with_nic
from tests.support.whole_nodes import CHECKS, report, site

#: Microseconds of the window of 60 s.
PERCENT = 600_000

CONGESTION = [check for check in CHECKS if check.id == "counters.congestion"]
RX, TX, ALL = "rx_prio3_pause", "tx_prio3_pause", "rx_global_pause"

#: Counter that grows, Gb/s of the 400 Gb/s port, the verdict, and a part of the message.
CASES: dict[str, tuple[dict[str, int], float, str, str]] = {
    "not at all": ({}, 300, "pass", "0.00% of the window"),
    "a little": ({RX: 90_000_000, f"{RX}_duration": PERCENT // 2}, 300, "pass", "0.50% of the window"),
    "just below 1%": ({RX: 9, f"{RX}_duration": PERCENT * 99 // 100}, 300, "pass", "0.99% of the window"),
    "1%": ({RX: 9, f"{RX}_duration": PERCENT}, 300, "warn", "1.0% of the window"),
    "75% while it sends": ({RX: 90_000_000, f"{RX}_duration": 75 * PERCENT}, 60, "warn", "75.0% of the window"),
    "75% while it sends 5%": ({RX: 9, f"{RX}_duration": 75 * PERCENT}, 20.1, "warn", "75.0% of the window"),
    "75% and it hardly sends": ({RX: 9, f"{RX}_duration": 75 * PERCENT}, 19.9, "fail", "75.0% of the window"),
    "just below 50%": ({RX: 9, f"{RX}_duration": 50 * PERCENT - 60_000}, 1, "warn", "49.9% of the window"),
    "50% and it hardly sends": ({RX: 9, f"{RX}_duration": 50 * PERCENT}, 1, "fail", "50.0% of the window"),
    "pauses its switch": ({TX: 9, f"{TX}_duration": 2 * PERCENT}, 300, "warn", "2.0% of the window"),
    "pauses its switch and hardly receives": ({TX: 9, f"{TX}_duration": 60 * PERCENT}, 1, "fail", "60.0%"),
    "more than the window": ({RX: 9, f"{RX}_duration": 130 * PERCENT}, 1, "unknown", f"{RX} +9"),
}  # fmt: skip


def judged(gbps: float = 300, **described: Any) -> dict[str, Any]:
    machine = with_nic(hgx_h100("hgx-h100-roce", roce=True), "mlx5_5", gbps=gbps, **described)
    return report(machine, site("hgx-h100-roce"), CONGESTION)


def finding(found: dict[str, Any]) -> dict[str, Any]:
    held = " paused (by its switch |its switch )?(for|is unknown)"
    of_holding = [one for one in found["findings"] if re.search(held, one["message"])]
    assert len(of_holding) == 1
    one: dict[str, Any] = of_holding[0]
    return one


@pytest.mark.parametrize("case", CASES)
def test_the_share_of_the_window(case: str) -> None:
    grows, gbps, status, words = CASES[case]
    one = finding(judged(gbps, grows=grows))
    assert one["status"] == status
    assert words in str(one["found"]), "the share is printed, whatever the verdict"


def test_nothing_passes_while_a_port_is_held() -> None:
    found = judged(60, grows={RX: 90_000_000, f"{RX}_duration": 75 * PERCENT})
    items = {one["id"]: one["status"] for one in found["checklists"]}
    assert "pass" not in {items[name] for name in ("FP-BW-4", "FP-CON-4", "PA-19", "NT-LENS-8")}


@pytest.mark.parametrize(("pauses", "status"), [(0, "pass"), (7_000, "pass"), (7_500, "unknown"), (10**8, "unknown")])
def test_pauses_without_their_length_are_an_upper_bound(pauses: int, status: str) -> None:
    """A pause of a 400 Gb/s port lasts at most 83.9 us: 7153 of them are 1% of a minute."""
    one = finding(judged(grows={RX: pauses}, lacks=(f"{RX}_duration", f"{TX}_duration")))
    assert one["status"] == status
    assert "at most" in one["message"] + str(one["found"]) or not pauses


def test_a_port_without_pfc_cannot_be_held() -> None:
    found = judged(pfc=())["findings"]
    assert {one["status"] for one in found if one["subject"] == "mlx5_5:1"} == set()


@pytest.mark.parametrize(("stands", "status"), [(10**12, "unknown"), (0, "pass")])
def test_a_counter_that_went_back_is_unknown(stands: int, status: str) -> None:
    grows = {f"{RX}_duration": -5} if stands else {}
    one = finding(judged(stands={f"{RX}_duration": stands}, grows=grows))
    assert one["status"] == status
