"""A subnet as a graph: tiers of switches, leaf links, distances of hosts.

A path's length is counted in switches: 1 for two HCAs on one leaf, 3 over a spine, 5 over a core.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property

from preflight._startup.lightclass import dataclass
from preflight.parsers.infiniband.ibnetdiscover import FabricDevice, FabricLink, Net

#: Minimum share of host links among a leaf switch's links; a spine may have the subnet manager's node attached.
LEAF_SHARE = 0.2


@dataclass(frozen=True)
class Leaf:
    """A switch with hosts, and the rates of its links."""

    switch: FabricDevice
    hosts: int  # HCA links
    down_gbps: float  # total rate of the links to hosts, Gb/s
    uplinks: int  # links to other switches
    up_gbps: float  # total rate of the uplinks, Gb/s
    unknown: int  # links of unknown rate, counted in neither

    @property
    def ratio(self) -> float:
        """Downlinks to uplinks by rate: 1 is non-blocking, 2 is two to one.

        Infinite without an uplink.
        """
        return self.down_gbps / self.up_gbps if self.up_gbps else float("inf")


class Graph:
    """The devices of a sweep, connected by its links."""

    def __init__(self, net: Net) -> None:
        self.net = net
        self._links: dict[str, list[FabricLink]] = {guid: [] for guid in net.devices}
        for link in net.links:
            for guid in {link.ends[0][0], link.ends[1][0]}:
                self._links[guid].append(link)
        self._tables: dict[str, Mapping[str, int]] = {}

    def links_of(self, guid: str) -> list[FabricLink]:
        """Return the links of a device."""
        return self._links.get(guid, [])

    def _hosts(self, switch: FabricDevice) -> list[FabricLink]:
        return [link for link in self.links_of(switch.guid) if self._is_host(link.other(switch.guid)[0])]

    def _is_host(self, guid: str) -> bool:
        device = self.net.devices[guid]
        return device.kind == "hca" and not device.aggregates

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        """The leaf switches, sorted by name: those with enough links to hosts."""
        found = []
        for switch in self.net.switches:
            down = self._hosts(switch)
            up = [link for link in self.links_of(switch.guid) if self.net.devices[link.other(switch.guid)[0]].is_switch]
            if down and len(down) >= LEAF_SHARE * (len(down) + len(up)):
                rates = [sum(link.gbps or 0.0 for link in links) for links in (down, up)]
                blank = sum(link.gbps is None for link in (*down, *up))
                found.append(Leaf(switch, len(down), rates[0], len(up), rates[1], blank))
        return tuple(found)

    @cached_property
    def tiers(self) -> tuple[tuple[FabricDevice, ...], ...]:
        """Switches by distance from the leaves: leaves, spines, cores.

        Switches that reach no leaf are last.
        """
        depth = self._depths(leaf.switch.guid for leaf in self.leaves)
        tiers: dict[int, list[FabricDevice]] = {}
        beyond = max(depth.values(), default=-1) + 1
        for switch in self.net.switches:
            tiers.setdefault(depth.get(switch.guid, beyond), []).append(switch)
        return tuple(tuple(tiers[number]) for number in sorted(tiers))

    def _depths(self, starts: Iterable[str]) -> dict[str, int]:
        """Return the number of links from the nearest start to each switch."""
        depth = dict.fromkeys(starts, 0)
        queue = deque(depth)
        while queue:
            here = queue.popleft()
            for far in self._switches[here]:
                if far not in depth:
                    depth[far] = depth[here] + 1
                    queue.append(far)
        return depth

    @cached_property
    def _switches(self) -> Mapping[str, tuple[str, ...]]:
        """The neighbouring switches of each switch."""
        switches = {switch.guid for switch in self.net.switches}
        return {guid: tuple({link.other(guid)[0] for link in self._links[guid]} & switches) for guid in switches}

    def distances(self, leaf: str) -> Mapping[str, int]:
        """Return the number of switches on the shortest path from a leaf to each switch.

        The leaf itself counts 1.
        """
        if leaf not in self._tables:
            self._tables[leaf] = {guid: links + 1 for guid, links in self._depths([leaf]).items()}
        return self._tables[leaf]

    def leaf_of(self, hca: str) -> str | None:
        """Return the GUID of an HCA's switch; None if it has none or several."""
        switches = {link.other(hca)[0] for link in self.links_of(hca)}
        found = [guid for guid in switches if self.net.devices[guid].is_switch]
        return found[0] if len(found) == 1 else None

    def along(self, route: tuple[int, ...]) -> str:
        """Return the end of a directed route from the sweeping node: ``leaf00 port 3``.

        Empty if it cannot be followed. The first number is the sweeping port itself; each later number is an
        outgoing port.
        """
        here = self.net.start[0] if self.net.start else ""
        if here not in self.net.devices:
            return ""
        for number in route[1:-1]:
            link = next((link for link in self._links[here] if (here, number) in link.ends), None)
            if link is None:
                return ""
            here = link.other(here)[0]
        return f"{self.net.devices[here].label} port {route[-1]}" if len(route) > 1 else ""


@dataclass(frozen=True)
class Placement:
    """The distances between a job's HCAs, over all of its rails."""

    nodes: int  # of the job, on the fabric
    pairs: Mapping[int, int]  # switches on the path -> number of pairs of HCAs on the same rail
    needed: int  # switches on the longest path for the closest possible placement of this many nodes
    leaves: int  # leaves to which the job's HCAs are connected
    far: tuple[str, ...]  # nodes farther than needed from more than half of their peers


def place(graph: Graph, rails: Mapping[str, Mapping[str, str]]) -> Placement:
    """Return the placement of a job on the fabric.

    ``rails`` maps each rail to the job's nodes with the GUID of their HCA.
    """
    hung = {rail: {node: leaf for node, hca in members.items() if (leaf := graph.leaf_of(hca)) is not None}
            for rail, members in rails.items()}  # fmt: skip
    everywhere = Counter(leaf for members in hung.values() for leaf in members.values())
    pairs: Counter[int] = Counter()
    needed, far = 1, set[str]()
    for members in hung.values():
        on = Counter(members.values())
        # If rails share leaves, a rail has only its share of a leaf's ports.
        part = len(members) / max(1, sum(everywhere[leaf] for leaf in on))
        wanted = _nearest_fit(graph, on, everywhere.keys() - on.keys(), len(members), part)
        needed = max(needed, wanted)
        for leaf, count in on.items():
            table, beyond = graph.distances(leaf), 0
            for other, there in on.items():
                length = table.get(other, 0)
                pairs[length] += count * (count - 1) if other == leaf else count * there
                beyond += there if length == 0 or length > wanted else 0
            if beyond * 2 > len(members):
                far.update(node for node, its in members.items() if its == leaf)
    return Placement(
        len({node for members in hung.values() for node in members}),
        {length: number // 2 for length, number in sorted(pairs.items()) if number},
        needed, len(everywhere), tuple(sorted(far)),
    )  # fmt: skip


def _nearest_fit(graph: Graph, around: Iterable[str], other_rails: Collection[str], nodes: int, part: float) -> int:
    """Return the longest path, in switches, of the closest possible placement.

    The placement uses the leaves nearest to one of ``around`` that together have room for this many nodes, without
    those of other rails; ``part`` is the share of a leaf's ports that the rail may use.
    """
    room = {leaf.switch.guid: leaf.hosts * part for leaf in graph.leaves if leaf.switch.guid not in other_rails}
    if max(room.values(), default=0) >= nodes:
        return 1
    best = 0
    for leaf in around:
        table, total = graph.distances(leaf), 0.0
        for other in sorted((guid for guid in room if guid in table), key=lambda guid: table[guid]):
            total += room[other]
            if total >= nodes:
                best = min(best or table[other], table[other])
                break
    return best or 1
