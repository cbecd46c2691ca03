"""Fat tree: capacity of links and switches per level, and times of collectives."""

from __future__ import annotations

from collections.abc import Sequence

from preflight._startup.lightclass import dataclass


@dataclass(frozen=True)
class Level:
    """One level: the NVSwitches of a node, the leaves of a unit, or the spines."""

    name: str
    gpus: int  # GPUs below one group of switches
    parts: int  # what a group connects: the GPUs of a node, the nodes of a unit, or the units
    links: float  # capacity of the links below a group, GB/s
    switches: float | None  # capacity of the switches of a group, GB/s; None if unknown

    @property
    def bandwidth(self) -> float:
        """The smaller of the capacities of links and switches, in GB/s."""
        return self.links if self.switches is None else min(self.links, self.switches)

    @property
    def per_gpu(self) -> float:
        """One GPU's share of the bandwidth, GB/s."""
        return self.bandwidth / self.gpus

    @property
    def binds(self) -> str:
        """What limits the bandwidth: links, switches, or both equally."""
        if self.switches is None or self.links < self.switches:
            return "links"
        return "links and switches" if self.links == self.switches else "switches"


@dataclass(frozen=True)
class FatTree:
    """A fat tree, as described in a cluster file."""

    gpus: int  # of a node
    nvlink: float  # GB/s per GPU and direction
    nic: float  # GB/s of one NIC
    nics: int  # of a node
    unit_nodes: int  # nodes under one group of leaves
    unit_leaves: int  # leaf switches in a group
    units: int
    spines: int
    links_per_spine: int  # from each leaf to each spine
    nvswitches: float | None = None  # capacity of a node's NVSwitches, GB/s; None if unknown
    switch: float | None = None  # capacity of a leaf or spine, GB/s; None if unknown
    uplink: float | None = None  # GB/s of a link between leaf and spine; None if the same as a NIC's

    def levels(self) -> tuple[Level, ...]:
        """Return the levels, from the node upwards."""
        unit, total = self.gpus * self.unit_nodes, self.gpus * self.unit_nodes * self.units
        below = self.unit_nodes * self.nics * self.nic
        uplinks = self.units * self.unit_leaves * self.spines * self.links_per_spine
        capacity = self.switch
        found = [
            Level("node", self.gpus, self.gpus, self.gpus * self.nvlink, self.nvswitches),
            Level("leaf", unit, self.unit_nodes, below, capacity * self.unit_leaves if capacity else None),
        ]
        if self.units > 1:
            rate = self.uplink if self.uplink is not None else self.nic
            found.append(
                Level("spine", total, self.units, uplinks * rate, capacity * self.spines if capacity else None)
            )
        return tuple(found)


def seconds(
    collective: str, size: int, levels: Sequence[Level], *, in_network: bool, ways: int = 1
) -> tuple[float, Level]:
    """Return the seconds of a collective over a tree, and the level that limits it.

    The time is ``max_i(bytes x parts_i / W_i)``. An all_reduce takes twice that unless the switches reduce; an alltoall
    sends across a level only data that do not stay below it. An array that is sharded over ``ways`` neighbouring GPUs
    is sent upwards in as many parts: ``parts_i`` is ``S_i / max(ways, S_(i-1))``, where S_i are the GPUs below level i.
    Source: J. Austin et al., How to Scale Your Model, chapter on GPUs.
    """
    times = []
    everyone, inside = levels[-1].gpus, 1
    for level in levels:
        if collective == "alltoall":
            time = size * (everyone - inside) / everyone / level.per_gpu
        else:
            time = size * level.gpus / max(ways, inside) / level.bandwidth
        times.append((time / 1e9, level))
        inside = level.gpus
    slowest, level = max(times, key=lambda pair: pair[0])
    return (2 * slowest if collective == "all_reduce" and not in_network else slowest), level
