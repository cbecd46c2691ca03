"""What must be equal on all nodes of a class."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

from preflight import facts
from preflight.cluster import Site
from preflight.evidence import EvidenceError
from preflight.facts import NodeFacts
from preflight.model import Finding, check, failed, passed, skipped, unknown

#: A value is the reference if at least this share of at least three nodes has it.
MAJORITY, QUORUM = 0.6, 3

Read = Callable[[NodeFacts, Site], "str | None"]


def equal(nodes: Sequence[NodeFacts], sites: Mapping[str, Site], what: str, read: Read, key: str) -> Iterator[Finding]:
    """Compare a value across the nodes of each class and part; ``read`` returns None where it does not apply.

    Nodes on which nobody could read it do not vote. A majority makes the others outliers; without
    one the values are a mismatch and the side is unknown.
    """
    groups: dict[Hashable, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    unread: dict[str, list[str]] = defaultdict(list)
    without: list[str] = []
    for node in nodes:
        site = sites[node.node]
        try:
            value = read(node, site)
        except EvidenceError as error:
            unread[f"{error.key} {error.why}"].append(node.node)
            continue
        if value is None:
            without.append(node.node)
        else:
            groups[site.class_name, site.part.name if site.part else ""][value].append(node.node)
    for values in groups.values():
        yield from _vote(what, values, key)
    if without:
        yield skipped(f"{what}: there is none on these nodes", evidence=[key]).on(without)
    for why, names in unread.items():
        yield unknown(f"{what} could not be read: {why}", evidence=[key]).on(names)


def _vote(what: str, values: Mapping[str, list[str]], key: str) -> Iterator[Finding]:
    total = sum(map(len, values.values()))
    usual, holders = max(values.items(), key=lambda item: (len(item[1]), item[0]))
    if total < 2:
        yield unknown(f"{what}: {usual} on the only node of its kind, nothing to compare with", evidence=[key]).on(
            holders
        )
        return
    if len(values) == 1:
        yield passed(f"{what} is {usual} on all {total} nodes", found=usual, evidence=[key]).on(holders)
        return
    if total >= QUORUM and len(holders) / total >= MAJORITY:
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
    fix="Bring the odd nodes to the version of the others and reboot them.",
    answers=("PA-03",),
    scope="fleet",
)
def driver_equal(nodes: Sequence[NodeFacts], sites: Mapping[str, Site]) -> Iterator[Finding]:
    """Compare the version of the loaded NVIDIA driver across nodes of the same kind.

    Ranks on different drivers take different code paths in CUDA and NCCL: the job fails in its start,
    or one node is slower for no visible cause.
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
    """

    def read(node: NodeFacts, site: Site) -> str | None:
        if not node.rdma_devices:
            return None
        compute = [port for port in site.roles(node).compute if port.active]
        if not compute:
            raise EvidenceError("dir:/sys/class/infiniband", "no compute port is active")
        if any(port.active_mtu is None for port in compute):
            node.evidence.text("cmd:ibv_devinfo")
            raise EvidenceError("cmd:ibv_devinfo", "does not list every compute port")
        values = {_mtu(node, port.active_mtu, port.netdev if port.roce else None) for port in compute}
        return " and ".join(sorted(values))

    yield from equal(nodes, sites, "MTU of the compute ports", read, "cmd:ibv_devinfo")


def _mtu(node: NodeFacts, active_mtu: int | None, netdev: str | None) -> str:
    if netdev is None:
        return f"{active_mtu}"
    if netdev not in node.netdevs:
        raise EvidenceError(f"file:{facts.net.ROOT}/{netdev}/mtu", "was never asked of this node")
    return f"{active_mtu} over {node.netdevs[netdev].mtu}"
