"""From what was counted to what is handed on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from preflight.facts.nccl_log import rails
from preflight.facts.nccl_log.failures import failures
from preflight.facts.nccl_log.messages import via
from preflight.facts.nccl_log.model import (
    Affinity,
    ChannelCounts,
    Hca,
    HostChannels,
    IbDevice,
    Line,
    NcclLog,
    NetChannels,
    Plugin,
    Rails,
    Use,
    Variable,
    is_tcp,
)
from preflight.facts.nccl_log.ranks import communicators, missing, ranks_of, unfinished
from preflight.facts.nccl_log.tally import ENDS_KEPT_NOTE, Key, Seen, Tally

#: Entries of a list that only illustrates.
SHOWN = 20
_RINGS_SHOWN = 64
_KEPT = 1000
#: Ranks of a ring, from which on old versions broke its line.
_RING_SHOWN = 20


#: A framework's own words of a failure, in a log in which NCCL itself was silent: PyTorch's, vLLM's, XLA's, CuPy's.
FRAMEWORK = re.compile(
    r"ProcessGroupNCCL\.cpp\b|\bDist(?:Backend|Store)Error\b"
    r"|(?:^|\] ?)Watchdog caught collective|Watchdog caught collective operation timeout: ?WorkNCCL"
    r"|\b(?:NCCL|Nccl) [Ee]rror(?: in\b|, | ?(?:code )?\d{0,3} ?[:(])|\bNCCL operation \w+\(.{0,200}\) failed"
    r"|\bnccl[A-Z]\w+ failed: |\bnccl(?:\w{1,20}Error|InvalidUsage|InvalidArgument): |\bNCCL_ERROR_\w+: "
)


def finish(tally: Tally) -> NcclLog | None:
    """Return what a log says; None if no line of it is NCCL's, nor a framework's of a failure."""
    if not tally.lines and not _of_framework(tally):
        return None
    table = _Tables(tally)
    versions, networks, channels = table.uses("version"), table.uses("network"), _channels(table)
    sockets = table.rows("socket")
    if versions and _numbers(versions[0].name) < (2, 6, 4) and not networks:
        # up to 2.6.3 no line says "Using network"; TCP is what is left where InfiniBand found nothing
        chosen, rows = ("IB", table.rows("ib")) if table.rows("ib") else ("Socket", sockets)
        networks = tuple(Use(chosen, seen.count, seen.first) for _, seen in rows[:1])
    members = ranks_of(tally)
    sizes = [*table.rows("rank"), *table.rows("collective size")]
    nranks = max((key[0] for key, _ in sizes), default=None)
    nranks = _of_rings(table) if nranks is None else nranks
    hosts = tuple(str(key[0]) for key, _ in table.rows("host"))
    named = frozenset(hosts)
    nnodes = _nnodes(table, hosts, nranks)
    obstacles = _obstacles(table, tally)
    found, hints = failures(tally, _conditions(networks, channels, nnodes), members)
    warnings = _in_order(tally.warnings)
    rings = [(key, seen) for key, seen in table.rows("ring") if len(str(key[2]).split()) > 1]
    longest = max((len(str(key[2]).split()) for key, _ in rings), default=0)
    drivers = table.rows("driver")
    support = {key[1] for key, _ in table.rows("nvls support")}
    return NcclLog(
        nccl_version=versions[0].name if versions else None,
        versions=versions,
        cuda_driver=_driver(str(drivers[0][0][0])) if drivers else None,
        nranks=nranks,
        nnodes=nnodes,
        hosts=hosts,
        ranks=tuple(sorted((rank, who[0]) for rank, who in members.known.items() if who[0] in named)),
        networks=networks,
        chosen=tuple((str(key[0]), str(key[1])) for key, _ in table.rows("chosen") if key[0] is not None),
        plugins=tuple(
            Plugin(str(k[0]), None if k[1] is None else str(k[1]), s.first, s.count) for k, s in table.rows("plugin")
        ),
        channels=channels,
        by_host=_by_host(table),
        intra_node=_intra_node(table),
        collnet=(*_merged(table.via("COLLNET"), "COLLNET"), *table.uses("sharp")),
        proxied=sum(seen.count for key, seen in table.via("NET") if key[4]),
        rails=_rails(tally),
        rings=tuple(str(k[2]) for k, _ in sorted(rings, key=lambda r: r[0][0]) if len(str(k[2]).split()) == longest)[
            :_RINGS_SHOWN
        ],
        ring_channels=max((key[1] or key[0] + 1 for key, _ in rings), default=None),
        tree_channels=max((key[0] for key, _ in table.rows("trees")), default=None),
        channel_counts=_counts(table),
        nvls=next((seen.first for _, seen in table.rows("nvls")), None),
        nvls_support=bool(support.pop()) if len(support) == 1 else None,
        mnnvl=next(iter(table.uses("clique")), None),
        ib_devices=tuple(_devices(table).values()),
        hcas=_hcas(table),
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
        gpudirect_disabled=tuple(seen.first for _, seen in table.rows("gdr disabled")[:_KEPT]),
        ofi_provider=next(iter(table.uses("provider")), None),
        lines=tally.lines,
        notes=_notes(tally),
        processes=len(made := {key[1:] for key, _ in table.rows("made")}),
        registering=len(made & {key for key, _ in table.rows("registered")}),
    )


def _outside_interfaces(table: _Tables) -> tuple[str, ...]:
    """Return the interfaces over which ranks find each other, and over which verbs are set up."""
    said = [str(key[1]) for key, _ in table.rows("bootstrap")] + [str(key[0]) for key, _ in table.rows("oob")]
    return tuple(dict.fromkeys(said))


def _of_rings(table: _Tables) -> int | None:
    """Return how many ranks trees say there are, or rings go through: two, written out, that go through all."""
    if said := max((key[1] for key, _ in table.rows("trees") if key[1]), default=None):
        return int(said)
    rings = [{int(rank) for rank in str(key[2]).split()} for key, _ in table.rows("ring")]
    most = max(map(len, rings), default=0)
    whole = sum(ring == set(range(most)) for ring in rings if len(ring) == most)
    return most if 1 < most < _RING_SHOWN and whole > 1 else None


def _of_framework(tally: Tally) -> bool:
    said = (seen.first for seen in tally.seen.get("failure", {}).values() if seen.first is not None)
    return any(FRAMEWORK.search(line.text) for line in said)


class _Tables:
    """The tables of a tally, in the order in which the log begins to say things."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.files: dict[str, int] = {}
        for table in tally.seen.values():
            for seen in table.values():
                self.files.setdefault(seen.first.file, len(self.files))
        self.cache: dict[str, list[tuple[Any, Seen]]] = {}

    def rows(self, kind: str) -> list[tuple[Any, Seen]]:
        """Return (key, what was seen) of a kind, earliest first."""
        if kind not in self.cache:
            items: Iterable[tuple[Key, Seen]] = self.tally.seen.get(kind, {}).items()
            self.cache[kind] = sorted(items, key=lambda row: (self.files[row[1].first.file], row[1].first.number))
        return self.cache[kind]

    def uses(self, kind: str) -> tuple[Use, ...]:
        """Return the rows of a kind whose key is a name."""
        return tuple(Use(str(key[0]), seen.count, seen.first) for key, seen in self.rows(kind))

    def via(self, transport: str) -> list[tuple[Any, Seen]]:
        """Return (host, transport, network, device, proxied, gpudirect) and what was seen of a transport."""
        return [(key, seen) for key, seen in self.rows("via") if key[1] == transport]


def _channels(table: _Tables) -> tuple[NetChannels, ...]:
    found: dict[tuple[str, bool], NetChannels] = {}
    for (_, _, network, _, _, gpudirect), seen in table.via("NET"):
        known = found.get((network, gpudirect))
        count = seen.count + (known.count if known else 0)
        found[network, gpudirect] = NetChannels(network, gpudirect, count, known.first if known else seen.first)
    return tuple(found.values())


def _by_host(table: _Tables) -> tuple[HostChannels, ...]:
    found: dict[tuple[str, str, bool], list[int]] = {}
    for (host, _, network, _, proxied, gpudirect), seen in table.via("NET"):
        if host is not None:
            counts = found.setdefault((host, network, gpudirect), [0, 0])
            counts[0] += seen.count
            counts[1] += seen.count if proxied else 0
    return tuple(HostChannels(*key, *counts) for key, counts in found.items())


def _merged(rows: Sequence[tuple[Any, Seen]], name: str) -> tuple[Use, ...]:
    return (Use(name, sum(seen.count for _, seen in rows), rows[0][1].first),) if rows else ()


def _intra_node(table: _Tables) -> tuple[Use, ...]:
    names = dict.fromkeys(key[1] for key, _ in table.rows("via") if key[1] not in ("NET", "COLLNET"))
    return tuple(use for name in names for use in _merged(table.via(name), name))


def _devices(table: _Tables) -> dict[tuple[Any, ...], IbDevice]:
    found: dict[tuple[Any, ...], IbDevice] = {}
    for (host, _, name, port, roce, sharp), seen in table.rows("ib"):
        found.setdefault((host, name, port), IbDevice(name, port, roce, sharp, seen.first))
    return found


def _hcas(table: _Tables) -> tuple[Hca, ...]:
    """Join what each host found with the indexes that its channels name."""
    used: dict[tuple[Any, Any], int] = {}
    speaking = set()
    for (host, _, network, device, _, _), seen in table.via("NET"):
        if not is_tcp(network):
            used[host, device] = used.get((host, device), 0) + seen.count
            speaking.add(host)
    over: dict[tuple[str, int], dict[Any, int | None]] = {}
    for (host, index, name, port, _, _), _ in table.rows("ib"):
        hosts = over.setdefault((name, port), {})
        hosts[host] = (hosts.get(host) or 0) + used.get((host, index), 0) if host in speaking else None
    found = []
    for (name, port), hosts in over.items():
        counts = [count for count in hosts.values() if count is not None]
        idle = [str(host) for host, count in hosts.items() if count == 0 and host is not None]
        found.append(Hca(name, port, len(hosts), sum(counts) if counts else None, tuple(idle[:SHOWN])))
    return tuple(found)


def _rails(tally: Tally) -> Rails | None:
    seen = crossing = 0
    example = None
    for name, sent, received in rails.pairs(tally.ends):
        one, other = via(sent.decode("latin-1")), via(received.decode("latin-1"))
        if one is None or other is None or one.network != other.network or is_tcp(one.network):
            continue
        seen += 1
        if one.device != other.device:
            crossing += 1
            text = name.decode("latin-1")
            made = f"{text}: sent over NET/{one.network}/{one.device}, received over NET/{one.network}/{other.device}"
            example = min(example or made, made)
    return Rails(seen, crossing, example, tally.ends_mask != 0) if seen else None


def _counts(table: _Tables) -> ChannelCounts | None:
    rows = [key for key, _ in table.rows("counts")]
    return ChannelCounts(*max(rows, key=lambda row: tuple(part or 0 for part in row))) if rows else None


def _environment(table: _Tables) -> tuple[Variable, ...]:
    found: dict[tuple[str, str], list[Any]] = {}
    for (host, name, value), seen in table.rows("env"):
        entry = found.setdefault((name, value), [seen.first, [], 0])
        entry[2] += seen.count
        if host is not None and len(entry[1]) < SHOWN:
            entry[1].append(host)
    return tuple(Variable(*key, entry[0], tuple(entry[1]), entry[2]) for key, entry in found.items())


def _obstacles(table: _Tables, tally: Tally) -> tuple[Line, ...]:
    stated = ("ib_no_device_tcp_fallback", "ibverbs_missing", "net_plugin_not_found")
    firsts: dict[str, Line] = {}
    for kind in ("obstacle", "failure"):
        for key, seen in table.rows(kind):
            if kind == "obstacle" or key[0] in stated:
                firsts.setdefault(str(key[0]), seen.first)
    return _in_order(firsts.values())


def _nnodes(table: _Tables, hosts: Sequence[str], nranks: int | None) -> int | None:
    """Count nodes: NCCL's own number (2.20 on), else hosts, one of them only if all ranks are seen on it."""
    sizes: list[int] = [key[1] for key, _ in table.rows("size")]
    if sizes:
        return max(sizes)
    # hosts of one name are several where their first interface has several addresses
    addresses: dict[object, set[object]] = {}
    for host, interface, address in (key for key, _ in table.rows("bootstrap")):
        addresses.setdefault((host, interface), set()).add(address)
    hidden = max((len(found) for found in addresses.values()), default=1)
    if len(hosts) > 1 or hidden > 1:
        return max(len(hosts), hidden)
    ranks = {key[1] for key, _ in table.rows("rank") if key[0] == nranks}
    return 1 if len(hosts) == 1 and nranks is not None and len(ranks) == nranks else None


def _conditions(networks: Sequence[Use], channels: Sequence[NetChannels], nnodes: int | None) -> set[str]:
    """Return what holds of the whole log; see ``signatures.toml``."""
    holds = set()
    names = [channel.network for channel in channels] or [use.name for use in networks]
    several = nnodes is not None and nnodes > 1
    if any(is_tcp(name) for name in names) and (several or (nnodes is None and channels)):
        holds.add("tcp")
    rdma = [channel for channel in channels if not is_tcp(channel.network)]
    if any(not channel.gpudirect for channel in rdma) or (
        several and not channels and any(not is_tcp(name) for name in names)
    ):
        holds.add("staged")
    return holds


def _in_order(lines: Iterable[Line]) -> tuple[Line, ...]:
    """Sort by time where every line bears one, else by line; lines of several files stay as they are without times."""
    found = list(lines)
    if found and all(line.time for line in found):
        return tuple(sorted(found, key=lambda line: (line.time or "", line.number)))
    if len({line.file for line in found}) < 2:
        return tuple(sorted(found, key=lambda line: line.number))
    return tuple(found)


def _notes(tally: Tally) -> tuple[str, ...]:
    notes = list(tally.notes)
    if tally.long_lines:
        notes.append(f"{tally.long_lines} lines are longer than any of NCCL; only their beginning was looked at")
    for kind, count in sorted(tally.overflow.items()):
        notes.append(f"too many different facts of one kind ({kind}): {count} more lines are not told apart")
    if tally.warning_count > len(tally.warnings):
        notes.append(f"{tally.warning_count} warnings, of which the first {len(tally.warnings)} are kept")
    if tally.ends_mask:
        notes.append(ENDS_KEPT_NOTE)
    return tuple(notes)


def _driver(text: str) -> str:
    number = int(text)
    return f"{number // 1000}.{number % 1000 // 10}"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
