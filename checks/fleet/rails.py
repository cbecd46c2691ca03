"""Comparison of each rail across nodes: network, partition, VLAN, rate."""

from __future__ import annotations

import ipaddress
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from preflight import facts
from preflight.checks.comparison.compare import compare
from preflight.checks.comparison.electorate import Trait
from preflight.checks.comparison.values import compute
from preflight.checks.rdma import ip_rails, ports
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts import system_settings
from preflight.facts.node import NodeFacts
from preflight.facts.rdma_ports import ROOT, Port, natural
from preflight.model import Finding, check
from preflight.parsers.network import lldp

#: Reads a value of one port; None if it has none.
OfPort = Callable[[NodeFacts, Port], "str | None"]

VLANS = "file:/proc/net/vlan/config"

#: Number of P_Key table rows that are collected.
_PARTITIONS = range(4)


def _subnet(node: NodeFacts, port: Port) -> str | None:
    """Return the network of a RoCE rail, or only ``/31`` etc. if it is point to point.

    None for other ports, and without an address.
    """
    if not port.roce or not port.netdev:
        return None
    known = node.addresses.routable(port.netdev)
    if not known:
        return None  # roce.chain reports a missing address
    networks = {str(one.network) if not _is_point_to_point(one) else f"/{one.network.prefixlen}" for one in known}
    return " and ".join(sorted(networks))


def _is_point_to_point(address: facts.addresses.Address) -> bool:
    return address.network.prefixlen >= (30 if address.version == 4 else 126)


def _gid(node: NodeFacts, port: Port) -> str:
    key = f"file:{ROOT}/{port.device}/ports/{port.number}/gids/0"
    text = node.evidence.text(key).strip()
    try:
        return ipaddress.IPv6Address(text).exploded
    except ValueError:
        raise EvidenceError(key, f"holds {text[:60]!r}, not a GID") from None


def _manager(node: NodeFacts, port: Port) -> str | None:
    """Return an InfiniBand port's subnet prefix and the LID of its subnet manager.

    Together, they identify its fabric. None for other ports.
    """
    if not port.infiniband:
        return None
    if port.sm_lid is None:
        raise EvidenceError(f"file:{ROOT}/{port.device}/ports/{port.number}/sm_lid", "was not read")
    return f"prefix {_gid(node, port)[:19]}, manager at LID {port.sm_lid}"


def _partitions(node: NodeFacts, port: Port) -> str | None:
    if not port.infiniband:
        return None
    base = f"file:{ROOT}/{port.device}/ports/{port.number}/pkeys"
    keys = [f"{base}/{row}" for row in _PARTITIONS if row == 0 or f"{base}/{row}" in node.evidence]
    found = {node.parsed(key, system_settings.partition_key) for key in keys if node.evidence.exists(key)}
    return " and ".join(f"0x{key:04x}" for key in sorted(found) if key) or "none"


def _tag(node: NodeFacts, port: Port) -> str | None:
    """Return the VLAN tag of the packets of a RoCE rail, or "no tag".

    None for other ports.
    """
    if not port.roce or not port.netdev:
        return None
    tagged = {}
    if node.evidence.exists(VLANS):
        tagged = node.parsed(VLANS, system_settings.vlans)
    mine = sorted(number for name, (number, below) in tagged.items() if port.netdev in (name, below))
    return " and ".join(map(str, mine)) or "no tag"


def _vlan(node: NodeFacts, port: Port) -> str | None:
    """Return the VLAN that the switch assigns to a rail's untagged packets.

    None if the switch does not announce it.
    """
    if not port.roce or not port.netdev:
        return None
    try:
        there = node.parsed(lldp.LLDP, lldp.parse).get(port.netdev)
    except EvidenceError:
        return None  # switch.mtu reports missing LLDP
    return None if there is None or there.vlan is None else str(there.vlan)


def _leaf(node: NodeFacts, port: Port) -> str | None:
    """Return the switch at the other end of a RoCE rail; None if not announced."""
    if not port.roce or not port.netdev:
        return None
    there = node.parsed(lldp.LLDP, lldp.parse).get(port.netdev)
    return None if there is None else there.switch


def _rate(node: NodeFacts, port: Port) -> str | None:
    """Return the rate as the kernel prints it: ``400 Gb/sec (4X NDR)``.

    None if unknown.
    """
    key = f"file:{ROOT}/{port.device}/ports/{port.number}/rate"
    if key not in node.evidence:
        return None if port.rate_gbps is None else f"{port.rate_gbps:g} Gb/s"
    return node.evidence.text(key).strip()


def by_rail(read: OfPort) -> Callable[[NodeFacts, Site], str | None]:
    """Return a function that reads a value of each active compute port, by rail."""

    def of_node(node: NodeFacts, site: Site) -> str | None:
        found = []
        for port in sorted(compute(node, site), key=lambda port: natural(port.name)):
            if (value := read(node, port)) is not None:
                found.append(f"{port.name} {value}")
        return "; ".join(found) or None

    return of_node


def _swapped(nodes: Sequence[NodeFacts], sites: Mapping[str, Site]) -> Trait:
    """Return the trait for point-to-point addresses that belong to another rail.

    The addresses of the other nodes on a rail span a range. If the ranges are disjoint, an address inside another
    rail's range is on the wrong port.
    """
    spans = _spans(nodes, sites)

    def read(node: NodeFacts, site: Site) -> str | None:
        if not spans:
            return None
        wrong = []
        for port, ip in _host_addresses(node, site):
            home = next((rail for rail, span in spans.items() if span[0] <= int(ip) <= span[1]), None)
            if home is not None and home != port:
                wrong.append(f"{port} has {ip} of {home}")
        return "; ".join(wrong) or "each rail's address is in the rail's own range"

    return Trait("rail address ranges", "cmd:ip -j addr", read, breaks=True, items="; ",
                 alone=False)  # fmt: skip


def _host_addresses(node: NodeFacts, site: Site) -> tuple[tuple[str, ipaddress.IPv4Address], ...]:
    """Return the point-to-point addresses of the rails, each with its port.

    Raises EvidenceError.
    """
    return node.remember_for_fleet("point-to-point addresses", _point_to_point, node, site)


def _point_to_point(node: NodeFacts, site: Site) -> tuple[tuple[str, ipaddress.IPv4Address], ...]:
    return tuple(
        (port.name, one.ip)
        for port in compute(node, site)
        if port.roce and port.netdev
        for one in node.addresses.ipv4(port.netdev)
        if _is_point_to_point(one) and not one.is_link_local
    )


def _spans(nodes: Sequence[NodeFacts], sites: Mapping[str, Site]) -> dict[str, tuple[int, int]]:
    """Return the address range of each rail, without its lowest and highest tenth.

    Empty if ranges overlap, or with fewer than two rails.
    """
    found: dict[str, list[int]] = defaultdict(list)
    for node in nodes:
        try:
            for port, ip in _host_addresses(node, sites[node.node]):
                found[port].append(int(ip))
        except EvidenceError:
            continue
    spans = {}
    for rail, numbers in found.items():
        numbers.sort()
        cut = -(-len(numbers) // 10) if len(numbers) >= 3 else 0
        if middle := numbers[cut : len(numbers) - cut]:
            spans[rail] = (middle[0], middle[-1])
    order = sorted(spans.values())
    apart = all(one[1] < other[0] for one, other in pairwise(order))
    return spans if len(spans) > 1 and apart else {}


RAILS = tuple(
    Trait(what, key, by_rail(read), breaks=True, items="; ", each=True, judged_by=judged_by, expects=expects)
    for what, key, read, judged_by, expects in (
        ("IP subnet of each rail", "cmd:ip -j addr", _subnet, (ip_rails.subnets, ports.link_layer), "rails.*.subnet"),
        (
            "InfiniBand subnet of each rail",
            f"file:{ROOT}/*/ports/*/gids/0",
            _manager,
            (ports.link_layer,),
            "rails.*.ib_subnet",
        ),
        (
            "partitions of each rail",
            f"file:{ROOT}/*/ports/*/pkeys/0",
            _partitions,
            (ports.link_layer,),
            "rails.*.partitions",
        ),
        ("VLAN tag of each rail", VLANS, _tag, (ports.link_layer,), "rails.*.vlan"),
        ("VLAN of each rail at its switch", lldp.LLDP, _vlan, (ports.link_layer,), "rails.*.switch_vlan"),
        ("rate of each rail", f"file:{ROOT}/*/ports/*/rate", _rate, (ports.port_rate,), ""),
    )
)


LEAF = Trait("leaf of each rail", lldp.LLDP, by_rail(_leaf), breaks=True, items="; ", each=True,
             expects="rails.*.leaf")  # fmt: skip


@check(
    "fleet.rails",
    title="Rail i of all nodes lies in the same network and runs at the same rate",
    fault="A rail of a node is in a different network or runs at a different rate",
    impact="slows-job",
    owner="network",
    source="NVIDIA DGX SuperPOD reference architecture (rail-optimised); NCCL connects rail i to rail i; majority "
    "of at least 3 nodes and 60%",
    fix="Compare the rail's address, partition (`cat …/pkeys/0`), VLAN, rate and cable on both sides; decide "
    "which is right (for a rate, `ports.rate_gbps` of the cluster file), and correct the other.",
    explains=(
        ("link.speed-fec", "cable", "rate of each rail*"),
        ("fleet.rates", "node", "rate of each rail*"),
    ),
    action="fix-site",
    answers=("NT-FAB-3", "NT-FAB-4", "PA-16"),
    scope="fleet",
)
def rails_match(nodes: Sequence[NodeFacts], sites: Mapping[str, Site]) -> Iterator[Finding]:
    """Compare subnets, partitions, VLANs and rates rail by rail.

    ## Why it matters
    Rail i of one node communicates with rail i of all others. In another subnet, partition or VLAN, it reaches no peer,
    and the job hangs at its first connection; at a lower rate, it slows down the ring.

    ## Verdicts
    Nodes that fail rdma.port-rate, rails.subnets or rdma.link-layer do not have the expected value and do not vote on
    it. A node whose rail differs from that of most nodes fails; without a majority, all nodes fail, and it is unknown
    which value is right. Rails with point-to-point addresses (/30, /31) share no subnet; on them, an address within
    another rail's range fails. rdma.port-state reports ports that are down; fleet.mtu-equal compares MTUs, and
    fleet.rail-leaf compares leaves.

    ## False alarms
    Nodes of two pods with different subnets in one class; give each pod its own class.
    """
    for finding in compare(nodes, sites, (*RAILS, _swapped(nodes, sites))):
        yield finding.about(*_answers(finding))


def _answers(finding: Finding) -> tuple[str, ...]:
    """Return the checklist items of a finding.

    Rates answer NT-FAB-3, networks answer NT-FAB-4, and both answer PA-16.
    """
    if finding.subject == "rate of each rail":
        return ("NT-FAB-3", "PA-16")
    if finding.subject:
        return ("NT-FAB-4", "PA-16")
    return ("NT-FAB-3", "NT-FAB-4", "PA-16")
