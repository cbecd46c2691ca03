"""Transports of channels, by network, host, HCA and rail, and within a node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from preflight.parsers.nccl_log import rails
from preflight.parsers.nccl_log.channels import via
from preflight.parsers.nccl_log.counters import LogCounters, Occurrence
from preflight.parsers.nccl_log.model import (
    ChannelCounts,
    Hca,
    HostChannels,
    HostHcas,
    IbDevice,
    LocalChannels,
    NetChannels,
    Rails,
    Use,
    is_tcp,
)
from preflight.parsers.nccl_log.table_rows import Tables

#: Maximum number of hosts that are named for an HCA.
_SHOWN = 20


def net_channels(table: Tables) -> tuple[NetChannels, ...]:
    """Count the connections by network, and with or without GPUDirect RDMA."""
    found: dict[tuple[str, bool | None], NetChannels] = {}
    for (_, _, network, _, _, gpudirect), seen in table.via("NET"):
        known = found.get((network, gpudirect))
        count = seen.count + (known.count if known else 0)
        found[network, gpudirect] = NetChannels(network, gpudirect, count, known.first if known else seen.first)
    return tuple(found.values())


def by_host(table: Tables) -> tuple[HostChannels, ...]:
    """Count the connections by host and network, and those over another rank's NIC."""
    found: dict[tuple[str, str, bool | None], list[int]] = {}
    for (host, _, network, _, proxied, gpudirect), seen in table.via("NET"):
        if host is not None:
            counts = found.setdefault((host, network, gpudirect), [0, 0])
            counts[0] += seen.count
            counts[1] += seen.count if proxied else 0
    return tuple(HostChannels(*key, *counts) for key, counts in found.items())


def merged(rows: Sequence[tuple[Any, Occurrence]], name: str) -> tuple[Use, ...]:
    """Merge rows into one use; return an empty tuple without rows."""
    return (Use(name, sum(seen.count for _, seen in rows), rows[0][1].first),) if rows else ()


def intra_node(table: Tables) -> tuple[Use, ...]:
    """Count the channels within a node, by transport."""
    names = dict.fromkeys(key[1] for key, _ in table.rows("via") if key[1] not in ("NET", "COLLNET"))
    return tuple(use for name in names for use in merged(table.via(name), name))


def local_channels(table: Tables) -> tuple[LocalChannels, ...]:
    """Count the channels within each host, by transport."""
    rows: dict[tuple[str | None, str], list[tuple[Any, Occurrence]]] = {}
    for row in table.rows("via"):
        if (transport := row[0][1]) not in ("NET", "COLLNET"):
            rows.setdefault((row[0][0], transport), []).append(row)
    uses = {place: use for place, own in rows.items() for use in merged(own, place[1])}
    return tuple(LocalChannels(*place, use.count, use.first) for place, use in uses.items())


def ib_devices(table: Tables) -> tuple[IbDevice, ...]:
    """Return the HCA ports that NCCL found on each host."""
    found: dict[tuple[Any, ...], IbDevice] = {}
    for (host, _, name, port, roce, sharp), seen in table.rows("ib"):
        found.setdefault((host, name, port), IbDevice(name, port, roce, sharp, seen.first))
    return tuple(found.values())


def hcas(table: Tables) -> tuple[Hca, ...]:
    """Return the HCAs of all hosts, each with its number of channel lines."""
    used: dict[tuple[Any, Any], int] = {}
    speaking = set()
    for (host, _, network, device, _, _), seen in table.via("NET"):
        if not is_tcp(network):
            used[host, device] = used.get((host, device), 0) + seen.count
            speaking.add(host)
    over: dict[tuple[str, int], dict[Any, int | None]] = {}
    for (host, index, name, port, _, _), _ in table.rows("ib"):
        hosts = over.setdefault((name, port), {})
        if index is None:  # its number in channel lines is unknown
            hosts.setdefault(host, None)
        else:
            hosts[host] = (hosts.get(host) or 0) + used.get((host, index), 0) if host in speaking else None
    found = []
    for (name, port), hosts in over.items():
        counts = [count for count in hosts.values() if count is not None]
        idle = [str(host) for host, count in hosts.items() if count == 0 and host is not None]
        found.append(Hca(name, port, len(hosts), sum(counts) if counts else None, tuple(idle[:_SHOWN])))
    return tuple(found)


def hcas_by_host(table: Tables) -> tuple[HostHcas, ...]:
    """Return the HCAs of each host on which all processes listed the same ones."""
    lists: dict[str, list[tuple[tuple[str, ...], Occurrence]]] = {}
    for (host, names), listed in table.rows("ib list"):
        if host is not None and names:
            lists.setdefault(host, []).append((names, listed))
    local = max(((key[0], key[2]) for key, _ in table.rows("size") if key[2]), default=(0, None))[1]
    return tuple(HostHcas(host, own[0][0], local, own[0][1].first) for host, own in lists.items() if len(own) == 1)


def rails_of(tally: LogCounters) -> Rails | None:
    """Count the connections that cross rails; None without an RDMA connection's ends."""
    seen = crossing = 0
    example = None
    ways = {way: via(way.decode("latin-1")) for way in set(tally.ends.values())}
    for name, sent, received in rails.pairs(tally.ends):
        one, other = ways[sent], ways[received]
        if one is None or other is None or one.network != other.network or is_tcp(one.network):
            continue
        seen += 1
        if one.device != other.device:
            crossing += 1
            text = name.decode("latin-1")
            made = f"{text}: sent over NET/{one.network}/{one.device}, received over NET/{one.network}/{other.device}"
            example = min(example or made, made)
    return Rails(seen, crossing, example, tally.ends_mask != 0) if seen else None


def channel_counts(table: Tables) -> ChannelCounts | None:
    """Return the channels of the communicator with the most, or None."""
    rows = [key for key, _ in table.rows("counts")]
    return ChannelCounts(*max(rows, key=lambda row: tuple(part or 0 for part in row))) if rows else None
