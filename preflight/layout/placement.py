"""Where each rank runs: node, GPU, rail, leaf and NVLink domain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from preflight._startup.lightclass import dataclass
from preflight.layout.hardware import Hardware


@dataclass(frozen=True)
class RankPlacement:
    """The places of the ranks of a job on its nodes."""

    hardware: Hardware
    ranks: int

    @property
    def nodes(self) -> int:
        """Number of nodes that the job fills."""
        return -(-self.ranks // self.hardware.machine.gpus)

    def node(self, rank: int) -> int:
        """Return the number of a rank's node, in the order of the job."""
        return rank % self.nodes if self.hardware.cyclic else rank // self.hardware.machine.gpus

    def rail(self, rank: int) -> int:
        """Return the number of a rank's GPU on its node, which is its rail."""
        return rank // self.nodes if self.hardware.cyclic else rank % self.hardware.machine.gpus

    def domain(self, rank: int) -> int:
        """Return the number of a rank's NVLink domain."""
        machine = self.hardware.machine
        return self.node(rank) // max(1, machine.domain // machine.gpus)

    def unit(self, rank: int) -> int | None:
        """Return the group of leaves above a rank's node; None: not known."""
        nodes = self.hardware.fabric.unit_nodes
        return self.node(rank) // nodes if nodes else None

    def leaf(self, rank: int) -> str | None:
        """Return the name of the leaf above a rank's NIC; None: not known."""
        fabric, unit = self.hardware.fabric, self.unit(rank)
        if fabric.leaves:
            return fabric.leaves.get((self.name(rank), self.rail(rank)))
        if unit is None or fabric.rail_optimised is None:
            return None
        return f"unit {unit}, rail {self.rail(rank)}" if fabric.rail_optimised else f"unit {unit}"

    def name(self, rank: int) -> str:
        """Return the name of a rank's node."""
        node, names = self.node(rank), self.hardware.names
        return names[node] if node < len(names) else f"node {node}"

    def spread(self, group: Sequence[int]) -> Spread:
        """Return how a group lies on nodes, domains and units."""
        machine, units = self.hardware.machine, self.hardware.fabric.unit_nodes
        domain = max(machine.gpus, machine.domain)
        if isinstance(group, range) and not self.hardware.cyclic:
            return Spread(
                len(group), _touched(group, machine.gpus), _touched(group, domain),
                _touched(group, units * machine.gpus) if units else None,
            )  # fmt: skip
        nodes = {self.node(rank) for rank in group}
        domains = {self.domain(rank) for rank in group}
        return Spread(len(group), len(nodes), len(domains), len({self.unit(rank) for rank in group}) if units else None)

    def distinct(self, groups: Iterable[Sequence[int]]) -> Iterator[Sequence[int]]:
        """Yield of congruent groups those that can differ in their spread.

        With ranks in blocks, groups that begin equally far into a unit have the same spread.
        """
        machine = self.hardware.machine
        period = max(machine.gpus, machine.domain) * (self.hardware.fabric.unit_nodes or 1)
        offsets: set[int] = set()
        for group in groups:
            place = group[0] % period
            if self.hardware.cyclic or place not in offsets:
                offsets.add(place)
                yield group


def _touched(ranks: range, size: int) -> int:
    """Return how many blocks of ``size`` ranks a range of ranks touches."""
    if ranks.step >= size:
        return len(ranks)
    return ranks[-1] // size - ranks[0] // size + 1


@dataclass(frozen=True)
class Spread:
    """How many nodes, NVLink domains and units a group of ranks touches."""

    ranks: int
    nodes: int
    domains: int
    units: int | None  # None: not known

    @property
    def extent(self) -> tuple[int, int, int, int]:
        """What is compared to find the group that crosses the most."""
        return (self.domains, self.units or 0, self.nodes, self.ranks)

    @property
    def level(self) -> str:
        """The highest level of links that the group's collectives cross."""
        if self.domains == 1:
            return "NVLink"
        return "spine" if self.units is not None and self.units > 1 else "leaf"
