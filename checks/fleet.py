"""What must be equal on all nodes of a class."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from preflight import facts
from preflight.checks import rdma_port, rdma_verbs
from preflight.checks.fleet_traits import is_told
from preflight.checks.roce import policy
from preflight.cluster import Site
from preflight.evidence import EvidenceError
from preflight.facts import NodeFacts
from preflight.facts.fleet import settles
from preflight.facts.roce_chain import State
from preflight.model import Finding, Status, check, failed, passed, skipped, unknown

Read = Callable[[NodeFacts, Site], "str | None"]


def equal(nodes: Sequence[NodeFacts], sites: Mapping[str, Site], what: str, read: Read, key: str) -> Iterator[Finding]:
    """Compare a value across the nodes of each class and part; ``read`` returns None where it does not apply.

    Nodes on which nobody could read it do not vote. A majority makes the others outliers; without
    one the values are a mismatch and the side is unknown.
    """
    groups: dict[tuple[str, str], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    kinds = Counter(_kind(sites[node.node]) for node in nodes)
    unread: dict[str, list[str]] = defaultdict(list)
    without: list[str] = []
    for node in nodes:
        site = sites[node.node]
        try:
            value = node.ballot(f"{what}, {key}", read, node, site)
        except EvidenceError as error:
            unread[f"{error.key} {error.why}"].append(node.node)
            continue
        if value is None:
            without.append(node.node)
        else:
            groups[_kind(site)][value].append(node.node)
    for kind, values in groups.items():
        yield from _vote(what, values, key, kinds[kind])
    if without:
        yield skipped(f"{what}: there is none on these nodes", evidence=[key]).on(without)
    for why, names in unread.items():
        yield unknown(f"{what} could not be read: {why}", evidence=[key]).on(names)


def _kind(site: Site) -> tuple[str, str]:
    """Return class and part of a node; nodes of one kind are compared."""
    return site.class_name, site.part.name if site.part else ""


def _vote(what: str, values: Mapping[str, list[str]], key: str, of_kind: int) -> Iterator[Finding]:
    total = sum(map(len, values.values()))
    usual, holders = max(values.items(), key=lambda item: (len(item[1]), item[0]))
    if total < 2 < of_kind:
        yield skipped(f"{what}: {usual}; the other nodes of its kind have none", evidence=[key]).on(holders)
        return
    if total < 2:
        yield unknown(f"{what}: {usual} on the only node of its kind, nothing to compare with", evidence=[key]).on(
            holders
        )
        return
    if len(values) == 1:
        yield passed(f"{what} is {usual} on all {total} nodes", found=usual, evidence=[key]).on(holders)
        return
    if settles(len(holders), total):
        yield passed(f"{what} is {usual}, as on most nodes", found=usual, evidence=[key]).on(holders)
        for value, names in sorted(values.items()):
            if value != usual:
                yield failed(
                    f"{what} is {value}, {len(holders)} of {total} nodes have {usual}",
                    found=value,
                    expected=f"{usual} ({len(holders)} of {total} nodes of the same kind)",
                    evidence=[key],
                ).on(names)
        return
    listed = "; ".join(f"{value} on {len(names)}" for value, names in sorted(values.items()))
    yield failed(
        f"{what} differs, and no value has a majority: {listed}",
        found=listed,
        expected="one value on all nodes of the same kind; which side is wrong is not known",
        evidence=[key],
    ).on(sorted(name for names in values.values() for name in names))


@check(
    "fleet.driver-equal",
    title="All nodes run the same NVIDIA driver",
    source="NVIDIA data-centre driver documentation; majority of at least 3 nodes and 60 %",
    fix="`nvidia-smi --query-gpu=driver_version --format=csv`; install the version of the others on the odd "
    "nodes, reboot.",
    answers=("PA-03",),
    scope="fleet",
)
def driver_equal(nodes: Sequence[NodeFacts], sites: Mapping[str, Site]) -> Iterator[Finding]:
    """Compare the version of the loaded NVIDIA driver across nodes of the same kind.

    Ranks on different drivers take different code paths in CUDA and NCCL: the job fails in its start,
    or one node is slower for no visible cause.

    A node whose version differs from that of a majority fails; where two nodes differ, both do.

    A false alarm: nodes that are being upgraded in turn, and are not in one job while they differ.
    """
    key = "file:/proc/driver/nvidia/version"

    def read(node: NodeFacts, site: Site) -> str | None:
        if not node.gpus_on_bus:
            return None
        try:
            return node.driver.version
        except EvidenceError:
            return node.parsed(key, facts.gpu.kernel_driver_version)

    yield from equal(nodes, sites, "NVIDIA driver", read, key)


@check(
    "fleet.mtu-equal",
    title="The compute ports of all nodes have the same MTU",
    source="InfiniBand path MTU is the smaller of both ends; majority of at least 3 nodes and 60 %",
    fix="Set the odd nodes' MTU to the others' (`ip link set IF mtu …`, or the subnet manager's partition).",
    answers=("NT-FAB-4", "PA-14"),
    scope="fleet",
)
def mtu_equal(nodes: Sequence[NodeFacts], sites: Mapping[str, Site]) -> Iterator[Finding]:
    """Compare the active MTU, and under RoCE the Ethernet MTU, of compute ports across nodes of the same kind.

    Two ends with different MTUs use the smaller one, or fail where an application fixed it; a switch
    that drops the larger packets makes it a hang.

    The odd nodes of a majority fail. What rdma.active-mtu or roce.chain say of a node, judged against the cluster
    file, is not said again.

    A false alarm: nodes of two fabrics in one class, each with an MTU of its own; give each fabric a class.
    """

    def read(node: NodeFacts, site: Site) -> str | None:
        if not node.rdma_devices:
            return None
        compute = [port for port in site.roles(node).compute if port.active]
        if not compute:
            raise EvidenceError("dir:/sys/class/infiniband", "no compute port is active")
        if any(port.active_mtu is None for port in compute):
            node.evidence.text(facts.rdma.DEVINFO)
            raise EvidenceError(facts.rdma.DEVINFO, "does not list every compute port")
        values = {_mtu(node, port.active_mtu, port.netdev if port.roce else None) for port in compute}
        return " and ".join(sorted(values))

    for finding in equal(nodes, sites, "MTU of the compute ports", read, facts.rdma.DEVINFO):
        yield from _untold(finding, {node.node: node for node in nodes if node.node in finding.nodes}, sites)


def _untold(finding: Finding, nodes: Mapping[str, NodeFacts], sites: Mapping[str, Site]) -> Iterator[Finding]:
    """Yield a finding without the nodes that miss the cluster file's MTU, of which their own checks say so."""
    if finding.status is not Status.FAIL:
        yield finding
        return
    told = {name for name, node in nodes.items() if _is_told(node, sites[name])}
    if left := [name for name in finding.nodes if name not in told]:
        yield finding.on(left)
    if told:
        said = "not the cluster file's (see rdma.active-mtu, rdma.link-layer or roce.chain)"
        yield skipped(f"MTU of the compute ports: {said}", evidence=finding.evidence).on(sorted(told))


def _is_told(node: NodeFacts, site: Site) -> bool:
    """Whether a check of the node holds its MTU, or its link layer, against what the cluster file says."""
    wanted = ((rdma_verbs.active_mtu, site.mtu), (rdma_port.link_layer, site.link_layer))
    by = [check for check, said in wanted if said.value]
    return is_told(by, node, site) or bool((site.mtu.value or site.netdev_mtu.value) and _breaks(node, site))


def _breaks(node: NodeFacts, site: Site) -> bool:
    """Whether roce.chain breaks at a port's MTU."""
    ports = [port for port in site.roles(node).compute if port.roce and port.active and port.netdev]
    chains = facts.roce_chain.chains(node, ports, policy(site)) if ports else ()
    return any(chain.link(name).state is State.BROKEN for chain in chains for name in ("MTU", "active MTU"))


def _mtu(node: NodeFacts, active_mtu: int | None, netdev: str | None) -> str:
    if netdev is None:
        return f"{active_mtu}"
    if netdev not in node.netdevs:
        raise EvidenceError(f"file:{facts.net.ROOT}/{netdev}/mtu", "was never asked of this node")
    return f"{active_mtu} over {node.netdevs[netdev].mtu}"
