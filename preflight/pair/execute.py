"""Execution of pair tests: both sides run at once, each with its own time limit."""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Protocol

from preflight.evidence.document import Evidence, EvidenceError, PairScope, from_document
from preflight.expectations import Cluster
from preflight.facts.node import NodeFacts
from preflight.pair import endpoints, path_mtu, tests
from preflight.pair.endpoints import End, EndpointError, Wanted
from preflight.pair.tests import KINDS, PATH_MTU, PairTest
from preflight.parsers.network import perftest, ping
from preflight.probes.node import PROBES
from preflight.probes.probe import Probe, plan

#: Probes that show a node's endpoints: RDMA, addresses, limits, and sources for the ports of jobs.
_ENDS = (
    "dir:/sys/class/infiniband", "file:/sys/class/infiniband", "dir:/dev/infiniband", "cmd:ibv_devinfo", "cmd:ibstat",
    "file:/sys/class/net/*/{mtu", "file:/proc/self/", "psutil:net_if_addrs", "cmd:ip -j addr",
    "dir:/sys/bus/pci/devices", "file:/sys/bus/pci/devices", "cmd:nvidia-smi topo -m", "env:process",
    "file:/etc/nccl.conf", "file:~/.nccl.conf", "dir:/sys/module",
)  # fmt: skip

#: Seconds for the first collection from both nodes; additional seconds of a side to connect and to answer.
LOOK_S, _TRAVEL_S = 60.0, 15.0

#: Seconds for a server to print its result after its client has ended, and between two attempts of a client.
_FAREWELL_S, _AGAIN_S = 3.0, 0.3

#: Seconds for one size of ping: three packets, 0.2 s apart, and a second for the last reply.
_PING_S = 6.0


class PairTransport(Protocol):
    """The part of ``preflight.transport`` that a pair test needs."""

    def collect(self, host: str, plan: Mapping[str, Any], until: float) -> dict[str, Any]:
        """Carry out a plan on a node by ``until``; return an Evidence document.

        ``until`` is on the monotonic clock.
        """

    def close(self) -> None:
        """End running processes."""


Connect = Callable[[str], AbstractContextManager[PairTransport]]


class PairNode:
    """One node of the pair, and its collected data."""

    def __init__(self, host: str, transport: PairTransport) -> None:
        self.host, self._transport = host, transport
        self.evidence = Evidence(host, "", {})

    def look(self, probes: Sequence[Probe]) -> None:
        """Collect the evidence of the node's possible endpoints."""
        until = time.monotonic() + LOOK_S
        probe_plan = plan(probes, node=self.host, deadline_s=LOOK_S)
        document = self._transport.collect(self.host, probe_plan, until)
        self.evidence = from_document(document, self.host)

    def run(self, commands: Sequence[Sequence[str]], limit_s: float) -> dict[str, dict[str, Any]]:
        """Run commands in parallel; return a record for each, even after a failure."""
        return answers(self._transport, self.host, commands, limit_s)

    def keep(self, records: Mapping[str, Any]) -> None:
        """Add records to the node's evidence."""
        self.evidence = replace(self.evidence, records={**self.evidence.records, **records})


def answers(
    transport: PairTransport, host: str, commands: Sequence[Sequence[str]], limit_s: float
) -> dict[str, dict[str, Any]]:
    """Run commands on a node for ``limit_s`` seconds each; return their records.

    The limit applies on the node, from the start of the command; a record without an answer contains the reason.
    """
    probes = [Probe("cmd", shlex.join(words), "a test of a pair", limit_s) for words in commands]
    probe_plan = plan(probes, node=host, deadline_s=limit_s + _TRAVEL_S, parallel=len(probes))
    document = transport.collect(host, probe_plan, time.monotonic() + limit_s + _TRAVEL_S)
    silence = document.get("no_answer") or {}
    lost = {"status": "error", "why": f"{silence.get('phase', 'read')}: {silence.get('reason', 'no answer')}"}
    return {probe.key: document.get("records", {}).get(probe.key, lost) for probe in probes}


def carry_out(
    hosts: tuple[str, str], names: Sequence[str], wanted: Wanted, cluster: Cluster, connect: Connect, deadline_s: float,
    progress: Callable[[str], AbstractContextManager[None]],
) -> list[Evidence]:  # fmt: skip
    """Run the tests in sequence, the first host as server; return both documents."""
    with connect(hosts[0]) as one, connect(hosts[1]) as other:
        server, client = PairNode(hosts[0], one), PairNode(hosts[1], other)
        with progress(f"examining {hosts[0]} and {hosts[1]}"):
            together(lambda: server.look(look(wanted)), lambda: client.look(look(wanted)))
        if server.evidence.no_answer is None and client.evidence.no_answer is None:
            for name in names:
                with progress(f"{name} between {hosts[0]} and {hosts[1]}"):
                    _carry_out(name, server, client, wanted, cluster, connect, deadline_s)
    return [replace(server.evidence, pair=PairScope(hosts[1], tuple(names))),
            replace(client.evidence, pair=PairScope(hosts[0], tuple(names)))]  # fmt: skip


def look(wanted: Wanted) -> list[Probe]:
    """Return the probes that show a node's possible endpoints."""
    probes = [probe for probe in PROBES if probe.key.startswith(_ENDS) and not probe.twice]
    probes.append(Probe("file", "/proc/net/{tcp,tcp6}", "which TCP ports are free"))
    if wanted.gid_index is not None:
        rows = f"/sys/class/infiniband/*/ports/*/{{gids,gid_attrs/types}}/{wanted.gid_index}"
        probes.append(Probe("file", rows, "the selected row of the GID table"))
    return probes


def _carry_out(
    name: str, server: PairNode, client: PairNode, wanted: Wanted, cluster: Cluster, connect: Connect, limit_s: float
) -> None:
    nodes = [NodeFacts(side.evidence) for side in (server, client)]
    try:
        here, there = (endpoints.end(node, cluster.site(node), wanted) for node in nodes)
        if name in KINDS and KINDS[name].gpu:
            here, there = map(endpoints.with_gpu, nodes, (here, there))
    except (EndpointError, EvidenceError) as error:
        for side, peer, role in ((server, client, "server"), (client, server, "client")):
            value = {"role": role, "peer": peer.host, "unread": isinstance(error, EvidenceError)}
            side.keep({f"pair:{name}": {"status": "error", "why": str(error), "value": value}})
        return
    if name == PATH_MTU:
        together(
            lambda: _path(server, here, there, "server", limit_s),
            lambda: _path(client, there, here, "client", limit_s),
        )
    else:
        port = endpoints.free_port(nodes[0], wanted.port)
        _exchange(KINDS[name], server, client, here, there, wanted, port, connect, limit_s)


# --- a server and its client -----------------------------------------------------------------------


def _exchange(
    kind: PairTest, server: PairNode, client: PairNode, here: End, there: End, wanted: Wanted, port: int,
    connect: Connect, limit_s: float,
) -> None:  # fmt: skip
    serve = tests.command(kind, here, there, wanted, port)
    call = tests.command(kind, there, here, wanted, port, here.address)
    served: dict[str, dict[str, Any]] = {}
    with connect(server.host) as line:

        def attend() -> None:  # it must outlive the client, which starts later
            served.update(answers(line, server.host, [serve], limit_s + _TRAVEL_S))

        thread = threading.Thread(target=attend, daemon=True)
        thread.start()
        called = _call(client, call, thread, limit_s)
        thread.join(_FAREWELL_S)
        waiting = thread.is_alive()
        line.close()
        thread.join(_FAREWELL_S)
    key = f"cmd:{shlex.join(serve)}"
    if key not in served or (waiting and served[key]["status"] == "error"):
        why = f"still waiting {_FAREWELL_S:g} s after its client had ended; ended by closing its connection"
        served = {key: {"status": "timeout", "why": why}}
    server.keep({**served, **_note(kind.name, "server", here, there, port, key, wanted)})
    client.keep({**called, **_note(kind.name, "client", there, here, port, next(iter(called)), wanted)})


def _call(
    client: PairNode, command: Sequence[str], server: threading.Thread, limit_s: float
) -> dict[str, dict[str, Any]]:
    """Run the client, repeatedly until the server listens; return its last record."""
    until = time.monotonic() + limit_s
    while True:
        called = client.run([command], limit_s)
        record = next(iter(called.values()))
        early = perftest.cause(f"{record.get('out', '')}\n{record.get('err', '')}") is perftest.PerftestError.CONNECT
        if not early or not server.is_alive() or time.monotonic() > until:
            return called
        time.sleep(_AGAIN_S)


def _note(name: str, role: str, own: End, peer: End, port: int, key: str, wanted: Wanted) -> dict[str, dict[str, Any]]:
    """Return the record of one side's run."""
    value = {
        "role": role, "peer": peer.node, "device": own.name, "rate_gbps": own.rate_gbps, "roce": own.roce,
        "software": own.software, "gid_index": own.gid_index, "gid": own.gid, "address": own.address, "port": port,
        "interface_mtu": own.interface_mtu, "active_mtu": own.active_mtu, "command": key,
        "at_least_gbps": wanted.at_least_gbps, "gpu": own.gpu,
    }  # fmt: skip
    return {f"pair:{name}": {"status": "ok", "value": value}}


# --- path MTU --------------------------------------------------------------------------------------


def _path(side: PairNode, own: End, peer: End, role: str, limit_s: float) -> None:
    """Search for the largest packet that passes, and add the pings to the evidence."""
    until = time.monotonic() + limit_s
    version = 6 if ":" in own.address else 4
    sizes: dict[int, str] = {}
    pings: dict[int, ping.Ping] = {}
    following: Sequence[int] = path_mtu.first(own.interface_mtu or 1500, version)
    while following and time.monotonic() < until:
        commands = {size: path_mtu.command(version, own.address, peer.address, size) for size in following}
        records = side.run(list(commands.values()), _PING_S)
        side.keep(records)
        sizes |= {size: f"cmd:{shlex.join(words)}" for size, words in commands.items()}
        for size in following:
            try:
                record = records[sizes[size]]
                pings[size] = ping.parse(f"{record.get('out', '')}\n{record.get('err', '')}")
            except ValueError:
                break
        else:
            following = path_mtu.following(path_mtu.bracket(pings))
            continue
        break
    note = _note(PATH_MTU, role, own, peer, 0, "", Wanted())
    note[f"pair:{PATH_MTU}"]["value"]["sizes"] = {str(size): key for size, key in sorted(sizes.items())}
    side.keep(note)


def together(*calls: Callable[[], None]) -> None:
    """Run calls in parallel; re-raise the first exception."""
    failures: list[BaseException] = []

    def guarded(call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
