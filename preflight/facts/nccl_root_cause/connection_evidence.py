"""Ports at both ends of a failed connection, from a log line and evidence."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from preflight import facts
from preflight._startup.lightclass import dataclass, replace
from preflight.evidence.document import EvidenceError
from preflight.facts.nccl_root_cause.model import SILENT, NodeEvidence

if TYPE_CHECKING:
    from preflight.facts.nccl_root_cause.host_statements import HostStatements
    from preflight.facts.node import NodeFacts
    from preflight.facts.rdma_ports import Port
    from preflight.parsers.nccl_log import Failure, LogLine
    from preflight.parsers.nccl_log.model import ProcessFailure

#: As NCCL's messages of a failed ibv_modify_qp (from 2.21 on) and of port errors name them; a work completion names the
#: device only.
DEVICE = re.compile(r"(?:\bon dev |\bNET/IB ?: )([\w.-]{1,63}):(\d{1,3})(?!\d)")
HCA = re.compile(r"\bhca ([\w.-]{1,63})")

#: A GID after "remote GID " (ibv_modify_qp) or "remoteGids" (work completions, without a blank).
_REMOTE = re.compile(r"\bremote ?Gids? ?([0-9a-fA-F:.]{2,45})", re.IGNORECASE)
_LOCAL = re.compile(r"\blocal ?Gid ?([0-9a-fA-F:.]{2,45})", re.IGNORECASE)


@dataclass(frozen=True)
class ConnectionEnd:
    """A port of a connection."""

    node: NodeFacts
    port: Port

    @property
    def evidence(self) -> NodeEvidence:
        """The port as the cause of a failure; an active one may have been down."""
        if self.port.active:
            return SILENT
        return NodeEvidence(True, f"{self.port.name} is {self.port.state_shown}", self.port.evidence[:2])


def remote_gid(message: str) -> ipaddress.IPv6Address | None:
    """Return the peer's GID in a message."""
    return _gid(_REMOTE, message)


def port_down(node: NodeFacts, host: HostStatements, line: LogLine | None) -> NodeEvidence:
    """Check the state of the port that a message names."""
    end = own_end(node, line.message if line else "")
    return end.evidence if end else SILENT


def split(
    failure: Failure, node_of: Callable[[str | None], NodeFacts | None], nodes: Iterable[NodeFacts]
) -> list[tuple[Failure, ConnectionEnd | None]]:
    """Split a failure of connections by the ports that are down at one of their ends.

    A connection whose own port is up, to a node without such a port, is a failure of its own; what remains is
    attributed to the first port. ``nodes`` are those of the log.
    """
    peers = dict(_ends(nodes)) if any(remote_gid(process.line.message) for process in failure.processes) else {}
    down: dict[tuple[str, str], tuple[ConnectionEnd, list[ProcessFailure]]] = {}
    others: list[tuple[ProcessFailure, ConnectionEnd | None, ConnectionEnd | None]] = []
    for process in failure.processes:
        message, node = process.line.message, node_of(process.line.host)
        own, gid = own_end(node, message) if node else None, remote_gid(message)
        peer = peers.get(gid) if gid else None
        dead = next((end for end in (own, peer) if end and not end.port.active), None)
        if dead:
            down.setdefault((dead.node.node, dead.port.name), (dead, []))[1].append(process)
        else:
            others.append((process, own, peer))
    if not down:
        return [(failure, None)]
    nodes_down = {name for name, _ in down}
    apart = [process for process, own, peer in others if own and not (peer and peer.node.node in nodes_down)]
    parts = [(_only(failure, failed), end) for end, failed in down.values()]
    rest = failure.count - sum(part.count for part, _ in parts) - sum(process.count for process in apart)
    parts[0] = (replace(parts[0][0], count=parts[0][0].count + rest), parts[0][1])
    return [*parts, *([(_only(failure, apart), None)] if apart else [])]


def _only(failure: Failure, processes: Sequence[ProcessFailure]) -> Failure:
    """Return a failure in the lines of some processes."""
    first = processes[0]
    hosts = tuple(dict.fromkeys(process.line.host for process in processes if process.line.host))
    count = sum(process.count for process in processes)
    return replace(failure, line=first.line, rank=first.rank, hosts=hosts, count=count, processes=tuple(processes))


def own_end(node: NodeFacts, message: str) -> ConnectionEnd | None:
    """Return the port of a node that a message names, by its device or its GID."""
    named = DEVICE.search(message)
    device = named or HCA.search(message)
    if device is None:
        local = _gid(_LOCAL, message)
        return next((end for gid, end in _ends([node]) if gid == local), None) if local else None
    number = int(named[2]) if named else None
    try:
        ports = [port for port in node.rdma_ports if port.device == device[1] and number in (None, port.number)]
    except EvidenceError:
        return None
    return ConnectionEnd(node, ports[0]) if len(ports) == 1 else None


def _ends(nodes: Iterable[NodeFacts]) -> Iterator[tuple[ipaddress.IPv6Address, ConnectionEnd]]:
    """Yield the GIDs of all ports of nodes; for RoCE, those of the addresses."""
    for node in nodes:
        try:
            for port in node.rdma_ports:
                yield from ((gid, ConnectionEnd(node, port)) for gid in _gids(node, port))
        except EvidenceError:
            continue


def _gids(node: NodeFacts, port: Port) -> Iterator[ipaddress.IPv6Address]:
    if port.infiniband:
        yield facts.gids.gid(node.evidence, port.device, port.number, 0).address
    elif port.netdev:
        yield from (ipaddress.IPv6Address(f"::ffff:{own.ip}") for own in node.addresses.ipv4(port.netdev))


def _gid(pattern: re.Pattern[str], message: str) -> ipaddress.IPv6Address | None:
    named = pattern.search(message)
    try:
        return ipaddress.IPv6Address(named[1]) if named else None
    except ValueError:
        return None
