"""Load of a GPU's links: NVLink, NIC, leaf uplink."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from preflight._startup.lightclass import dataclass
from preflight.layout.hardware import Hardware
from preflight.layout.traffic import Exchange

#: Names of the links, in the order in which data passes them.
NVLINK, NIC, UPLINK = "NVLink", "NIC", "leaf uplink"


@dataclass(frozen=True)
class LinkLoad:
    """The bytes that one GPU sends over one kind of link in a step."""

    link: str
    moved: float | None  # bytes that a GPU sends in a step; None if unknown
    rate: float | None  # line rate of one GPU's share in GB/s; None if unknown
    largest: str = ""  # the axis that sends the most

    def busy(self, seconds: float) -> float | None:
        """Return the share of a step in which the link is busy; None if unknown."""
        return None if self.rate is None or self.moved is None else self.moved / (self.rate * 1e9 * seconds)


def link_loads(hardware: Hardware, moved: Iterable[Exchange]) -> list[LinkLoad]:
    """Return the load of each kind of link that the job uses.

    The load of the uplinks is unknown if the groups of leaves are.
    """
    machine, fabric = hardware.machine, hardware.fabric
    nic = machine.node_nics / machine.gpus if machine.node_nics is not None else None
    uplink = nic / fabric.oversubscription if nic is not None and fabric.oversubscription is not None else None
    rates = {NVLINK: machine.nvlink, NIC: nic, UPLINK: uplink}
    loads: dict[str, dict[str, float]] = {link: {} for link in rates}
    unplaced = False
    for exchange in moved:
        unplaced = unplaced or (exchange.spread.domains > 1 and exchange.spread.units is None)
        for link, size in _crossed(exchange):
            loads[link][exchange.axis] = loads[link].get(exchange.axis, 0.0) + size
    used = [
        LinkLoad(link, sum(axes.values()), rates[link], max(axes, key=axes.__getitem__))
        for link, axes in loads.items()
        if sum(axes.values()) > 0 and not (link == UPLINK and unplaced)
    ]
    return [*used, LinkLoad(UPLINK, None, uplink)] if unplaced else used


def _crossed(exchange: Exchange) -> Iterator[tuple[str, float]]:
    """Yield each kind of link, with the bytes that a GPU sends over it.

    Point-to-point data leaves the domain completely or not at all. A ring leaves each domain and unit once, so the
    group's GPUs in a domain or unit share these bytes. An all-to-all sends a separate part to each GPU outside.
    """
    spread, moved = exchange.spread, exchange.moved
    leaves_domain, leaves_unit = spread.domains > 1, spread.level == "spine"
    if exchange.collective == "alltoall":
        others = max(1, spread.ranks - 1)
        outside = (spread.ranks - spread.fewest) / others if leaves_domain else 0.0
        beyond = (spread.ranks - spread.fewest_of_unit) / others if leaves_unit else 0.0
    elif exchange.collective == "sendrecv":
        outside, beyond = float(leaves_domain), float(leaves_unit)
    else:
        outside = 1 / spread.fewest if leaves_domain else 0.0
        beyond = 1 / spread.fewest_of_unit if leaves_unit else 0.0
    inside = 1.0 if spread.fewest > 1 and exchange.collective not in ("alltoall", "sendrecv") else 1 - outside
    yield NVLINK, inside * moved
    yield NIC, outside * moved
    yield UPLINK, beyond * moved
