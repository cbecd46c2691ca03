"""The leaf of each node: the switch, or switches, of its compute ports.

On a rail-optimised fabric each rail has a separate switch. Nodes on the same switches then form a group, and that group
is their leaf.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from preflight._startup.lightclass import dataclass
from preflight.evidence.document import EvidenceError
from preflight.facts.fabric.graph import Graph
from preflight.facts.fabric.sweep import Compute, sweeps
from preflight.facts.node import NodeFacts
from preflight.parsers.infiniband.ibnetdiscover import Net
from preflight.parsers.network import lldp

#: The description of an HCA: its host, then its device ("gpu001 mlx5_0", "gpu001 HCA-1").
_DESCRIPTION = re.compile(r"(\S{1,253})\s+(?:HCA-\d+|[a-z][\w-]{0,30}\d)", re.ASCII)

#: Maximum number of switches spelled out in a name.
_MOST_NAMED = 2


@dataclass(frozen=True)
class HeardSwitch:
    """The switch and port that LLDP reports for an HCA."""

    device: str
    switch: str
    port: str


def from_evidence(nodes: Sequence[NodeFacts], compute: Compute) -> dict[str, str]:
    """Return node -> leaf, from the nodes' fabric sweeps and LLDP neighbours.

    Nodes whose ports show no switch are left out.
    """
    return groups_of(of_ports(nodes, compute))


def of_ports(nodes: Sequence[NodeFacts], compute: Compute) -> dict[tuple[str, str], str]:
    """Return (node, HCA) -> switch, where a sweep or LLDP shows it."""
    switch_of: dict[tuple[str, str], str] = {}
    for swept in sweeps(nodes, compute):
        try:
            graph, rails = swept.graph, swept.here()
        except EvidenceError:
            continue
        for device, members in rails.items():
            for node, hca in members.items():
                if (leaf := graph.leaf_of(hca)) is not None:
                    switch_of[node, device] = graph.net.devices[leaf].label
    return {**switch_of, **announced({node.node: heard(node, compute) for node in nodes})}


def groups_of(switch_of: Mapping[tuple[str, str], str]) -> dict[str, str]:
    """Return node -> name of its group of switches, from the switch of each HCA."""
    connected: dict[str, set[str]] = {}
    for (node, _), switch in switch_of.items():
        connected.setdefault(node, set()).add(switch)
    return name_groups(connected)


def from_sweep(net: Net) -> dict[str, str]:
    """Return node -> leaf, by the descriptions of the HCAs in a sweep."""
    graph = Graph(net)
    connected: dict[str, set[str]] = {}
    for hca in net.hcas:
        leaf = graph.leaf_of(hca.guid)
        if leaf is not None and (described := _DESCRIPTION.fullmatch(hca.name)):
            connected.setdefault(described[1], set()).add(net.devices[leaf].label)
    return name_groups(connected)


def of_hosts(hosts: Iterable[str], leaves: Mapping[str, str]) -> dict[str, str]:
    """Return the leaf of each host; empty if the leaf of any host is unknown.

    Programs print host names up to the first dot. Runs cannot be compared by distance if only some of them have a leaf.
    """
    labels: dict[str, set[str]] = {}
    for node, leaf in leaves.items():
        labels.setdefault(_label(node), set()).add(leaf)
    of_each = {}
    for host in hosts:
        choices = {leaves[host]} if host in leaves else labels.get(_label(host), set())
        if len(choices) != 1:
            return {}
        of_each[host] = next(iter(choices))
    return of_each


def name_groups(connected: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Return the name of each node's group of switches.

    A node on only some of the switches of exactly one group belongs to it: a port may be down, or a
    neighbour silent.
    """
    switches = {node: frozenset(own) for node, own in connected.items() if own}
    sets = set(switches.values())
    largest = [own for own in sets if not any(own < other for other in sets)]
    group_of = {}
    for own in sets:
        containing = [group for group in largest if own <= group]
        if len(containing) == 1:
            group_of[own] = containing[0]
    short = Counter(map(_name, largest))
    names = {group: _name(group) if short[_name(group)] == 1 else ", ".join(sorted(group)) for group in largest}
    return {node: names[group_of[own]] for node, own in switches.items() if own in group_of}


def announced(heard_of: Mapping[str, Sequence[HeardSwitch]]) -> dict[tuple[str, str], str]:
    """Return (node, HCA) -> switch, from the LLDP neighbours of the compute ports.

    Empty if two nodes seem to be on the same port: the switches share a name, such as the vendor's default.
    """
    switch_of: dict[tuple[str, str], str] = {}
    taken: dict[tuple[str, str], str] = {}
    for node, heard in heard_of.items():
        for own in heard:
            if taken.setdefault((own.switch, own.port), node) != node:
                return {}
            switch_of[node, own.device] = own.switch
    return switch_of


def heard(node: NodeFacts, compute: Compute) -> tuple[HeardSwitch, ...]:
    """Return the switches that LLDP shows on a node's compute ports."""
    if lldp.LLDP not in node.evidence:
        return ()
    try:
        neighbours = node.parsed(lldp.LLDP, lldp.parse)
        ports = [(port.device, port.netdev) for port in compute(node)]
    except EvidenceError:
        return ()
    return tuple(
        HeardSwitch(device, neighbours[netdev].switch, neighbours[netdev].port)
        for device, netdev in ports if netdev and netdev in neighbours
    )  # fmt: skip


def _name(switches: frozenset[str]) -> str:
    first, *others = sorted(switches)
    if len(others) < _MOST_NAMED:
        return ", ".join([first, *others])
    return f"{first} and {len(others)} more"


def _label(name: str) -> str:
    return name.partition(".")[0].casefold()
