"""Tests between two nodes (``preflight pair``): what they measured, or what kept them from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from preflight.cluster import Site
from preflight.evidence import EvidenceError
from preflight.facts import NodeFacts, perftest, ping
from preflight.facts.perftest import Cause
from preflight.lean import dataclass
from preflight.model import Check, Finding, check, failed, passed, unknown, warned

#: Shares of the line rate that a write or read of large messages reaches: below the first a job is held back, below
#: the second something is odd. AzNHC asks for 380 of 400 Gb/s (H100), 360 (H200), 180 of 200, 96 of 100.
GATE, USUAL = 0.90, 0.95

#: Message size from which the line rate is the measure, bytes; smaller ones are bound by the messages per second.
LARGE = 1 << 20

#: Microseconds of a small write between neighbours (OCI's multi-node checks).
LATENCY_US = 5.0

#: Lines of an output that are shown with a finding.
_QUOTED = 6

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


def _each(nodes: Sequence[NodeFacts], test: str, judge: Callable[[Half, Half], Iterator[Finding]]) -> Iterator[Finding]:
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
        if (cause := perftest.cause(half.text)) and cause not in (Cause.CONNECT, Cause.QUEUE):
            return _caused(cause, half, server, client)
    if empty := [half for half in (server, client) if half.said.get("gid_index") is not None and _no_address(half)]:
        return _caused(Cause.GID, empty[0], server, client)
    causes = {perftest.cause(half.text) for half in (server, client)}
    met = any(perftest.connected(half.text) for half in (server, client))
    if Cause.QUEUE in causes:
        return _caused(Cause.QUEUE, client, server, client)
    if client.status == "timeout" and met:
        return _caused(Cause.PATH, client, server, client)
    if Cause.CONNECT in causes or (client.status == "timeout" and server.status == "timeout"):
        return _caused(Cause.CONNECT, client, server, client)
    record = client.facts.evidence.record(client.key)
    last = next((line.strip() for line in reversed(client.text.splitlines()) if line.strip()), "")
    why = record.describe() or f"exit status {record.rc}" + (f": {last[:160]}" if last else "")
    return unknown(f"the test did not come to its end: {why}", evidence=keys)


def _no_address(half: Half) -> bool:
    return not half.said.get("gid") or str(half.said["gid"]).startswith(":: ")


def _caused(cause: Cause, half: Half, server: Half, client: Half) -> Finding:
    """Say what the cause is, and what to do."""
    said, keys = half.said, [half.key]
    device, address, port = said.get("device"), server.said.get("address"), server.said.get("port")
    if cause is Cause.GID:
        rows = "; ".join(f"{one.node} {one.said.get('gid_index')}: {one.said.get('gid') or 'no such row, or empty'}"
                         for one in (server, client))  # fmt: skip
        return failed(f"the GID index does not fit: {rows}", subject=str(device), evidence=keys,
                      expected="on both sides a RoCE v2 row of an IP address, of one version",
                      fix="leave --gid-index out, or take the index of `show_gids` (RoCE v2, IPv4)")  # fmt: skip
    if cause is Cause.MEMORY:
        try:
            limit = f"{half.facts.memlock_bytes / 1024:g} KiB of locked memory allowed"
        except EvidenceError:
            limit = "its limit of locked memory is not known"
        fix = "ulimit -l unlimited: LimitMEMLOCK=infinity for sshd and slurmd; see host.memlock"
        return failed(f"{half.node} cannot register memory with {device}: {limit}", evidence=keys, fix=fix)
    if cause is Cause.DEVICE:
        fix = "see rdma.device-nodes: /dev/infiniband/uverbsN missing or not readable; or `rdma link`"
        return failed(f"{half.node} cannot open {device}", subject=str(device), evidence=keys, fix=fix)
    if cause is Cause.PORT:
        return unknown(f"TCP port {port} is in use on {server.node}", evidence=keys, fix="give another one: --port")
    if cause is Cause.CONNECT:
        fix = f"`ip route get {address}` on {client.node}; a firewall on {server.node}; or --port"
        return failed(f"{client.node} gets no TCP connection to {address} port {port} on {server.node}",
                      evidence=[client.key, server.key], fix=fix)  # fmt: skip
    if cause is Cause.QUEUE:
        return failed(f"the queue pairs could not be connected: {client.node} does not reach the GID of {server.node}",
                      found=f"{client.said.get('gid')} to {server.said.get('gid')}", evidence=[client.key, server.key],
                      fix="`rdma link`, `ip neigh`; the same GID type, IP version and partition on both")  # fmt: skip
    roce = server.said.get("roce")
    what = "UDP port 4791 is dropped on the way" if roce else "the path between the two LIDs drops them"
    fix = ("allow UDP 4791 on hosts (`nft list ruleset`) and switches; see path-mtu for packets that are too large"
           if roce else "`ibtracert` between the two LIDs, `ibqueryerrors`")  # fmt: skip
    return failed(f"TCP connects, but no RDMA packet is acknowledged: {what}", found="no answer",
                  evidence=[client.key, server.key], fix=fix)  # fmt: skip


# --- the tests -------------------------------------------------------------------------------------


def _bandwidth(server: Half, client: Half) -> Iterator[Finding]:
    if hindered := hindrance(server, client):
        yield hindered
        return
    found = client.facts.parsed(client.key, perftest.parse_bandwidth)
    measured = f"{found.average_gbps:.4g} Gb/s"
    details: dict[str, Any] = {"found": f"{measured}, {found.messages} messages of {found.size} bytes",
                               "evidence": [client.key], "subject": f"{client.said.get('device')}"}  # fmt: skip
    floor = client.said.get("at_least_gbps")
    if isinstance(floor, (int, float)):
        say = passed if found.average_gbps >= floor else failed
        more = {} if say is passed else {"expected": f"at least {floor:g} Gb/s (--at-least)"}
        yield say(f"{measured}, asked for at least {floor:g}", **details, **more)
        return
    if any(half.said.get("software") for half in (server, client)):
        yield unknown(f"{measured} between software devices, which have no line rate to be held against",
                      fix="say what to expect: --at-least GBPS", **details)  # fmt: skip
        return
    rates = {half.node: half.said.get("rate_gbps") for half in (server, client)}
    known = [rate for rate in rates.values() if isinstance(rate, (int, float)) and rate > 0]
    if len(known) < 2 or found.size < LARGE:
        small = f"messages below {LARGE} bytes do not fill a link"
        why = small if len(known) == 2 else "the rate of a port is not known"
        yield unknown(f"{measured}, and {why}", fix="say what to expect: --at-least GBPS", **details)
        return
    rate = min(known)
    share, slow = found.average_gbps / rate, " and ".join(node for node, one in rates.items() if one == rate)
    said = f"{measured}, {share:.0%} of {rate:g} Gb/s"
    if share >= USUAL:
        yield passed(said, **details)
        return
    say = failed if share < GATE else warned
    yield say(f"{said}, the line rate of {slow}",
              expected=f"at least {GATE:.0%}, usually {USUAL:.0%} (AzNHC: 380 of 400 Gb/s, ib_write_bw, 8 MiB)",
              fix="`preflight check` on both: PCIe link (pcie.nic-link), NUMA node, MTU, counters (--window 60)",
              **details)  # fmt: skip


def _latency(server: Half, client: Half) -> Iterator[Finding]:
    if hindered := hindrance(server, client):
        yield hindered
        return
    found = client.facts.parsed(client.key, perftest.parse_latency)
    measured = f"{found.typical_us:.4g} µs (median)"
    details: dict[str, Any] = {"found": f"{measured}, {found.messages} messages of {found.size} bytes",
                               "evidence": [client.key], "subject": f"{client.said.get('device')}"}  # fmt: skip
    if any(half.said.get("software") for half in (server, client)):
        yield unknown(f"{measured} between software devices, of which nothing is to be expected",
                      fix="judge it yourself, or test between real ports", **details)  # fmt: skip
    elif found.typical_us <= LATENCY_US:
        yield passed(f"{measured}, at most {LATENCY_US:g} is usual", **details)
    else:
        fix = "C-states and governor (`cpupower`), NUMA node of the test, hops between the two"
        yield warned(f"{measured}", expected=f"at most {LATENCY_US:g} µs between neighbours (OCI)", fix=fix, **details)


def _pingpong(server: Half, client: Half) -> Iterator[Finding]:
    if hindered := hindrance(server, client):
        yield hindered
        return
    found = client.facts.parsed(client.key, perftest.parse_pingpong)
    yield passed(f"{found.messages} messages went to {server.node} and back", evidence=[client.key],
                 subject=str(client.said.get("device")), found=f"{found.round_trip_us:g} µs each")  # fmt: skip


def _path_mtu(server: Half, client: Half) -> Iterator[Finding]:
    here, there = (half.said.get("interface_mtu") for half in (server, client))
    if here != there:
        yield failed(f"MTU {here} on {server.node}, {there} on {client.node}", found=f"{here} and {there} bytes",
                     expected="the same on both ends", evidence=["pair:path-mtu"],
                     fix="`ip link set IF mtu 9000` on both, and on all switch ports between them")  # fmt: skip
    told = {half.node: _way(half, other) for half, other in ((server, client), (client, server))}
    found = {node: finding for node, finding in told.items() if finding}
    if len({finding.message for finding in found.values()}) == 1:  # an answer is as large as its question
        yield next(iter(found.values()))
    else:
        yield from (replace(one, message=f"asked from {node}: {one.message}") for node, one in found.items())
    if not found and here == there:
        yield passed(f"{here} bytes pass undivided both ways", evidence=["pair:path-mtu"])


def _way(half: Half, other: Half) -> Finding | None:
    """Return what is wrong with the way from one side to the other; None if its interface's MTU passes."""
    sizes = half.said.get("sizes")
    mtu = half.said.get("interface_mtu")
    if not isinstance(sizes, dict) or not sizes or not isinstance(mtu, int):
        raise EvidenceError("pair:path-mtu", f"{half.node} has asked for no size")
    asked: dict[int, ping.Ping] = {}
    for size, key in sizes.items():
        record = half.facts.evidence.record(key)
        if record.status == "missing":
            return unknown(f"ping is not installed on {half.node}", evidence=[key],
                           fix=f"install `ping` (package iputils-ping) on {half.node}")  # fmt: skip
        if not record.ok:
            raise EvidenceError(key, record.describe())
        try:
            asked[int(size)] = ping.parse(f"{record.out}\n{record.err}")
        except ValueError as error:
            raise EvidenceError(key, f"cannot be read: {error}") from None
    passing = max((size for size, one in asked.items() if one.passes), default=None)
    limit = min(mtu, _mtu_of(other))
    if passing is not None and passing >= limit:
        return None
    if passing is None:
        first = asked[min(asked)]
        why = first.objection or "no answer and no error: no route, or ICMP is filtered"
        return unknown(f"not even {min(asked)} bytes pass: {why}", evidence=[sizes[str(min(asked))]],
                       fix=f"`ip route get {other.said.get('address')}`, `ip neigh` on {half.node}")  # fmt: skip
    size = min(one for one in asked if one > passing)
    stopped, keys = asked[size], [sizes[str(size)], sizes[str(passing)]]
    bound = f"{passing} bytes" if size - passing == 1 else f"between {passing} and {size} bytes"
    details: dict[str, Any] = {"found": f"{bound} pass", "expected": f"{limit} bytes, the MTU of the interface",
                               "evidence": keys, "subject": str(half.said.get("interface", ""))}  # fmt: skip
    fix = f"raise the MTU of the switch port or VLAN on the way (9216 is usual) to that of the hosts, {mtu}"
    if stopped.silent:
        return failed(f"an MTU black hole: {passing} bytes pass, {size} vanish without an error", fix=fix,
                      why="A connection opens, small messages pass, and the first large one hangs until it times out: "
                      "neither RDMA nor TCP is told that its packets are too large.", **details)  # fmt: skip
    told = stopped.reported_mtu or stopped.local_mtu
    if told and told < mtu:
        return failed(f"a router on the way carries {told} bytes and says so", fix=fix, **details)
    said = stopped.objection or f"refused by {half.node} itself"
    return failed(f"{passing} bytes pass, {size} do not: {said}", fix=fix, **details)


def _mtu_of(half: Half) -> int:
    mtu = half.said.get("interface_mtu")
    return mtu if isinstance(mtu, int) else 1 << 16


def _checked(name: str, title: str, source: str, judge: Callable[[Half, Half], Iterator[Finding]], doc: str) -> Check:
    """Make the check of one test."""

    def run(nodes: Sequence[NodeFacts], sites: Mapping[str, Site]) -> Iterator[Finding]:
        return _each(nodes, name, judge)

    run.__doc__ = doc
    fix = "`preflight check --hosts` of both nodes, then the same test against a third."
    return check(f"pair.{name}", title=title, source=source, fix=fix, scope="fleet")(run)


PERFTEST = "linux-rdma/perftest; AzNHC and OCI multi-node checks (380 or 384 of 400 Gb/s)"

CHECKS = {
    "path-mtu": _checked(
        "path-mtu", "Packets of the interface's MTU pass undivided", "ping(8) -M do; RFC 2923", _path_mtu,
        """Find the largest packet that passes each way with "do not fragment", from the interface's MTU downwards.

        A switch port with a smaller MTU drops large packets without a word: connections open, the first large
        message hangs, and every host looks healthy by itself.
        """,
    ),
    "pingpong": _checked(
        "pingpong", "RDMA messages pass both ways", "rdma-core libibverbs/examples", _pingpong,
        """Hold a reliable connection between two ports and send messages to and fro.

        Where this fails no rate is worth measuring: a job hangs in its first collective.
        """,
    ),
    "write-bw": _checked(
        "write-bw", "RDMA writes reach the line rate", PERFTEST, _bandwidth,
        """Compare the bandwidth of RDMA writes with the line rate of the slower of the two ports.

        Every ring through this pair runs at its pace: one pair at half rate doubles the time of a collective.
        """,
    ),
    "read-bw": _checked(
        "read-bw", "RDMA reads reach the line rate", PERFTEST, _bandwidth,
        """Compare the bandwidth of RDMA reads with the line rate of the slower of the two ports.

        Storage and one-sided libraries read; a limit on outstanding reads or on PCIe reads shows only here.
        """,
    ),
    "write-lat": _checked(
        "write-lat", "A small RDMA write is quick", "OCI multi-node checks (5 µs)", _latency,
        """Compare the median time of a small RDMA write with what operators see between neighbours.

        Small collectives are bound by latency, and each hop of a ring or tree pays it.
        """,
    ),
}  # fmt: skip
