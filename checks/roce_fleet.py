"""RoCE settings that must be alike on all nodes, whatever they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache

from preflight import facts
from preflight.checks.fleet import Read, equal
from preflight.checks.roce import policy
from preflight.cluster import Site
from preflight.evidence import EvidenceError
from preflight.facts import NodeFacts
from preflight.facts.gids import keys
from preflight.facts.rdma import Port
from preflight.facts.roce_addressing import routable
from preflight.facts.roce_chain import Chain, State
from preflight.model import Finding, Status, check, unknown

VARIABLE = "NCCL_IB_GID_INDEX"

#: What the fleet's nodes must share, by the link of the chain that reads it.
SHARED = {"traffic class": "traffic class", "CNP": "marking of CNPs", "DCBX": "DCBX mode", "DCQCN": "DCQCN setting"}


def _ports(node: NodeFacts, site: Site) -> list[Port]:
    """Return the active RoCE compute ports with an interface here; none on a node without RDMA."""
    if not node.rdma_devices:
        return []
    return [port for port in site.roles(node).compute if port.roce and port.active and port.netdev]


@check(
    "fleet.gid-index",
    title="The routable RoCE v2 address has the same GID index on all nodes",
    source="NCCL user guide, NCCL_IB_GID_INDEX; majority of at least 3 nodes and 60 %",
    fix="Unset NCCL_IB_GID_INDEX with NCCL 2.21 or newer; else bring the odd nodes' addresses up in the others' order "
    "(`show_gids`).",
    answers=("NT-FAB-4",),
    scope="fleet",
)
def gid_index(nodes: Sequence[NodeFacts], sites: Mapping[str, Site]) -> Iterator[Finding]:
    """Compare the rows of the GID tables that hold the ports' RoCE v2 addresses across nodes of the same kind.

    One number in NCCL_IB_GID_INDEX, UCX_IB_GID_INDEX or a benchmark's -x means another address on the odd node, or
    none: connections to it end in a time-out that names no index.

    The odd nodes fail where NCCL_IB_GID_INDEX is set on any node; else they warn, as NCCL finds the row by itself.

    A false alarm: pods of one host, whose rows follow each other; with the variable unset that is no fault.
    """
    first = keys("mlx5_0", 1, 0)[0]

    def read(node: NodeFacts, site: Site) -> str | None:
        indexes = set()
        for port in _ports(node, site):
            found = routable(node.evidence, port)
            if found is None:
                key = keys(port.device, port.number, 0)[0]
                raise EvidenceError(key, f"{port.name} has no RoCE v2 row of an IP address: see roce.chain")
            indexes.add(found.index)
        return " and ".join(map(str, sorted(indexes))) or None

    fixed = any(_is_fixed(node) for node in nodes)
    for finding in equal(nodes, sites, "GID index of RoCE v2", read, first):
        yield finding if fixed else _softened(finding)


def _is_fixed(node: NodeFacts) -> bool:
    try:
        index = node.nccl_env.integer(VARIABLE)
    except EvidenceError:
        return False
    return index is not None and index >= 0


def _softened(finding: Finding) -> Finding:
    return replace(finding, status=Status.WARN) if finding.status is Status.FAIL else finding


@check(
    "fleet.roce-equal",
    title="RoCE's marking and congestion control are the same on all nodes",
    source="NVIDIA MLNX_OFED documentation, RoCE congestion control; majority of at least 3 nodes and 60 %",
    fix="Copy the settings of the other nodes: NCCL_IB_TC or tc/1/traffic_class, /sys/class/net/IF/ecn, `mlnx_qos -d`.",
    answers=("PA-14", "FP-LOSS-2"),
    scope="fleet",
    reads=("file:/sys/kernel/debug/mlx5/*/cc_params/*",),
)
def roce_equal(nodes: Sequence[NodeFacts], sites: Mapping[str, Site]) -> Iterator[Finding]:
    """Compare traffic class, DSCP of notifications, DCBX mode and DCQCN parameters across nodes of the same kind.

    A sender that recovers faster than the others takes their bandwidth, one that slows down more starves; a CNP in
    another class arrives late. Each node looks right by itself, and the job runs at the pace of the worst.

    The odd nodes warn: being equal matters more than the value. PFC, trust and ECN are judged on each node by
    roce.chain, against the cluster file. Sites that are lossy by design are left out.

    A false alarm: NICs of two generations in one class, whose firmware has other defaults; give each a class.
    """
    chains = cache(lambda node: _chains(node, sites[node.node]))
    unread: list[str] = []
    why: dict[str, EvidenceError] = {}
    for link, what in SHARED.items():

        def read(node: NodeFacts, site: Site, link: str = link) -> str | None:
            return _shared(chains(node), link)

        refusals = [_refusal(node, sites[node.node], read) for node in nodes]
        if all(refusals):
            unread.append(what)
            why[what] = next(error for error in refusals if error)
            continue
        for finding in equal(nodes, sites, f"RoCE: {what}", read, f"dir:{facts.rdma.ROOT}"):
            yield _softened(finding)
    if unread:
        first = why[unread[0]]
        yield unknown(f"{', '.join(unread)} could not be read on any node: {first.why}", evidence=[first.key],
                      fix="see roce.chain of the nodes").on(node.node for node in nodes)  # fmt: skip


def _chains(node: NodeFacts, site: Site) -> tuple[Chain, ...]:
    ports = _ports(node, site)
    return facts.roce_chain.chains(node, ports, policy(site)) if ports else ()


def _shared(chains: Sequence[Chain], name: str) -> str | None:
    """Return what the ports of a node have; None where it does not apply. Raises EvidenceError if it is unknown."""
    values = set()
    for link in (chain.link(name) for chain in chains):
        if link.state is State.UNKNOWN:
            raise EvidenceError(link.evidence[0], link.says)
        if link.state is not State.APART:
            values.add(link.value)
    return " and ".join(sorted(values)) or None


def _refusal(node: NodeFacts, site: Site, read: Read) -> EvidenceError | None:
    try:
        read(node, site)
    except EvidenceError as error:
        return error
    return None
