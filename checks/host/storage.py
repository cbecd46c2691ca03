"""Check of network storage on the compute fabric."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address
from typing import Any

from preflight.checks.applicability import efa_only, failing, no_rdma
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts import addresses
from preflight.facts.network_mounts import MOUNTS, IpAddress, Storage, nvme, parse_mounts
from preflight.facts.node import NodeFacts
from preflight.facts.system_settings import vlans
from preflight.model import Finding, check, counted, failed, passed, skipped, some_of, unknown, warned

_FIND_INTERFACE = (
    "`ip route get SERVER` names the interface; GPFS: `mmdiag --network`, BeeGFS: `beegfs-net`, Weka: `weka local`"
)


def no_network_mount(node: NodeFacts, site: Site) -> Finding | None:
    """Skip a node without network mounts, or whose EFA ports have no interfaces."""
    if not _mounts(node):
        return skipped("nothing is mounted over a network", evidence=[MOUNTS])
    return efa_only(site.roles(node).compute, "they have no network interface")


@check(
    "storage.network",
    title="No storage is mounted over the compute fabric",
    fault="Storage is mounted over the compute fabric",
    impact="slows-job",
    source="proc_pid_mountinfo(5), nfs(5), sysfs-class-nvme; common practice: separate backend and storage networks",
    fix="Run `ip route get SERVER`; mount from an address on the storage or frontend network, or route the "
    "servers' network over it.",
    action="fix-site",
    answers=("AN-2",),
    reads=("file:/sys/class/nvme/*/transport", "file:/sys/class/nvme/*/address"),
    gating=False,  # slows jobs but stops none
    unless=(no_rdma, no_network_mount),
)
def network(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the interface to each storage server with the compute ports.

    ## Why it matters
    Checkpoints or a data loader on the same ports as gradients collide with them in bursts, and every rank waits for
    the rank with the busy port.

    ## Verdicts
    The address of the server (NFS, Lustre, Ceph, SMB, NVMe over TCP and RDMA) is looked up in the kernel's main
    routing table. A route over a compute port warns, or fails if the cluster file names compute and storage ports. A
    server without a known address (a host name, GPFS, BeeGFS) is unknown, because no name is resolved. So is every
    mount in a container, because the host's routes are not visible. Without a network mount, the check does not apply.

    ## False alarms
    Policy routing (`ip rule`), or a client that selects an interface itself (LNet, Weka), may use a route that is not
    in the main table; a small site may have one network for everything.
    """
    found, roles = _mounts(node), site.roles(node)
    if node.in_container:
        yield unknown(f"the host's routes to {counted(len(found), 'network mount')} are not visible in a container",
                      found=_listed(found), evidence=[MOUNTS], fix="check on the host")  # fmt: skip
        return
    compute = {port.netdev: port.name for port in roles.compute if port.netdev}
    ports = site.members.ports
    report: Any = failed if ports.compute is not None and ports.storage else warned
    if not roles.known_from:
        report = failing(roles, site)
    apart, silent = list[Storage](), list[Storage]()
    for one in found:
        ways = _ways(node, one)
        over = sorted(compute[name] for name in ways or () if name in compute)
        if ways and over:
            yield report(f"{one.kind} {one.source} is reached over the compute port {over[0]}", subject=one.place,
                      found=", ".join(sorted(ways)), expected="an interface other than a compute port",
                      evidence=[one.evidence, addresses.ROUTES])  # fmt: skip
        else:
            (apart if ways else silent).append(one)
    if silent:
        yield unknown(f"the route to {some_of(len(silent), len(found), 'network mount')} is not known",
                      found=_listed(silent), evidence=[silent[0].evidence], fix=_FIND_INTERFACE)  # fmt: skip
    if apart:
        message = (
            f"no compute port is used to reach "
            f"{'the only network mount' if len(apart) == 1 else f'any of {len(apart)} network mounts'}"
        )
        yield passed(message, found=_listed(apart), evidence=[apart[0].evidence, addresses.ROUTES])  # fmt: skip


def _mounts(node: NodeFacts) -> tuple[Storage, ...]:
    return (*node.parsed(MOUNTS, parse_mounts), *nvme(node.evidence))


def _listed(found: tuple[Storage, ...] | list[Storage]) -> str:
    more = f" and {len(found) - 4} more" if len(found) > 4 else ""
    return ", ".join(f"{one.kind} {one.source}" for one in found[:4]) + more


def _ways(node: NodeFacts, storage: Storage) -> frozenset[str]:
    """Return the interfaces that lead to the servers, and those below them.

    Empty if the route to any server is unknown.
    """
    ways: set[str] = set()
    for server in storage.servers:
        names = _interfaces(node, server)
        if not names:
            return frozenset()
        ways.update(below for name in names for below in _below(node, name))
    return frozenset(ways)


def _interfaces(node: NodeFacts, server: IpAddress) -> tuple[str, ...]:
    """Return the interfaces that lead to an address.

    IPv6 routes are not collected, so for an IPv6 address, only the networks of this node count.
    """
    if not isinstance(server, IPv4Address):
        return node.addresses.beside(server)
    table = node.parsed(addresses.ROUTES, addresses.table)
    return table.to(server, shortest=1) or node.addresses.beside(server) or table.to(server)


def _below(node: NodeFacts, name: str) -> Iterator[str]:
    """Yield an interface and those below it.

    Below a VLAN or partition is its parent; below a bond are its links.
    """
    yield name
    try:
        parent = node.parsed("file:/proc/net/vlan/config", vlans).get(name, (0, ""))[1]
    except EvidenceError:
        parent = ""
    base = parent or name.partition(".")[0]
    if base != name:
        yield base
    try:
        yield from node.evidence.text(f"file:/sys/class/net/{base}/bonding/slaves").split()
    except EvidenceError:
        return
