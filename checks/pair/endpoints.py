"""The two sides of a test between nodes, as their evidence holds them, and what kept a test from its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from preflight import parsers
from preflight._startup.lightclass import dataclass, replace
from preflight.evidence.document import EvidenceError
from preflight.facts.node import NodeFacts
from preflight.model import Finding, failed, unknown

#: Lines of an output that are shown with a finding.
_QUOTED = 6

#: Debian's package of a tool; all others are perftest's.
PACKAGES = {"ibv_rc_pingpong": "ibverbs-utils", "ping": "iputils-ping", "stdbuf": "coreutils"}


@dataclass(frozen=True)
class Half:
    """One side of a test: its node, what it was told, what its command left."""

    facts: NodeFacts
    said: Mapping[str, Any]

    @property
    def node(self) -> str:
        """Its name."""
        return self.facts.node

    @property
    def key(self) -> str:
        """The record of its command."""
        return str(self.said.get("command", ""))

    @property
    def text(self) -> str:
        """Everything that its command printed."""
        record = self.facts.evidence.record(self.key)
        return f"{record.out}\n{record.err}"

    @property
    def status(self) -> str:
        """How its command ended, as a record's status; "failed" for an exit status other than 0."""
        record = self.facts.evidence.record(self.key)
        return "failed" if record.ok and record.rc else record.status

    @property
    def tool(self) -> str:
        """The program, if it is not installed: its name; else empty."""
        record = self.facts.evidence.record(self.key)
        words = self.key.partition(":")[2].split()
        if record.status == "missing":
            return words[0]
        return words[2] if record.rc == 127 and words[:1] == ["stdbuf"] and len(words) > 2 else ""


def pairs(nodes: Sequence[NodeFacts], test: str) -> Iterator[tuple[Half, Half] | Finding]:
    """Yield server and client of every test of this name, or what to say where it could not be carried out."""
    by_name = {node.node: node for node in nodes}
    key = f"pair:{test}"
    found = False
    for node in nodes:
        if key not in node.evidence:
            continue
        record = node.evidence.record(key)
        said = record.value if isinstance(record.value, dict) else {}
        if said.get("role") != "server":
            continue
        found = True
        peer = by_name.get(str(said.get("peer")))
        if not record.ok:
            names = [node.node, *([peer.node] if peer else [])]
            fix = "`rdma link`, `show_gids`; or give --device"
            yield failed(record.why or record.describe(), evidence=[key], fix=fix).on(names)
        elif peer is None or key not in peer.evidence:
            message = f"the other side of {node.node}, {said.get('peer')}, is not among the documents"
            yield unknown(message).on([node.node])
        else:
            yield Half(node, said), Half(peer, peer.evidence.value(key))
    if not found:
        yield unknown("no such test was carried out", fix="`preflight pair HOST HOST`")


def each(nodes: Sequence[NodeFacts], test: str, judge: Callable[[Half, Half], Iterator[Finding]]) -> Iterator[Finding]:
    """Yield what is to be said of every test of this name, of both of its nodes."""
    for one in pairs(nodes, test):
        if isinstance(one, Finding):
            yield one
            continue
        names = [half.node for half in one]
        try:
            for finding in judge(*one):
                yield _quoting(finding, one).on(names)
        except EvidenceError as error:
            yield unknown(f"could not tell: {error}", evidence=[error.key]).on(names)


def each_finished(
    nodes: Sequence[NodeFacts], test: str, judge: Callable[[Half, Half], Iterator[Finding]]
) -> Iterator[Finding]:
    """Do as ``each`` does, and let only a test that came to its end be judged."""

    def unless_hindered(server: Half, client: Half) -> Iterator[Finding]:
        hindered = hindrance(server, client)
        return iter([hindered]) if hindered else judge(server, client)

    return each(nodes, test, unless_hindered)


def _quoting(finding: Finding, halves: Sequence[Half]) -> Finding:
    """Let a finding show the end of what its command printed: a table stands there, or a complaint."""
    half = next((half for half in halves if half.key and half.key in finding.evidence[:1]), None)
    if half is None or half.key not in half.facts.evidence:
        return finding
    lines = [line for line in half.text.splitlines() if line.strip(" -*")]
    return replace(finding, quote="\n".join(lines[-_QUOTED:])[:1200])


# --- what kept a test from its end -----------------------------------------------------------------


def hindrance(server: Half, client: Half) -> Finding | None:
    """Return the finding of a test that did not come to its end; None if it did."""
    keys = [client.key, server.key]
    for half in (server, client):
        if half.tool:
            package = PACKAGES.get(half.tool, "perftest")
            return unknown(f"{half.tool} is not installed on {half.node}", evidence=[half.key],
                           fix=f"install `{half.tool}` (package {package}) on {half.node}")  # fmt: skip
    if client.status == "ok":
        return None
    return replace(_hindrance(server, client, keys), why="A job over this path would meet the same.")


def _hindrance(server: Half, client: Half, keys: list[str]) -> Finding:
    for half in (server, client):
        cause = parsers.network.perftest.cause(half.text)
        if cause and cause not in (parsers.network.perftest.Cause.CONNECT, parsers.network.perftest.Cause.QUEUE):
            return _caused(cause, half, server, client)
    if empty := [half for half in (server, client) if half.said.get("gid_index") is not None and _no_address(half)]:
        return _caused(parsers.network.perftest.Cause.GID, empty[0], server, client)
    causes = {parsers.network.perftest.cause(half.text) for half in (server, client)}
    met = any(parsers.network.perftest.connected(half.text) for half in (server, client))
    if parsers.network.perftest.Cause.QUEUE in causes:
        return _caused(parsers.network.perftest.Cause.QUEUE, client, server, client)
    if client.status == "timeout" and met:
        return _caused(parsers.network.perftest.Cause.PATH, client, server, client)
    if parsers.network.perftest.Cause.CONNECT in causes or (client.status == "timeout" and server.status == "timeout"):
        return _caused(parsers.network.perftest.Cause.CONNECT, client, server, client)
    record = client.facts.evidence.record(client.key)
    last = next((line.strip() for line in reversed(client.text.splitlines()) if line.strip()), "")
    why = record.describe() or f"exit status {record.rc}" + (f": {last[:160]}" if last else "")
    return unknown(f"the test did not come to its end: {why}", evidence=keys)


def _no_address(half: Half) -> bool:
    return not half.said.get("gid") or str(half.said["gid"]).startswith(":: ")


def _caused(cause: parsers.network.perftest.Cause, half: Half, server: Half, client: Half) -> Finding:
    """Say what the cause is, and what to do."""
    said, keys = half.said, [half.key]
    device, address, port = said.get("device"), server.said.get("address"), server.said.get("port")
    if cause is parsers.network.perftest.Cause.GID:
        rows = "; ".join(f"{one.node} {one.said.get('gid_index')}: {one.said.get('gid') or 'no such row, or empty'}"
                         for one in (server, client))  # fmt: skip
        return failed(f"the GID index does not fit: {rows}", subject=str(device), evidence=keys,
                      expected="on both sides a RoCE v2 row of an IP address, of one version",
                      fix="leave --gid-index out, or take the index of `show_gids` (RoCE v2, IPv4)")  # fmt: skip
    if cause is parsers.network.perftest.Cause.MEMORY:
        try:
            limit = f"{half.facts.memlock_bytes / 1024:g} KiB of locked memory allowed"
        except EvidenceError:
            limit = "its limit of locked memory is not known"
        fix = "ulimit -l unlimited: LimitMEMLOCK=infinity for sshd and slurmd; see host.memlock"
        return failed(f"{half.node} cannot register memory with {device}: {limit}", evidence=keys, fix=fix)
    if cause is parsers.network.perftest.Cause.DEVICE:
        fix = "see rdma.device-nodes: /dev/infiniband/uverbsN missing or not readable; or `rdma link`"
        return failed(f"{half.node} cannot open {device}", subject=str(device), evidence=keys, fix=fix)
    if cause is parsers.network.perftest.Cause.PORT:
        return unknown(f"TCP port {port} is in use on {server.node}", evidence=keys, fix="give another one: --port")
    if cause is parsers.network.perftest.Cause.CONNECT:
        fix = f"`ip route get {address}` on {client.node}; a firewall on {server.node}; or --port"
        return failed(f"{client.node} gets no TCP connection to {address} port {port} on {server.node}",
                      evidence=[client.key, server.key], fix=fix)  # fmt: skip
    if cause is parsers.network.perftest.Cause.QUEUE:
        return failed(f"the queue pairs could not be connected: {client.node} does not reach the GID of {server.node}",
                      found=f"{client.said.get('gid')} to {server.said.get('gid')}", evidence=[client.key, server.key],
                      fix="`rdma link`, `ip neigh`; the same GID type, IP version and partition on both")  # fmt: skip
    roce = server.said.get("roce")
    what = "UDP port 4791 is dropped on the way" if roce else "the path between the two LIDs drops them"
    fix = ("allow UDP 4791 on hosts (`nft list ruleset`) and switches; see path-mtu for packets that are too large"
           if roce else "`ibtracert` between the two LIDs, `ibqueryerrors`")  # fmt: skip
    return failed(f"TCP connects, but no RDMA packet is acknowledged: {what}", found="no answer",
                  evidence=[client.key, server.key], fix=fix)  # fmt: skip
