"""The number of a job's ranks and nodes, from NCCL lines."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from preflight.parsers.nccl_log.table_rows import Tables

#: Maximum number of host names with which each name is compared.
_MAX_COMPARED_HOSTS = 1000
#: Minimum number of ranks for which old versions of NCCL printed a ring on several lines.
_RING_SHOWN = 20
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}|[0-9a-fA-F:.]*:[0-9a-fA-F:.]*(?:%\S{1,15})?")


def nnodes_of(table: Tables, hosts: Sequence[str], nranks: int | None) -> int | None:
    """Return the number of nodes that NCCL prints (since 2.20), else that of hosts.

    A single host only counts if all ranks are on it. None if the number is unknown.
    """
    sizes: list[int] = [key[1] for key, _ in table.rows("size")]
    if sizes:
        return max(*sizes, len(hosts))  # NCCL counts nodes connected by NVLink as one
    # a name stands for several hosts if one interface has several addresses
    addresses: dict[object, set[object]] = {}
    for host, interface, address in (key for key, _ in table.rows("bootstrap")):
        addresses.setdefault((host, interface), set()).add(address)
    hidden = max((len(_complete(found)) for found in addresses.values()), default=1)
    if len(hosts) > 1 or hidden > 1:
        return max(len(hosts), hidden)
    ranks = {key[1] for key, _ in table.rows("rank") if key[0] == nranks}
    return 1 if len(hosts) == 1 and nranks is not None and len(ranks) == nranks else None


def job_nodes(table: Tables, nnodes: int | None, nranks: int | None, placed: Collection[int]) -> int | None:
    """Return the number of the job's nodes; None if the lines may show only some.

    ``nnodes`` is the number that the lines show, ``placed`` has the ranks whose hosts they show.
    """
    complete = nranks is not None and (len(placed) >= nranks or nnodes == nranks)
    return nnodes if table.rows("size") or complete or nnodes == 1 else None


def _complete(addresses: set[object]) -> set[object]:
    """Return the complete addresses, or if all are truncated, all of them."""
    return {address for address in addresses if _ADDRESS.fullmatch(str(address))} or addresses


def ranks_of_rings(table: Tables) -> int | None:
    """Return the number of ranks in trees, or in a ring through all ranks, or None.

    A ring on the last line of a text is ignored, since it may be truncated. Up to 2.4, NCCL printed a long ring on
    several lines.
    """
    if tree_ranks := max((key[1] for key, _ in table.rows("trees") if key[1]), default=None):
        return int(tree_ranks)
    rings = [({int(rank) for rank in str(key[2]).split()}, key[1], seen) for key, seen in table.rows("ring")]
    most = max((len(ring) for ring, _, _ in rings), default=0)
    full_rings = [(total, seen) for ring, total, seen in rings if len(ring) == most and ring == set(range(most))]
    sure = len(full_rings) > 1 or any(seen.first.number < table.last_line for _, seen in full_rings)
    return most if most > 1 and sure and (most < _RING_SHOWN or any(total for total, _ in full_rings)) else None


def drop_joined_hosts(hosts: Sequence[str]) -> tuple[str, ...]:
    """Drop names that join two host names, from processes that wrote into one line."""
    return tuple(
        name for name in hosts
        if not any(len(name) > len(other) and name.endswith(other) and other.startswith(name[: -len(other)])
                   for other in hosts[:_MAX_COMPARED_HOSTS])
    )  # fmt: skip
