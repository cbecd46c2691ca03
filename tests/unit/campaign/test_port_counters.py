"""Counters of ports before and after a round; the figures are invented."""

from __future__ import annotations

from typing import Any

import pytest

from preflight.bench.port_readings import GrownCounter, document, from_line
from preflight.campaign.port_counters import port_probes, reading
from preflight.evidence.document import Evidence

ROOT = "/sys/class/infiniband"


def node(uptime: str, symbols: int, packets: int = 0, target: str = "") -> Evidence:
    port = f"{ROOT}/mlx5_3/ports/1"
    texts = {"/proc/uptime": f"{uptime} 7.00\n", f"{port}/state": "4: ACTIVE\n", f"{port}/phys_state": "5: LinkUp\n",
             f"{port}/rate": "400 Gb/sec (4X NDR)\n", f"{port}/link_layer": "InfiniBand\n"}  # fmt: skip
    directory = {"type": "dir", "mode": "0755", "target": target, "access": ""}
    counters = {"symbol_error": f"{symbols}\n", "port_rcv_packets": f"{packets}\n", "link_downed": "255\n"}
    records: dict[str, Any] = {f"file:{path}": {"status": "ok", "out": text} for path, text in texts.items()}
    records |= {
        f"dir:{ROOT}": {"status": "ok", "entries": {"mlx5_3": directory}},
        f"dir:{ROOT}/mlx5_3/ports": {"status": "ok", "entries": {"1": {**directory, "target": ""}}},
        f"files:{port}/counters": {"status": "ok", "value": counters},
        f"files:{port}/hw_counters": {"status": "missing"},
    }
    return Evidence("gpu003", "2026-11-20T12:00:00Z", records)


def test_growth_during_a_round() -> None:
    made = reading(2, node("100.00", 5), node("112.50", 9, packets=70))
    assert made.why == ""
    (port,) = made.ports
    assert (port.device, port.port, port.seconds, port.packets) == ("mlx5_3", 1, 12.5, 70)
    assert port.grown == (GrownCounter("counters", "symbol_error", 5, 9),)
    assert "hw_counters" in port.unread
    assert "link_downed is at its maximum, 255" in port.unread
    assert from_line(document(2, [made])) == (made,)


@pytest.mark.parametrize(("before", "after", "why"), [
    (None, node("1.00", 5), "not read before the round"),
    (node("1.00", 5), Evidence("gpu003", "", {}, no_answer={"reason": "timed out"}), "timed out"),
    (node("soon", 5), node("9.00", 5), "is not a time"),
])  # fmt: skip
def test_what_is_not_known(before: Evidence | None, after: Evidence, why: str) -> None:
    made = reading(1, before, after)
    assert why in made.why
    assert made.ports == ()


def test_a_node_that_was_restarted_and_a_software_device() -> None:
    (port,) = reading(1, node("900.00", 5), node("12.00", 0)).ports
    assert "the time between its two readings is unknown" in port.unread
    virtual = "../../devices/virtual/infiniband/mlx5_3"
    assert reading(1, node("1.00", 5, target=virtual), node("9.00", 9, target=virtual)).ports == ()


def test_all_probes_are_in_the_catalogue() -> None:
    assert len(port_probes()) == len({probe.key for probe in port_probes()})
