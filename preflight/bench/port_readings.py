"""RDMA port errors that nodes counted during a round, as a journal line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

SCHEMA = "preflight.bench.ports/1"


@dataclass(frozen=True)
class GrownCounter:
    """An error counter, read before and after a round."""

    source: str  # counters, hw_counters, ethtool or carrier
    name: str
    before: int
    after: int


@dataclass(frozen=True)
class PortReading:
    """The errors that an active port counted during a round."""

    device: str
    port: int
    seconds: float  # between the two readings
    packets: int | None  # number of received packets; None if unknown
    grown: tuple[GrownCounter, ...] = ()
    unread: str = ""  # counters whose growth is unknown, with the reasons; empty if none


@dataclass(frozen=True)
class NodeReading:
    """The ports of a node in one round, or the reason why they are unknown."""

    round: int
    node: str
    ports: tuple[PortReading, ...] = ()
    why: str = ""


def document(number: int, readings: Iterable[NodeReading]) -> dict[str, Any]:
    """Return the readings of a round as a line of the journal."""
    nodes = [{"node": each.node, "why": each.why, "ports": [_port(port) for port in each.ports]} for each in readings]
    return {"schema": SCHEMA, "round": number, "nodes": nodes}


def _port(port: PortReading) -> dict[str, Any]:
    return {**asdict(port), "grown": [asdict(counter) for counter in port.grown]}


def from_line(line: Mapping[str, Any]) -> tuple[NodeReading, ...]:
    """Return the readings in a valid journal line."""
    return tuple(
        NodeReading(line["round"], entry["node"], tuple(
            PortReading(**{**port, "grown": tuple(GrownCounter(**counter) for counter in port["grown"])})
            for port in entry["ports"]
        ), entry["why"])
        for entry in line["nodes"]
    )  # fmt: skip
