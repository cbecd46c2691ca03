"""The facts of a log as JSON: part "nccl-log" of ``preflight read --json``.

A fact that is not in the text is null; an empty list means that the log shows no such item.
"""

from __future__ import annotations

from typing import Any

from preflight.parsers.nccl_log.model import Failure, NcclLog, is_tcp

#: Maximum number of GPUs in a machine.
_MOST_GPUS = 16
#: Networks that use verbs; the list of devices shows their link layer.
_VERBS = ("IB", "IBext", "UCX", "gIB")


def document(log: NcclLog) -> dict[str, Any]:
    """Return the facts of a log, ready for JSON."""
    loaded = [plugin.name for plugin in log.plugins if plugin.state == "loaded" and plugin.name]
    network = log.networks[0].name if log.networks else next(iter(log.network_names), None)
    counts = log.channel_counts
    return {
        "nccl_version": log.nccl_version,
        "nccl_versions": [use.name for use in log.versions],
        "cuda_build": log.built_for[0].name if log.built_for else None,
        "cuda_driver": log.cuda_driver,
        "nranks": log.nranks,
        "nnodes": log.job_nodes,
        "hosts": list(log.hosts),
        "network": network,
        "plugin": loaded[0] if loaded else None,
        "plugins": [{"state": p.state, "name": p.name, "line": p.first.number} for p in log.plugins],
        "transports": {"inter_node": inter_node(log), "intra_node": intra_node(log)},
        "net_channels": [{"network": c.network, "gpudirect": c.gpudirect, "count": c.count} for c in log.channels],
        "by_host": [
            {"host": h.host, "network": h.network, "gpudirect": h.gpudirect, "count": h.count, "pxn": h.proxied}
            for h in log.by_host
        ],
        "intra_channels": {use.name: use.count for use in log.intra_node},
        "gpudirect_rdma": _gpudirect(log),
        "gpudirect_rdma_channels": _gpudirect_channels(log),
        "pxn_channels": log.proxied if log.channels else None,
        "rails": None if log.rails is None else {"seen": log.rails.seen, "crossing": log.rails.crossing},
        "channels": None if counts is None else vars_of(counts),
        "ring_channels": log.ring_channels,
        "tree_channels": log.tree_channels,
        "rings": list(log.rings),
        "hcas": list(dict.fromkeys(hca.name for hca in log.hcas)),
        "hca_ports": [
            {"name": h.name, "port": h.port, "hosts": h.hosts, "channels": h.channels, "unused_on": list(h.unused_on)}
            for h in log.hcas
        ],
        "link_layers": sorted({"RoCE" if device.roce else "IB" for device in log.ib_devices}),
        "socket_interfaces": list(log.socket_interfaces or log.bootstrap_interfaces),
        "nvls": _nvls(log),
        "sharp": _sharp(log),
        "mnnvl": None if log.mnnvl is None else int(log.mnnvl.name),
        "env": {variable.name: variable.value for variable in reversed(log.environment)},
        "env_differs": sorted({v.name for v in log.environment if _values(log, v.name) > 1}),
        "affinity": [{"host": a.host, "gpu": a.gpu, "cpus": a.cpus} for a in log.affinity],
        "communicators": [vars_of(communicators) for communicators in log.communicators],
        "missing_ranks": [{"rank": m.rank, "host": m.host, "why": m.why} for m in log.missing],
        "warnings": [{"line": w.number, "host": w.host, "time": w.time, "text": w.message} for w in log.warnings],
        "failures": [_failure(failure) for failure in log.failures],
        "hints": [_failure(failure) for failure in log.hints],
        "notes": [*log.unread, *log.notes],
    }


def inter_node(log: NcclLog) -> list[str]:
    """Return the transports between nodes, from the channels or the chosen network.

    Empty if the job has only one node.
    """
    names = list(log.network_names) if log.channels or log.nnodes != 1 else []
    ways = dict.fromkeys(way for name in names for way in _layers(log, name))
    if _between_nodes(log):
        ways["MNNVL"] = None
    if any(use.name == "COLLNET" for use in log.collnet):
        ways["SHARP"] = None
    return list(ways)


def intra_node(log: NcclLog) -> list[str]:
    """Return the transports within a node."""
    between = _between_nodes(log)
    ways = dict.fromkeys(
        use.name.partition("/")[0] for use in log.intra_node if not (between and use.name == "P2P/MNNVL")
    )
    if log.nvls is not None:
        ways["NVLS"] = None
    return list(ways)


def _between_nodes(log: NcclLog) -> bool:
    """Return whether NVLink connects nodes.

    If so, NCCL counts connected nodes as one, and uses the same transport within each of them.
    """
    several = len(log.hosts) > 1 or (log.nnodes or 0) > 1 or (log.nranks or 0) > _MOST_GPUS
    return several and any(use.name == "P2P/MNNVL" for use in log.intra_node)


def vars_of(entry: Any) -> dict[str, Any]:
    """Return the fields of a small record."""
    return {name: getattr(entry, name) for name in entry.__dataclass_fields__}


def _layers(log: NcclLog, network: str) -> list[str]:
    if is_tcp(network):
        return ["Socket"]
    if not network.startswith(_VERBS):
        return [network]
    layers = ["RoCE" if device.roce else "IB" for device in log.ib_devices]
    return list(dict.fromkeys(layers)) or ["IB" if network == "IB" else network]


def _gpudirect(log: NcclLog) -> bool | None:
    """Return whether all RDMA channels use GPUDirect RDMA.

    None if the log has no network channels, or only TCP, or if lines are truncated before the word that shows it.
    """
    if all(is_tcp(channel.network) for channel in log.channels):
        return None
    states = {channel.gpudirect for channel in log.channels}
    return False if False in states else None if None in states else True


def _gpudirect_channels(log: NcclLog) -> dict[str, int] | None:
    """Return the number of network channels with and without GPUDirect RDMA.

    None if the log has no network channels.
    """
    if not log.channels:
        return None
    counts = {state: sum(c.count for c in log.channels if c.gpudirect is state) for state in (True, False)}
    return {"with": counts[True], "without": counts[False]}


def _nvls(log: NcclLog) -> bool | None:
    if log.nvls is not None:
        return True
    if log.channel_counts is not None and log.channel_counts.nvls == 0:
        return False
    return False if log.nvls_support is False else None


def _sharp(log: NcclLog) -> bool | None:
    if any(use.name == "COLLNET" for use in log.collnet):
        return True
    if log.channels or log.variable("NCCL_COLLNET_ENABLE") is not None:
        return False
    return None


def _values(log: NcclLog, name: str) -> int:
    return len({variable.value for variable in log.environment if variable.name == name})


def _failure(failure: Failure) -> dict[str, Any]:
    return {
        "id": failure.id,
        "layer": failure.layer,
        "severity": failure.severity,
        "echo": failure.echo,
        "rank": failure.rank,
        "host": failure.host,
        "hosts": list(failure.hosts),
        "line": failure.line.number,
        "file": failure.line.file or None,
        "count": failure.count,
        "text": failure.line.message,
        "cause": list(failure.cause),
        "remedy": list(failure.remedy),
        "collect": list(failure.collect),
    }
