"""Checks of RoCE settings that must be equal on all nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from preflight import facts
from preflight.checks.comparison.compare import compare, equal, softened
from preflight.checks.comparison.electorate import Misses, Trait, standing, subjects
from preflight.checks.nccl import fabric_fit
from preflight.checks.roce.chain import policy
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.gids import keys
from preflight.facts.node import NodeFacts
from preflight.facts.rdma_ports import Port
from preflight.facts.roce_chain.chain import Chain, State
from preflight.model import Finding, check, unknown
from preflight.textprep.plain_text import fold_ids

VARIABLE = "NCCL_IB_GID_INDEX"

OfPort = Callable[[NodeFacts, Port], str]

#: Values that nodes must share, by the chain link that reads them.
SHARED = {"traffic class": "traffic class", "CNP": "marking of CNPs", "DCBX": "DCBX mode", "DCQCN": "DCQCN setting"}


def _pfc(node: NodeFacts, port: Port) -> str:
    enabled = facts.port_qos.pfc(node.evidence, port.netdev or "").value
    return ", ".join(map(str, sorted(enabled))) or "none"


def _trust(node: NodeFacts, port: Port) -> str:
    return facts.port_qos.trust(node.evidence, port.netdev or "", empty_is_pcp=True).value


def _dscp(node: NodeFacts, port: Port) -> str:
    """Format the map from DSCP to priority: ``0-7 to 0, 8-15 to 1``."""
    if _trust(node, port) == "pcp":
        return "not used, the port trusts the VLAN tag"
    table = facts.port_qos.dscp_map(node.evidence, port.netdev or "").value
    of: dict[str, set[int]] = {}
    for dscp, priorities in table.of.items():
        of.setdefault("/".join(map(str, sorted(priorities))), set()).add(dscp)
    return ", ".join(f"{fold_ids(frozenset(dscps))} to {to}" for to, dscps in sorted(of.items()))


def _ecn(node: NodeFacts, port: Port) -> str:
    found = [facts.congestion.ecn(node.evidence, port.netdev or "", priority) for priority in range(8)]
    answers = fold_ids(frozenset(at for at, one in enumerate(found) if one.notification_point))
    slows = fold_ids(frozenset(at for at, one in enumerate(found) if one.reaction_point))
    return f"np on {answers or 'none'}, rp on {slows or 'none'}"


def _pause(node: NodeFacts, port: Port) -> str:
    found = facts.port_qos.pause(node.evidence, port.netdev or "").value
    return f"RX {'on' if found.rx else 'off'}, TX {'on' if found.tx else 'off'}"


def _by_port(of_port: OfPort) -> Callable[[NodeFacts, Site], str | None]:
    """Return a function that reads a value of a node's RoCE ports, each value once."""

    def read(node: NodeFacts, site: Site) -> str | None:
        return " and ".join(sorted({of_port(node, port) for port in _ports(node, site)})) or None

    return read


def breaks(*links: str) -> Misses:
    """Return a function that names roce.chain if one of ``links`` breaks on a node."""

    def misses(node: NodeFacts, site: Site) -> tuple[str, ...]:
        found = (chain.link(link) for chain in _chains(node, site) for link in links)
        return ("roce.chain",) if any(one.state is State.BROKEN for one in found) else ()

    return misses


PORTS = (
    Trait("trust state", "cmd:dcb -j app show dev *", _by_port(_trust), misses=breaks("trust")),
    Trait("priorities with PFC", "cmd:dcb -j pfc show dev *", _by_port(_pfc), misses=breaks("PFC")),
    Trait("ECN per priority", "file:/sys/class/net/*/ecn/roce_np/enable/*", _by_port(_ecn),
          misses=breaks("ECN")),
    Trait("priority of each DSCP", "cmd:dcb -j app show dev *", _by_port(_dscp), items=", ",
          misses=breaks("trust", "priority"), expects="qos.dscp_map"),
    Trait("global pause", "cmd:ethtool -a *", _by_port(_pause), misses=breaks("global pause")),
)  # fmt: skip


@check(
    "fleet.roce-ports",
    title="Trust, PFC, ECN, DSCP map and pause of the RoCE ports are the same on all nodes",
    fault="The RoCE ports of a node have different settings",
    impact="slows-job",
    source="NVIDIA RoCE configuration guide: one class of service end to end; majority of at least 3 nodes and 60%",
    fix="Decide which settings are right, write them into the cluster file (`[class.NAME.qos]`), and set them on all "
    "nodes: `mlnx_qos -i IF` or `dcb`, /sys/class/net/IF/ecn, `ethtool -A`.",
    explains=(
        ("link.pfc", "cable", "priorities with PFC*"),
        ("roce.chain", "node", "priorities with PFC*", "*the lossless priority is*"),
    ),
    action="fix-site",
    answers=("PA-14",),
    scope="fleet",
)
def roce_ports(nodes: Sequence[NodeFacts], sites: Mapping[str, Site]) -> Iterator[Finding]:
    """Compare trust state, PFC, ECN, DSCP map and global pause of RoCE ports.

    ## Why it matters
    If one node uses a different RDMA priority from its peers, or has no PFC on their priority, packets are lost under
    load, and all ranks wait for the retransmissions.

    ## Verdicts
    Nodes whose roce.chain breaks at a setting do not vote on it. Of the other nodes, those that differ from the
    majority warn. Lossy fabrics are compared too.

    ## False alarms
    Nodes of a job that uses another priority on purpose.
    """
    yield from compare(nodes, sites, PORTS)


def _ports(node: NodeFacts, site: Site) -> list[Port]:
    """Return active RoCE compute ports with an interface; none without RDMA."""
    if not node.rdma_devices or site.link_layer.value == "InfiniBand":
        return []  # an Ethernet port on an InfiniBand site is reported by rdma.link-layer
    return [port for port in site.roles(node).compute if port.roce and port.active and port.netdev]


@check(
    "fleet.gid-index",
    title="The routable RoCE v2 address has the same GID index on all nodes",
    fault="The routable RoCE v2 address of a node has a different GID index",
    impact="blocks-job",
    source="NCCL user guide, NCCL_IB_GID_INDEX; majority of at least 3 nodes and 60%",
    fix="Unset NCCL_IB_GID_INDEX with NCCL 2.21 or newer; otherwise bring up the addresses in the "
    "same order on all nodes, "
    "so that the variable's index is right (`show_gids`).",
    action="fix-site",
    answers=("NT-FAB-4",),
    scope="fleet",
)
def gid_index(nodes: Sequence[NodeFacts], sites: Mapping[str, Site]) -> Iterator[Finding]:
    """Compare the GID table rows of RoCE v2 addresses across nodes of one kind.

    ## Why it matters
    On a node that differs, the number in NCCL_IB_GID_INDEX, UCX_IB_GID_INDEX or a benchmark's -x selects another
    address, or none. Connections to this node end in a time-out that does not mention the index.

    ## Verdicts
    Nodes that differ from the majority fail if NCCL_IB_GID_INDEX is set on any node; otherwise they warn, because NCCL
    selects the row automatically. A node that fails nccl.gid-index does not vote.

    ## False alarms
    Pods of one host share its GID table and use different rows; with the variable unset, this is harmless.
    """
    fixed = any(node.remember_for_fleet(VARIABLE, _is_fixed, node) for node in nodes)
    for finding in equal(nodes, sites, GID_INDEX):
        yield finding if fixed else softened(finding)


def _gid_indexes(node: NodeFacts, site: Site) -> str | None:
    indexes = set()
    for port in _ports(node, site):
        found = facts.roce_chain.addressing.routable(node.evidence, port)
        if found is None:
            key = keys(port.device, port.number, 0)[0]
            raise EvidenceError(key, f"{port.name} has no RoCE v2 entry with an IP address (see roce.chain)")
        indexes.add(found.index)
    return " and ".join(map(str, sorted(indexes))) or None


def _names_another_row(node: NodeFacts, site: Site) -> tuple[str, ...]:
    """Return nccl.gid-index if that check reports a port.

    A warning about the variable itself does not count.
    """
    return (fabric_fit.gid_index.id,) if subjects(fabric_fit.gid_index, node, site) - {VARIABLE} else ()


GID_INDEX = Trait("GID index of RoCE v2", keys("mlx5_0", 1, 0)[0], _gid_indexes, breaks=True,
                   misses=_names_another_row, expects="ports.gid_index")  # fmt: skip


def _is_fixed(node: NodeFacts) -> bool:
    try:
        index = node.nccl_env.integer(VARIABLE)
    except EvidenceError:
        return False
    return index is not None and index >= 0


@check(
    "fleet.roce-equal",
    title="RoCE's marking and congestion control are the same on all nodes",
    fault="RoCE's marking and congestion control differ on a node",
    impact="slows-job",
    source="NVIDIA MLNX_OFED documentation, RoCE congestion control; majority of at least 3 nodes and 60%",
    fix="Decide which settings are right, write them into the cluster file (`qos.traffic_class`, `qos.cnp_dscp`, "
    "`qos.dcbx`), and set them on all nodes: NCCL_IB_TC or tc/1/traffic_class, /sys/class/net/IF/ecn, `mlnx_qos -d`.",
    action="fix-site",
    answers=("PA-14", "FP-LOSS-2"),
    scope="fleet",
    reads=("file:/sys/kernel/debug/mlx5/*/cc_params/*",),
)
def roce_equal(nodes: Sequence[NodeFacts], sites: Mapping[str, Site]) -> Iterator[Finding]:
    """Compare traffic class, CNP DSCP, DCBX and DCQCN across nodes of one kind.

    ## Why it matters
    A sender that recovers faster than its peers takes their bandwidth, and one that slows down more is starved; CNPs in
    another class arrive late. Each node looks right on its own, and the job runs at the pace of the slowest.

    ## Verdicts
    Nodes that differ from the majority warn, because equality is more important than the value. Nodes whose roce.chain
    breaks at a setting do not vote on it; fleet.roce-ports compares trust, PFC and ECN. Lossy sites are skipped.

    ## False alarms
    NICs of two generations in one class, with different firmware defaults; give each its own class.
    """
    unread: list[str] = []
    why: dict[str, EvidenceError] = {}
    for trait in MARKING:
        refusals = [_refusal(trait, node, sites[node.node]) for node in nodes]
        if all(refusals):
            unread.append(trait.what.removeprefix("RoCE "))
            why[unread[-1]] = next(error for error in refusals if error)
            continue
        yield from equal(nodes, sites, trait)
    if unread:
        first = why[unread[0]]
        yield unknown(f"{', '.join(unread)} could not be read on any node: {first}", evidence=[first.key],
                      fix="see roce.chain of the nodes").on(node.node for node in nodes)  # fmt: skip


def _chains(node: NodeFacts, site: Site) -> tuple[Chain, ...]:
    ports = _ports(node, site)
    return facts.roce_chain.chain.chains(node, ports, policy(site)) if ports else ()


def _shared(chains: Sequence[Chain], name: str) -> str | None:
    """Return the value of a node's ports; None if it does not apply.

    Raises EvidenceError if it is unknown.
    """
    values = set()
    for link in (chain.link(name) for chain in chains):
        if link.state is State.UNKNOWN:
            raise EvidenceError(link.evidence[0], link.reason)
        if link.state is not State.APART:
            values.add(link.compared or link.value)
    return " and ".join(sorted(values)) or None


def _of_link(link: str, what: str) -> Trait:
    """Return the trait that compares the value of one link of the chain."""
    return Trait(f"RoCE {what}", f"dir:{facts.rdma_ports.ROOT}", lambda node, site: _shared(_chains(node, site), link),
                 misses=breaks(link), expects="qos.dcqcn" if link == "DCQCN" else "")  # fmt: skip


MARKING = tuple(_of_link(link, what) for link, what in SHARED.items())


def _refusal(trait: Trait, node: NodeFacts, site: Site) -> EvidenceError | None:
    try:
        standing(trait, node, site)
    except EvidenceError as error:
        return error
    return None
