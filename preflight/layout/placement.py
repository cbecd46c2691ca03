"""Location of each rank: its node, GPU, rail, leaf and NVLink domain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from preflight._startup.lightclass import dataclass
from preflight.layout.hardware import Hardware
from preflight.layout.job import LayoutError


class RankPlacement:
    """The placement of a job's ranks on nodes.

    Raises LayoutError if the distribution is not supported, or there are too few GPUs or ranks.
    """

    def __init__(self, hardware: Hardware, ranks: int) -> None:
        self.hardware = hardware
        self.ranks = ranks
        self._each = hardware.each
        self._nodes_of_domain = hardware.domain // hardware.each
        #: Number of nodes that the job needs.
        self.nodes = -(-ranks // hardware.each)
        if hardware.gpus is not None and hardware.names and ranks > hardware.gpus and not hardware.order:
            raise LayoutError(f"the job has {ranks} GPUs, but the cluster has {hardware.gpus}")
        fabric = hardware.fabric
        self._order = self._stated_order()
        #: Whether a rank's location follows from its number alone.
        self._regular = not (self._order or fabric.units or fabric.domains)

    def _stated_order(self) -> Sequence[int]:
        """Return the node number of each rank; empty if ranks fill node by node."""
        hardware, each = self.hardware, self.hardware.each
        if hardware.order:
            if len(hardware.order) < self.ranks:
                raise LayoutError(
                    f"the hostfile or job has {len(hardware.order)} ranks, but the layout has {self.ranks}"
                )
            return hardware.order
        kind, _, size = hardware.distribution.partition("=")
        # the first part of srun's node:socket:core is the distribution over nodes
        kind, size = (part.partition(":")[0].partition(",")[0].lower() for part in (kind, size))
        if kind in ("block", "*", "nopack", "pack"):
            return ()
        if kind not in ("cyclic", "plane") or (kind == "plane" and not (size.isdigit() and int(size))):
            raise LayoutError(f"the distribution {hardware.distribution!r} of ranks over nodes is not supported; "
                              "use --set distribution=block or cyclic, or --hostfile")  # fmt: skip
        plane = int(size) if kind == "plane" else 1
        free, node = [each] * self.nodes, 0
        order: list[int] = []
        while len(order) < self.ranks:
            taken = min(plane, free[node], self.ranks - len(order))
            order += [node] * taken
            free[node] -= taken
            node = (node + 1) % self.nodes
        return () if order == sorted(order) else order

    @property
    def scattered(self) -> bool:
        """Whether ranks are not in consecutive order on the nodes."""
        return bool(self._order)

    def node(self, rank: int) -> int:
        """Return the node number of a rank, in the order of the job."""
        return self._order[rank] if self._order else rank // self._each

    @cached_property
    def _gpus(self) -> list[int]:
        """The GPU number of each rank; the ranks of a node use its GPUs in order."""
        used: dict[int, int] = {}
        gpus = []
        for node in self._order:
            gpus.append(used.get(node, 0))
            used[node] = used.get(node, 0) + 1
        return gpus

    def gpu(self, rank: int) -> int:
        """Return the number of a rank's GPU on its node."""
        return self._gpus[rank] if self._order else rank % self._each

    def rail(self, rank: int) -> int:
        """Return the number of a rank's NIC on its node; neighbouring GPUs may share it."""
        machine = self.hardware.machine
        nics = machine.nics or machine.gpus
        return self.gpu(rank) * nics // machine.gpus if nics < machine.gpus else self.gpu(rank)

    def domain(self, rank: int) -> int | str:
        """Return the name or number of a rank's NVLink domain."""
        if domains := self.hardware.fabric.domains:
            return domains[self.name(rank)]
        return self.node(rank) // self._nodes_of_domain

    def unit(self, rank: int) -> int | str | None:
        """Return the group of leaves above a rank's node; None if unknown."""
        fabric = self.hardware.fabric
        if fabric.units:
            return fabric.units[self.name(rank)]
        return self.node(rank) // fabric.unit_nodes if fabric.unit_nodes else None

    def leaf(self, rank: int) -> str | None:
        """Return the name of the leaf above a rank's NIC; None if unknown."""
        fabric, unit = self.hardware.fabric, self.unit(rank)
        if fabric.leaves:
            return fabric.leaves.get((self.name(rank), self.gpu(rank)))
        if unit is None or fabric.rail_optimised is None:
            return None
        return f"unit {unit}, rail {self.rail(rank)}" if fabric.rail_optimised else f"unit {unit}"

    def name(self, rank: int) -> str:
        """Return the name of a rank's node."""
        node, names = self.node(rank), self.hardware.names
        return names[node] if node < len(names) else f"node {node}"

    def spread(self, group: Sequence[int]) -> Spread:
        """Return the spread of a group over nodes, NVLink domains and units."""
        hardware = self.hardware
        if isinstance(group, range) and self._regular:
            units = hardware.fabric.unit_nodes
            return Spread(
                len(group), _touched(group, hardware.each), _touched(group, hardware.domain),
                _touched(group, units * hardware.each) if units else None, _fewest(group, hardware.domain),
                _fewest(group, units * hardware.each) if units else 1, group,
            )  # fmt: skip
        nodes = {self.node(rank) for rank in group}
        domains = Counter(self.domain(rank) for rank in group)
        of_units = Counter(self.unit(rank) for rank in group)
        return Spread(
            len(group), len(nodes), len(domains), None if None in of_units else len(of_units), min(domains.values()),
            min(of_units.values()), group,
        )  # fmt: skip

    def nodes_of(self, group: Sequence[int]) -> dict[int, list[int]]:
        """Return the ranks of a group on each node, by node number."""
        ranks: dict[int, list[int]] = {}
        for rank in group:
            ranks.setdefault(self.node(rank), []).append(rank)
        return ranks

    def distinct(self, groups: Iterable[Sequence[int]]) -> Iterator[Sequence[int]]:
        """Yield the groups, all of one shape, that may differ in their spread.

        If ranks fill node by node, groups that start at the same offset in a unit have the same spread.
        """
        period = self.hardware.domain * (self.hardware.fabric.unit_nodes or 1)
        offsets: set[int] = set()
        for group in groups:
            place = group[0] % period
            if not self._regular or place not in offsets:
                offsets.add(place)
                yield group


def _touched(ranks: range, size: int) -> int:
    """Return the number of blocks of ``size`` ranks that a range overlaps."""
    if ranks.step >= size:
        return len(ranks)
    return ranks[-1] // size - ranks[0] // size + 1


def _fewest(ranks: range, size: int) -> int:
    """Return the fewest ranks that a range has in any block of ``size`` it overlaps."""
    if ranks.step >= size:
        return 1
    first = -(-(size - ranks[0] % size) // ranks.step)
    if first >= len(ranks):
        return len(ranks)
    return min(first, ranks[-1] % size // ranks.step + 1, size // ranks.step)


@dataclass(frozen=True)
class Spread:
    """The numbers of nodes, NVLink domains and units over which a group is spread."""

    ranks: int
    nodes: int
    domains: int
    units: int | None  # None if unknown
    fewest: int = 1  # number of ranks in the domain with the fewest
    fewest_of_unit: int = 1  # number of ranks in the unit with the fewest
    group: Sequence[int] = ()  # the ranks themselves

    @property
    def extent(self) -> tuple[int, int, int, int, int]:
        """A sort key for finding the most widely spread group."""
        return (self.domains, self.units or 0, self.nodes, -self.fewest, self.ranks)

    @property
    def level(self) -> str:
        """The highest level of links that the group crosses: NVLink, leaf or spine."""
        if self.domains == 1:
            return "NVLink"
        return "spine" if self.units is not None and self.units > 1 else "leaf"
