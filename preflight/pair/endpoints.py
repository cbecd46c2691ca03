"""Endpoints of a test: device port, address and row of the GID table."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, replace

from preflight.errors import PreflightError
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts import gids, rdma_ports
from preflight.facts.kernel import PEER_MODULES
from preflight.facts.node import NodeFacts
from preflight.parsers.network import listening
from preflight.parsers.nvidia import topology

#: Default port of perftest and ibv_rc_pingpong, which firewalls may allow.
FIRST_PORT = 18515


class EndpointError(PreflightError):
    """A node has no usable endpoint; the text states what is missing."""


@dataclass(frozen=True)
class Wanted:
    """Options of the command line; None means the default."""

    device: str | None = None  # mlx5_0, or mlx5_0:1
    gid_index: int | None = None
    mtu: int | None = None  # RDMA MTU, bytes
    size: int | None = None  # bytes of a message
    port: int | None = None  # TCP port of the server
    at_least_gbps: float | None = None


@dataclass(frozen=True)
class End:
    """One end of a test."""

    node: str
    device: str
    port: int  # of the device, from 1
    rate_gbps: float | None  # line rate, Gb/s
    roce: bool
    software: bool  # Soft-RoCE or similar: its line rate is only nominal
    gid_index: int | None  # row of the GID table; None on InfiniBand
    gid: str  # content of that row, as usually written
    address: str  # IP address of its interface
    interface: str
    interface_mtu: int | None  # bytes
    active_mtu: int | None  # RDMA MTU, bytes
    gpu: str = ""  # PCI address of the GPU whose memory is used; empty for host memory
    dma_buf: bool = False  # whether no peer-memory module is loaded, so that GPU memory needs DMA-BUF

    @property
    def name(self) -> str:
        """The port as NCCL writes it."""
        return f"{self.device}:{self.port}"


def end(node: NodeFacts, site: Site, wanted: Wanted) -> End:
    """Return a node's endpoint; raises EndpointError, or EvidenceError if unknown."""
    port = _port(node, site, wanted.device)
    if port.efa:
        raise EndpointError(
            f"{node.node}: {port.name} is an EFA device, which has no address to connect to: run nccl-tests"
        )
    index, gid = _gid(node, port, wanted.gid_index)
    address = _address(node, port, gid)
    interface = next((name for name, own in node.addresses.of.items() if address in {one.ip for one in own}), "")
    if not interface:
        raise EndpointError(f"{node.node}: no interface has the address {address} of GID {index} of {port.name}")
    netdev = node.netdevs.get(interface)
    return End(
        node.node,
        port.device,
        port.number,
        port.rate_gbps,
        port.roce,
        rdma_ports.is_software(node.evidence, port.device),
        index,
        gid.shown if gid else "",
        str(address),
        interface,
        netdev.mtu if netdev else None,
        port.active_mtu,
    )


def with_gpu(node: NodeFacts, own: End) -> End:
    """Return an endpoint that uses the memory of the GPU nearest to its port.

    Raises EndpointError if there is none.
    """
    addresses = {node.gpu_name(gpu): gpu.address for gpu in node.gpus_on_bus}
    pairs = node.gpu_nic_pairs([own.device])
    if not pairs:
        raise EndpointError(f"{node.node} has no NVIDIA GPU with a PCIe path to {own.device}")
    nearest = min(pairs, key=lambda pair: (topology.RANK.get(pair.code, 99), pair.same_node is not True))
    try:
        dma_buf = node.modules.isdisjoint(PEER_MODULES)
    except EvidenceError:
        dma_buf = False
    return replace(own, gpu=addresses[nearest.gpu], dma_buf=dma_buf)


def _port(node: NodeFacts, site: Site, device: str | None) -> rdma_ports.Port:
    ports = node.rdma_ports
    if not ports:
        raise EndpointError(f"{node.node} has no RDMA device")
    if device is not None:
        if found := [port for port in ports if device in (port.device, port.name)]:
            return next((port for port in found if port.active), found[0])
        raise EndpointError(f"{node.node} has no RDMA device {device}; it has {', '.join(port.name for port in ports)}")
    compute: Sequence[rdma_ports.Port] = site.roles(node).compute or ports
    return next((port for port in compute if port.active), compute[0])


def _gid(node: NodeFacts, port: rdma_ports.Port, index: int | None) -> tuple[int | None, gids.Gid | None]:
    """Return the requested GID row, even if empty, else a routable RoCE v2 row.

    Without a request, IPv4 addresses take precedence; on InfiniBand, both values are None.
    """
    if index is not None:
        try:
            return index, gids.gid(node.evidence, port.device, port.number, index)
        except EvidenceError:
            return index, None  # the test itself will report the error
    if not port.roce:
        return None, None
    rows = []
    for number in gids.COLLECTED_INDEXES:
        try:
            rows.append(gids.gid(node.evidence, port.device, port.number, number))
        except EvidenceError:
            continue
    usable = [row for row in rows if row.type == "RoCE v2" and not row.empty and not row.address.is_link_local]
    best = min(usable, key=lambda row: row.address.ipv4_mapped is None, default=None)
    if best is None:
        raise EndpointError(
            f"{node.node}: {port.name} has no RoCE v2 GID of an IP address; see roce.chain, or use --gid-index"
        )
    return best.index, best


def _address(
    node: NodeFacts, port: rdma_ports.Port, gid: gids.Gid | None
) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return the IP address of this end, from its GID or its interfaces."""
    if gid and not gid.empty and not gid.address.is_link_local:
        return gid.address.ipv4_mapped or gid.address
    known = node.addresses
    names = [*rdma_ports.interfaces(node.evidence, port)]
    if not names:
        names = [name for name in known.of if name not in ("lo",)]
    for name in names:
        if found := known.routable(name):
            return min((one.ip for one in found), key=lambda ip: ip.version)
    raise EndpointError(f"{node.node}: {port.name} and its interfaces have no IP address that another node can reach")


def free_port(server: NodeFacts, wanted: int | None) -> int:
    """Return the TCP port for a server: as requested, else a free one from 18515."""
    if wanted is not None:
        return wanted
    taken: set[int] = set()
    for key in listening.TCP:
        try:
            taken |= server.parsed(key, listening.listening)
        except EvidenceError:
            continue
    return next(port for port in range(FIRST_PORT, 65536) if port not in taken)
