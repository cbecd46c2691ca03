"""What the processes of one host logged about their transport."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from preflight._startup.lightclass import dataclass
from preflight.parsers.nccl_log.model import is_tcp

if TYPE_CHECKING:
    from preflight.parsers.nccl_log import Failure, HostChannels, LogLine, NcclLog, NetChannels, ReportedVariable

#: Maximum number of hosts that the log's parser names per line; a line by this many hosts applies to all.
_NAMED = 20


@dataclass(frozen=True)
class HostStatements:
    """What a log states about the transport of one host."""

    log: NcclLog
    host: str | None  # as NCCL prints it, without a domain; None: the log names no host
    networks: tuple[str, ...]  # networks of its channels; without channel lines, the selected networks
    tcp: int  # channel lines over TCP
    direct: int  # channel lines over RDMA, with GPUDirect
    staged: int  # channel lines over RDMA, without GPUDirect
    ranks: tuple[int, ...]
    has_devices: bool  # whether NCCL listed its RDMA devices

    @property
    def falls_back(self) -> bool:
        """Whether TCP carries the host's traffic, or part of it."""
        return any(is_tcp(name) for name in self.networks)

    def line(self, *failures: str) -> LogLine | None:
        """Return the line of the first of these failures that this host reports, or None."""
        found = (*self.log.failures, *self.log.hints)
        return next((one.line for name in failures for one in found if one.id == name and self.reports(one)), None)

    def reports(self, failure: Failure) -> bool:
        """Return whether a failure names this host, or does not name any host."""
        return not failure.hosts or self.host in failure.hosts or len(failure.hosts) >= _NAMED

    def variable(self, name: str) -> ReportedVariable | None:
        """Return a variable as this host's processes logged it, or None."""
        for one in self.log.environment:
            if one.name == name and (not one.hosts or self.host in one.hosts or len(one.hosts) >= _NAMED):
                return one
        return None


def hosts(log: NcclLog) -> Mapping[str | None, HostStatements]:
    """Return host -> statements, in order; the key is None if the log names no host."""
    ways: dict[str | None, dict[str, None]] = {}
    counts: dict[str | None, list[int]] = {}
    for entry in log.by_host:
        ways.setdefault(entry.host, {})[entry.network] = None
        _count(counts.setdefault(entry.host, [0, 0, 0]), entry)
    chosen: dict[str | None, dict[str, None]] = {}
    for host, network in log.chosen:
        chosen.setdefault(host, {})[network] = None
    ranks: dict[str | None, list[int]] = {}
    for rank, where in log.ranks:
        ranks.setdefault(where, []).append(rank)
    listed = {device.first.host for device in log.ib_devices}
    if not log.hosts:
        total = [0, 0, 0]
        for channel in log.channels:
            _count(total, channel)
        return {
            None: HostStatements(log, None, log.network_names, total[0], total[1], total[2], (), bool(log.ib_devices))
        }
    per_host = bool(ways or chosen)  # up to NCCL 2.6.3 no line names the network: it is the same for all
    everywhere = () if per_host else log.network_names
    found: dict[str | None, HostStatements] = {}
    for host in log.hosts:
        networks = tuple(ways.get(host) or chosen.get(host) or everywhere)
        tcp, direct, staged = counts.get(host, (0, 0, 0))
        found[host] = HostStatements(
            log, host, networks, tcp, direct, staged, tuple(ranks.get(host, ())), host in listed
        )
    return found


def _count(counts: list[int], entry: HostChannels | NetChannels) -> None:
    """Add channels to the count of TCP, of GPUDirect RDMA, or of RDMA without it.

    Channels of truncated lines are not counted.
    """
    if is_tcp(entry.network):
        counts[0] += entry.count
    elif entry.gpudirect is not None:
        counts[1 if entry.gpudirect else 2] += entry.count
