"""Fat tree: capacity of links and switches per level, time of collectives."""

from __future__ import annotations

from collections.abc import Sequence

from preflight._startup.lightclass import dataclass


@dataclass(frozen=True)
class Level:
    """One level: NVSwitches of a node, leaves of a unit, spines over the units."""

    name: str
    gpus: int  # below one group
    parts: int  # groups of the level below that it connects: GPUs of a node, nodes of a unit, units
    links: float
    switches: float | None  # None: their capacity is not known

    @property
    def bandwidth(self) -> float:
        """The smaller of the two, GB/s."""
        return self.links if self.switches is None else min(self.links, self.switches)

    @property
    def per_gpu(self) -> float:
        """Share of one GPU, GB/s."""
        return self.bandwidth / self.gpus

    @property
    def binds(self) -> str:
        """Which of links and switches is the limit."""
        if self.switches is None or self.links < self.switches:
            return "links"
        return "links and switches equally" if self.links == self.switches else "switches"


@dataclass(frozen=True)
class FatTree:
    """A fat tree as a cluster file describes it."""

    gpus: int  # of a node
    nvlink: float  # GB/s per direction and GPU
    nic: float  # GB/s of one NIC
    nics: int  # of a node
    unit_nodes: int  # nodes under one group of leaves
    unit_leaves: int  # leaf switches of a group
    units: int
    spines: int
    links_per_spine: int  # from each leaf to each spine
    nvswitches: float | None = None  # capacity of a node's, GB/s
    switch: float | None = None  # capacity of a leaf or spine, GB/s
    uplink: float | None = None  # GB/s of a link between leaf and spine; None: as a NIC

    def levels(self) -> tuple[Level, ...]:
        """Return the levels from the node up."""
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
    """Return the time of a collective over a tree, and the level that takes longest.

    ``max_i(bytes x parts_i / W_i)``; all_reduce takes twice that unless the switches reduce; alltoall only sends data
    across a level that does not stay below it. An array that is sharded over ``ways`` neighbouring GPUs goes up in this
    many parts: ``parts_i`` is ``S_i / max(ways, S_(i-1))``, S_i being the GPUs below level i. (J. Austin et al., How to
    Scale Your Model, chapter on GPUs.)
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
