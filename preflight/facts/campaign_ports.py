"""Errors that RDMA ports counted during the runs of a campaign."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import islice

from preflight.bench.campaign import Campaign
from preflight.bench.port_readings import GrownCounter, PortReading
from preflight.facts.counter_catalogue import CARRIER, CounterKind, counter
from preflight.facts.counter_growth import Growth, PortGrowth
from preflight.facts.rdma_ports import Port

#: Kinds of counters that are errors; those of congestion only explain a slow run.
ERRORS = (CounterKind.LOSS, CounterKind.LINK, CounterKind.ELSEWHERE, CounterKind.FLAP)


@dataclass(frozen=True)
class PortErrors:
    """The errors that one port of a node counted in one round."""

    round: int
    node: str
    port: str  # mlx5_0:1
    grown: tuple[Growth, ...]

    @property
    def fails(self) -> bool:
        """Whether any counter grew beyond its limit."""
        return any(growth.fails for growth in self.grown)


def port_errors(done: Campaign) -> tuple[PortErrors, ...]:
    """Return the ports that counted errors, by round; rare losses are left out."""
    errors = []
    for node in done.readings:
        for reading in node.ports:
            growth = _growth(node.node, reading)
            if grown := growth.frequent(*ERRORS):
                errors.append(PortErrors(node.round, node.node, growth.port.name, tuple(grown)))
    return tuple(errors)


def of_runs(done: Campaign, errors: Collection[PortErrors], sources: Collection[str]) -> list[PortErrors]:
    """Return the errors that nodes counted during some runs, the worst first.

    A node takes part in one run of a round, so these are the errors of that run.
    """
    runs = {
        (launch.round, end.node) for launch in done.launches if launch.output in sources for end in done.ends(launch)
    }
    return sorted((each for each in errors if (each.round, each.node) in runs), key=lambda each: not each.fails)


def total(errors: Sequence[PortErrors]) -> str:
    """Return the four largest sums of growth, such as ``symbol_error +12``."""
    sums = Counter[str]()
    for each in errors:
        for growth in each.grown:
            sums[growth.counter.name] += growth.grown
    return ", ".join(f"{name} +{count}" for name, count in islice(sums.most_common(), 4))


def _growth(node: str, reading: PortReading) -> PortGrowth:
    port = Port(reading.device, reading.port, "ACTIVE", "LinkUp", None, "", None, None)
    grown = [_counter(node, reading, each) for each in reading.grown]
    if reading.packets is not None:
        packets = GrownCounter("counters", "port_rcv_packets", 0, reading.packets)
        grown.append(_counter(node, reading, packets))
    return PortGrowth(port, tuple(grown), (), {})


def _counter(node: str, reading: PortReading, grown: GrownCounter) -> Growth:
    entry = CARRIER if grown.source == "carrier" else counter(grown.source, grown.name)
    return Growth(entry, f"{node}: {grown.source}", grown.before, grown.after, reading.seconds or 1.0)
