"""Conversion of a log's counters to the facts of the log."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from preflight.parsers.nccl_log.counters import ENDS_SAMPLED_NOTE, LogCounters
from preflight.parsers.nccl_log.failures import failures
from preflight.parsers.nccl_log.job_size import drop_joined_hosts, job_nodes, nnodes_of, ranks_of_rings
from preflight.parsers.nccl_log.model import (
    Affinity,
    LogLine,
    NcclLog,
    NetChannels,
    PluginStatus,
    ReportedVariable,
    Use,
    is_tcp,
)
from preflight.parsers.nccl_log.ranks import communicators, missing, ranks_of, unfinished
from preflight.parsers.nccl_log.table_rows import Tables
from preflight.parsers.nccl_log.transports import (
    by_host,
    channel_counts,
    hcas,
    hcas_by_host,
    ib_devices,
    intra_node,
    local_channels,
    merged,
    net_channels,
    rails_of,
)

#: Maximum number of hosts that are named for a variable.
_SHOWN = 20
_RINGS_SHOWN = 64
_MAX_GPUDIRECT_LINES = 1000

#: Messages of frameworks (PyTorch, vLLM, XLA, CuPy) about NCCL failures, which may occur without NCCL lines.
FRAMEWORK = re.compile(
    r"ProcessGroupNCCL\.cpp\b|\bDist(?:Backend|Store|Network)Error\b|\[c10d\] The client socket has timed out"
    r"|\bDetected mismatch between collectives on ranks\b"
    r"|(?:^|\] ?)Watchdog caught collective|Watchdog caught collective operation timeout: ?WorkNCCL"
    r"|\b(?:NCCL|Nccl) [Ee]rror(?: in\b|, | ?(?:code )?\d{0,3} ?[:(])|\bNCCL operation \w+\(.{0,200}\) failed"
    r"|\bnccl[A-Z]\w+ failed: |\bnccl(?:\w{1,20}Error|InvalidUsage|InvalidArgument): |\bNCCL_ERROR_\w+: "
    r"|\bNCCL failure: |\bWorkNCCL\(SeqNum=\d"
)


def summarize(tally: LogCounters) -> NcclLog | None:
    """Return the facts of a log; None without an NCCL line or NCCL failure."""
    if not tally.lines and not _of_framework(tally):
        return None
    table = Tables(tally)
    versions, networks, channels = table.uses("version"), table.uses("network"), net_channels(table)
    sockets = table.rows("socket")
    if versions and _numbers(versions[0].name) < (2, 6, 4) and not networks:
        # up to 2.6.3, "Using network" is not printed; NCCL uses TCP if it found no InfiniBand device
        chosen, rows = ("IB", table.rows("ib")) if table.rows("ib") else ("Socket", sockets)
        networks = tuple(Use(chosen, seen.count, seen.first) for _, seen in rows[:1])
    members = ranks_of(tally)
    sizes = [*table.rows("rank"), *table.rows("collective size")]
    nranks = max((key[0] for key, _ in sizes), default=None)
    nranks = ranks_of_rings(table) if nranks is None else nranks
    hosts = drop_joined_hosts([str(key[0]) for key, _ in table.rows("host")])
    named = frozenset(hosts)
    nnodes = nnodes_of(table, hosts, nranks)
    obstacles = _obstacles(table, tally)
    found, hints = failures(tally, _conditions(networks, channels, nnodes), members)
    warnings = _in_order(tally.warnings)
    rings = [(key, seen) for key, seen in table.rows("ring") if len(str(key[2]).split()) > 1]
    longest = max((len(str(key[2]).split()) for key, _ in rings), default=0)
    support = {key[1] for key, _ in table.rows("nvls support")}
    return NcclLog(
        nccl_version=versions[0].name if versions else None,
        versions=versions,
        built_for=table.uses("built"),
        cuda_drivers=tuple(_driver(str(key[0])) for key, _ in table.rows("driver")),
        nranks=nranks,
        nnodes=nnodes,
        job_nodes=job_nodes(table, nnodes, nranks, members.known),
        hosts=hosts,
        ranks=tuple(sorted((rank, who[0]) for rank, who in members.known.items() if who[0] in named)),
        networks=networks,
        chosen=tuple((str(key[0]), str(key[1])) for key, _ in table.rows("chosen") if key[0] is not None),
        plugins=tuple(
            PluginStatus(str(k[0]), None if k[1] is None else str(k[1]), s.first, s.count)
            for k, s in table.rows("plugin")
        ),
        channels=channels,
        by_host=by_host(table),
        intra_node=intra_node(table),
        local=local_channels(table),
        collnet=(*merged(table.via("COLLNET"), "COLLNET"), *table.uses("sharp")),
        proxied=sum(seen.count for key, seen in table.via("NET") if key[4]),
        rails=rails_of(tally),
        rings=tuple(str(k[2]) for k, _ in sorted(rings, key=lambda r: r[0][0]) if len(str(k[2]).split()) == longest)[
            :_RINGS_SHOWN
        ],
        ring_channels=max((key[1] or key[0] + 1 for key, _ in rings), default=None),
        tree_channels=max((key[0] for key, _ in table.rows("trees")), default=None),
        channel_counts=channel_counts(table),
        nvls=next((seen.first for _, seen in table.rows("nvls")), None),
        nvls_support=bool(support.pop()) if len(support) == 1 else None,
        mnnvl=next(iter(table.uses("clique")), None),
        ib_devices=ib_devices(table),
        hcas=hcas(table),
        hcas_by_host=hcas_by_host(table),
        no_device_found=next((line for line in obstacles if "No device found" in line.message), None),
        socket_interfaces=tuple(str(key[0]) for key, _ in sockets),
        bootstrap_interfaces=_outside_interfaces(table),
        environment=_environment(table),
        affinity=tuple(
            Affinity(key[0], key[1], key[2])
            for key, _ in sorted(table.rows("affinity"), key=lambda r: (str(r[0][0]), r[0][1]))
        ),
        communicators=communicators(tally),
        unfinished=unfinished(tally),
        missing=missing(tally, members, failed=any(failure.severity == "fatal" for failure in found)),
        warnings=warnings,
        warning_count=tally.warning_count,
        failures=found,
        hints=hints,
        obstacles=obstacles,
        gpudirect_disabled=tuple(seen.first for _, seen in table.rows("gdr disabled")[:_MAX_GPUDIRECT_LINES]),
        ofi_provider=next(iter(table.uses("provider")), None),
        lines=tally.lines,
        unread=_unread(tally),
        notes=_notes(tally),
        processes=len(made := {key[1:] for key, _ in table.rows("made")}),
        setups=tuple(tuple(lines) for lines in tally.setups.values()),
        registering=len(made & {key for key, _ in table.rows("registered")}),
    )


def _outside_interfaces(table: Tables) -> tuple[str, ...]:
    """Return the interfaces over which ranks and verbs exchange addresses."""
    interfaces = [str(key[1]) for key, _ in table.rows("bootstrap")] + [str(key[0]) for key, _ in table.rows("oob")]
    return tuple(dict.fromkeys(interfaces))


def _of_framework(tally: LogCounters) -> bool:
    first_lines = (seen.first for seen in tally.seen.get("failure", {}).values() if seen.first is not None)
    return any(FRAMEWORK.search(line.text) for line in first_lines)


def _environment(table: Tables) -> tuple[ReportedVariable, ...]:
    found: dict[tuple[str, str], list[Any]] = {}
    for (host, name, value), seen in table.rows("env"):
        entry = found.setdefault((name, value), [seen.first, [], 0])
        entry[2] += seen.count
        if host is not None and len(entry[1]) < _SHOWN:
            entry[1].append(host)
    return tuple(ReportedVariable(*key, entry[0], tuple(entry[1]), entry[2]) for key, entry in found.items())


def _obstacles(table: Tables, tally: LogCounters) -> tuple[LogLine, ...]:
    stated = ("ib_no_device_tcp_fallback", "ibverbs_missing", "net_plugin_not_found", "ofi_not_used",
              "ofi_protocol_failed")  # fmt: skip
    firsts: dict[str, LogLine] = {}
    for kind in ("obstacle", "failure"):
        for key, seen in table.rows(kind):
            if kind == "obstacle" or key[0] in stated:
                firsts.setdefault(str(key[0]), seen.first)
    return _in_order(firsts.values())


def _conditions(networks: Sequence[Use], channels: Sequence[NetChannels], nnodes: int | None) -> set[str]:
    """Return the conditions that the log meets; see ``signatures.toml``."""
    holds = set()
    names = [channel.network for channel in channels] or [use.name for use in networks]
    several = nnodes is not None and nnodes > 1
    if nnodes != 1:
        holds.add("spread")
    if any(is_tcp(name) for name in names) and (several or (nnodes is None and channels)):
        holds.add("tcp")
    rdma = [channel for channel in channels if not is_tcp(channel.network)]
    if any(channel.gpudirect is False for channel in rdma) or (
        several and not channels and any(not is_tcp(name) for name in names)
    ):
        holds.add("staged")
    return holds


def _in_order(lines: Iterable[LogLine]) -> tuple[LogLine, ...]:
    """Sort by time if every line has one, otherwise by line number.

    Lines of several files are not sorted if one lacks its time.
    """
    found = list(lines)
    if found and all(line.time for line in found):
        return tuple(sorted(found, key=lambda line: (line.time or "", line.number)))
    if len({line.file for line in found}) < 2:
        return tuple(sorted(found, key=lambda line: line.number))
    return tuple(found)


def _unread(tally: LogCounters) -> tuple[str, ...]:
    lines = "1 line is" if tally.long_lines == 1 else f"{tally.long_lines} lines are"
    long = f"{lines} longer than any NCCL line; only the beginning was examined"
    return (*tally.unread, *([long] if tally.long_lines else ()))


def _notes(tally: LogCounters) -> tuple[str, ...]:
    notes = list(tally.notes)
    for kind, count in sorted(tally.overflow.items()):
        notes.append(f"too many different facts of one kind ({kind}): {count} more lines are not distinguished")
    if tally.warning_count > len(tally.warnings):
        notes.append(f"{tally.warning_count} warnings, of which the first {len(tally.warnings)} are saved")
    if tally.ends_mask:
        notes.append(ENDS_SAMPLED_NOTE)
    return tuple(notes)


def _driver(text: str) -> str:
    number = int(text)
    return f"{number // 1000}.{number % 1000 // 10}"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
