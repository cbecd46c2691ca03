"""Ports at both ends of a failed connection, from a log line and evidence."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from preflight import facts
from preflight._startup.lightclass import dataclass, replace
from preflight.evidence.document import EvidenceError
from preflight.facts.counter_catalogue import CounterKind
from preflight.facts.nccl_root_cause.model import SILENT, NodeEvidence
from preflight.parsers.host.kernel_events import events

if TYPE_CHECKING:
    from preflight.facts.nccl_root_cause.host_statements import HostStatements
    from preflight.facts.node import NodeFacts
    from preflight.facts.rdma_ports import Port
    from preflight.parsers.host.kernel_log import KernelLogLine
    from preflight.parsers.nccl_log import Failure, LogLine
    from preflight.parsers.nccl_log.model import ProcessFailure

#: Device and port in NCCL's messages about a failed ibv_modify_qp (from 2.21 on) and about port errors; a work
#: completion names only the device.
DEVICE = re.compile(r"(?:\bon dev |\bNET/IB ?: )([\w.-]{1,63}):(\d{1,3})(?!\d)")
HCA = re.compile(r"\bhca ([\w.-]{1,63})")

#: A GID after "remote GID " (ibv_modify_qp) or "remoteGids" (work completions, without a blank).
_REMOTE = re.compile(r"\bremote ?Gids? ?([0-9a-fA-F:.]{2,45})", re.IGNORECASE)
_LOCAL = re.compile(r"\blocal ?Gid ?([0-9a-fA-F:.]{2,45})", re.IGNORECASE)


#: Causes at a port, earliest layer first: id -> counters that grew beyond their limits, and words for it. None: the
#: port is not active.
PORT_CAUSES: Mapping[str, tuple[CounterKind, str] | None] = {
    "port-down": None,
    "port-flaps": (CounterKind.FLAP, "went down and came back"),
    "port-damage": (CounterKind.LINK, "damaged packets"),
    "port-loss": (CounterKind.LOSS, "lost packets"),
}
ORDER = tuple(PORT_CAUSES)


@dataclass(frozen=True)
class ConnectionEnd:
    """The port at one end of a connection."""

    node: NodeFacts
    port: Port

    def evidence(self, cause: str) -> NodeEvidence:
        """Return the port's evidence of a cause.

        An active port does not rule out ``port-down``, because it may have been down before.
        """
        counted = PORT_CAUSES[cause]
        if counted is None:
            shown = f"{self.port.name} is {self.port.state_shown}"
            return SILENT if self.port.active else NodeEvidence(True, shown, self.port.evidence[:2])
        kind, words = counted
        growth = self.node.port_growth.get(self.port.name) if self.port.active else None
        grown = [counter for counter in growth.grown(kind) if counter.fails] if growth else []
        if growth is None or not grown:
            return SILENT
        shown = f"{self.port.name} {words} within {growth.seconds:.0f} s ({grown[0].counter.name} +{grown[0].grown})"
        return NodeEvidence(True, shown, (grown[0].key,))

    @property
    def cause(self) -> str:
        """The first cause that the port shows; empty without one."""
        return next((cause for cause in PORT_CAUSES if self.evidence(cause).confirms), "")

    @property
    def went_down(self) -> bool:
        """Whether the kernel log shows that the link of the port went down."""
        names = {name for name in (self.port.netdev, self.port.device) if name}
        lines: list[KernelLogLine] = []
        for log in ("kernel_log", "kernel_notices"):
            with suppress(EvidenceError):
                lines += getattr(self.node, log).lines
        named = ((number, line.at_s, line.text) for number, line in enumerate(lines, 1)
                 if any(name in line.text for name in names))  # fmt: skip
        return any(event.kind == "nic-link-down" and event.device in names for event in events(named))


def remote_gid(message: str) -> ipaddress.IPv6Address | None:
    """Return the peer's GID in a message, or None."""
    return _gid(_REMOTE, message)


def at_port(cause: str) -> Callable[[NodeFacts, HostStatements, LogLine | None], NodeEvidence]:
    """Return a function that looks for a cause at the port that a message names."""

    def examine(node: NodeFacts, host: HostStatements, line: LogLine | None) -> NodeEvidence:
        end = own_end(node, line.message if line else "")
        return end.evidence(cause) if end else SILENT

    return examine


def split(
    failure: Failure, node_of: Callable[[str | None], NodeFacts | None], nodes: Iterable[NodeFacts]
) -> list[tuple[Failure, ConnectionEnd | None]]:
    """Split a failure of connections by the ports that show a cause.

    Connections whose own port shows none, to nodes without such a port, form a separate failure. All remaining
    connections are attributed to the first port. ``nodes`` are those of the log.
    """
    peers = dict(_ends(nodes)) if any(remote_gid(process.line.message) for process in failure.processes) else {}
    causes: dict[tuple[str, str], tuple[ConnectionEnd, list[ProcessFailure]]] = {}
    others: list[tuple[ProcessFailure, ConnectionEnd | None, ConnectionEnd | None]] = []
    for process in failure.processes:
        message, node = process.line.message, node_of(process.line.host)
        own, gid = own_end(node, message) if node else None, remote_gid(message)
        peer = peers.get(gid) if gid else None
        ends = sorted((end for end in (own, peer) if end and end.cause), key=lambda end: ORDER.index(end.cause))
        if ends:
            causes.setdefault((ends[0].node.node, ends[0].port.name), (ends[0], []))[1].append(process)
        else:
            others.append((process, own, peer))
    if not causes:
        return [(failure, None)]
    nodes_of_causes = {name for name, _ in causes}
    apart = [process for process, own, peer in others if own and not (peer and peer.node.node in nodes_of_causes)]
    parts = [(_only(failure, failed), end) for end, failed in causes.values()]
    rest = failure.count - sum(part.count for part, _ in parts) - sum(process.count for process in apart)
    parts[0] = (replace(parts[0][0], count=parts[0][0].count + rest), parts[0][1])
    return [*parts, *([(_only(failure, apart), None)] if apart else [])]


def ends(
    failure: Failure, node_of: Callable[[str | None], NodeFacts | None], nodes: Iterable[NodeFacts]
) -> Iterator[ConnectionEnd]:
    """Yield the known ports at both ends of the failed connections."""
    peers = dict(_ends(nodes)) if any(remote_gid(process.line.message) for process in failure.processes) else {}
    for process in failure.processes:
        message, node = process.line.message, node_of(process.line.host)
        gid = remote_gid(message)
        yield from filter(None, (own_end(node, message) if node else None, peers.get(gid) if gid else None))


def _only(failure: Failure, processes: Sequence[ProcessFailure]) -> Failure:
    """Return the part of a failure that some of its processes logged."""
    first = processes[0]
    hosts = tuple(dict.fromkeys(process.line.host for process in processes if process.line.host))
    count = sum(process.count for process in processes)
    return replace(failure, line=first.line, rank=first.rank, hosts=hosts, count=count, processes=tuple(processes))


def own_end(node: NodeFacts, message: str) -> ConnectionEnd | None:
    """Return the port of a node that a message names by device or GID, or None."""
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
    """Yield each GID of the nodes' ports with its port.

    The GIDs of RoCE ports follow from their IPv4 addresses.
    """
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
