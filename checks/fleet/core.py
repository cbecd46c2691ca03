"""Checks of values that must be equal on all nodes of a class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from preflight import facts
from preflight.checks.comparison.compare import equal
from preflight.checks.comparison.electorate import Trait
from preflight.checks.host import versions
from preflight.checks.rdma import ports as rdma_port
from preflight.checks.rdma import verbs
from preflight.checks.roce.chain import policy
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.node import NodeFacts
from preflight.facts.roce_chain.chain import State
from preflight.model import Finding, check
from preflight.parsers.nvidia.driver_version import driver_version


@check(
    "fleet.driver-equal",
    title="All nodes run the same NVIDIA driver",
    fault="A node runs a different NVIDIA driver",
    impact="slows-job",
    source="NVIDIA data-centre driver documentation; majority of at least 3 nodes and 60%",
    fix="Decide which version is right (`nvidia-smi --query-gpu=driver_version --format=csv`), install it where it is "
    "missing, reboot.",
    action="fix-site",
    answers=("PA-03",),
    scope="fleet",
)
def driver_equal(nodes: Sequence[NodeFacts], sites: Mapping[str, Site]) -> Iterator[Finding]:
    """Compare the version of the loaded NVIDIA driver across nodes of the same kind.

    ## Why it matters
    Ranks on different drivers may take different code paths in CUDA and NCCL: the job fails at start, or one node is
    slower for no visible reason.

    ## Verdicts
    A node with a different version from most nodes fails. Without a majority, all nodes fail, and it is unknown which
    version is right. Nodes that fail versions.driver-files do not vote.

    ## False alarms
    A rolling upgrade, if no job spans upgraded and old nodes.
    """
    yield from equal(nodes, sites, DRIVER)


def _driver(node: NodeFacts, site: Site) -> str | None:
    if not node.gpus_on_bus:
        return None
    try:
        return node.driver.version
    except EvidenceError:
        return node.parsed(DRIVER.key, driver_version)


DRIVER = Trait("NVIDIA driver", "file:/proc/driver/nvidia/version", _driver, breaks=True,
                judged_by=(versions.driver_files,), expects="versions.driver")  # fmt: skip


@check(
    "fleet.mtu-equal",
    title="The compute ports of all nodes have the same MTU",
    fault="The compute ports of a node have a different MTU",
    impact="blocks-job",
    source="InfiniBand path MTU is the smaller of both ends; majority of at least 3 nodes and 60%",
    fix="Decide which MTU is right, write it into the cluster file (`ports.mtu`, `ports.netdev_mtu`), and set it where "
    "it is missing (`ip link set IF mtu …`, or the subnet manager's partition).",
    action="fix-site",
    answers=("NT-FAB-4", "PA-14"),
    scope="fleet",
)
def mtu_equal(nodes: Sequence[NodeFacts], sites: Mapping[str, Site]) -> Iterator[Finding]:
    """Compare the RDMA MTU, and for RoCE the Ethernet MTU, of compute ports.

    Nodes of the same kind are compared.

    ## Why it matters
    Two ends with different MTUs use the smaller one, or cannot connect if an application fixed the MTU; a switch that
    drops the larger packets causes a hang.

    ## Verdicts
    Nodes that fail rdma.active-mtu, rdma.link-layer or the MTU of roce.chain do not have the expected value (the
    cluster file's takes precedence) and do not vote. Of the remaining nodes, those that differ from the majority fail;
    without a majority, all of them fail.

    ## False alarms
    Nodes of two fabrics in one class, each with its own MTU; give each fabric its own class.
    """
    yield from equal(nodes, sites, _MTU)


def _mtus(node: NodeFacts, site: Site) -> str | None:
    if not node.rdma_devices:
        return None
    compute = [port for port in site.roles(node).compute if port.active]
    if not compute:
        raise EvidenceError("dir:/sys/class/infiniband", "no compute port is active")
    if any(port.active_mtu is None for port in compute):
        node.evidence.text(facts.rdma_ports.DEVINFO)
        raise EvidenceError(facts.rdma_ports.DEVINFO, "does not list every compute port")
    values = {_mtu(node, port.active_mtu, port.netdev if port.roce else None) for port in compute}
    return " and ".join(sorted(values))


def _mtu(node: NodeFacts, active_mtu: int | None, netdev: str | None) -> str:
    if netdev is None:
        return f"{active_mtu}"
    if netdev not in node.netdevs:
        raise EvidenceError(f"file:{facts.interfaces.ROOT}/{netdev}/mtu", "was not collected from this node")
    return f"{active_mtu} over {node.netdevs[netdev].mtu}"


def _breaks_chain(node: NodeFacts, site: Site) -> tuple[str, ...]:
    """Return the id ``roce.chain`` if the MTU breaks the chain of a port."""
    ports = [port for port in site.roles(node).compute if port.roce and port.active and port.netdev]
    chains = facts.roce_chain.chain.chains(node, ports, policy(site)) if ports else ()
    broken = any(chain.link(name).state is State.BROKEN for chain in chains for name in ("MTU", "active MTU"))
    return ("roce.chain",) if broken else ()


_MTU = Trait("MTU of the compute ports", facts.rdma_ports.DEVINFO, _mtus, breaks=True,
             judged_by=(verbs.active_mtu, rdma_port.link_layer), misses=_breaks_chain)  # fmt: skip
