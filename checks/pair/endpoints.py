"""The two endpoints of a pair test, and reasons why it did not complete."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from preflight import parsers
from preflight._startup.lightclass import dataclass, replace
from preflight.evidence.document import EvidenceError
from preflight.facts.host import size_text
from preflight.facts.node import NodeFacts
from preflight.model import Finding, failed, unknown

#: Maximum number of output lines in a finding.
_QUOTED = 6

#: Debian package of each tool; all other tools are in perftest.
PACKAGES = {"ibv_rc_pingpong": "ibverbs-utils", "ping": "iputils-ping", "stdbuf": "coreutils"}


@dataclass(frozen=True)
class Endpoint:
    """One side of a test: its node, its parameters and the record of its command."""

    facts: NodeFacts
    parameters: Mapping[str, Any]

    @property
    def node(self) -> str:
        """The name of the node."""
        return self.facts.node

    @property
    def key(self) -> str:
        """The key of its command's record."""
        return str(self.parameters.get("command", ""))

    @property
    def text(self) -> str:
        """Everything that its command printed."""
        record = self.facts.evidence.record(self.key)
        return f"{record.out}\n{record.err}"

    @property
    def status(self) -> str:
        """The outcome of the command as a record's status.

        An exit status other than 0 is "failed".
        """
        record = self.facts.evidence.record(self.key)
        return "failed" if record.ok and record.rc else record.status

    @property
    def tool(self) -> str:
        """The name of the program if it is not installed, else empty."""
        record = self.facts.evidence.record(self.key)
        words = self.key.partition(":")[2].split()
        if record.status == "missing":
            return words[0]
        return words[2] if record.rc == 127 and words[:1] == ["stdbuf"] and len(words) > 2 else ""


def pairs(nodes: Sequence[NodeFacts], test: str) -> Iterator[tuple[Endpoint, Endpoint] | Finding]:
    """Yield the server and client of each test with this name.

    A test that could not run, or whose client saved no evidence, yields a finding instead, and so does a missing test.
    """
    by_name = {node.node: node for node in nodes}
    key = f"pair:{test}"
    found = False
    for node in nodes:
        if key not in node.evidence:
            continue
        record = node.evidence.record(key)
        parameters = record.value if isinstance(record.value, dict) else {}
        if parameters.get("role") != "server":
            continue
        found = True
        peer = by_name.get(str(parameters.get("peer")))
        if not record.ok:
            names = [node.node, *([peer.node] if peer else [])]
            fix = "run `rdma link` and `show_gids`, or use --device"
            make_finding = unknown if parameters.get("unread") else failed
            yield make_finding(record.why or record.describe(), evidence=[key], fix=fix).on(names)
        elif peer is None or key not in peer.evidence:
            message = f"evidence is missing from {parameters.get('peer')}, the other side of {node.node}"
            yield unknown(message).on([node.node])
        else:
            yield Endpoint(node, parameters), Endpoint(peer, peer.evidence.value(key))
    if not found:
        yield unknown("this test was not run", fix="run `preflight pair HOST HOST`")


def each(
    nodes: Sequence[NodeFacts], test: str, judge: Callable[[Endpoint, Endpoint], Iterator[Finding]]
) -> Iterator[Finding]:
    """Yield the findings of every test of this name, for both nodes."""
    for test_ends in pairs(nodes, test):
        if isinstance(test_ends, Finding):
            yield test_ends
            continue
        names = [endpoint.node for endpoint in test_ends]
        try:
            for finding in judge(*test_ends):
                yield _quoting(finding, test_ends).on(names)
        except EvidenceError as error:
            yield unknown(str(error), evidence=[error.key]).on(names)


def each_finished(
    nodes: Sequence[NodeFacts], test: str, judge: Callable[[Endpoint, Endpoint], Iterator[Finding]]
) -> Iterator[Finding]:
    """Yield the findings of completed tests, and the causes of incomplete ones."""

    def unless_hindered(server: Endpoint, client: Endpoint) -> Iterator[Finding]:
        hindered = hindrance(server, client)
        return iter([hindered]) if hindered else judge(server, client)

    return each(nodes, test, unless_hindered)


def _quoting(finding: Finding, endpoints: Sequence[Endpoint]) -> Finding:
    """Add the end of the command's output to a finding: a table or an error."""
    endpoint = next((endpoint for endpoint in endpoints if endpoint.key and endpoint.key in finding.evidence[:1]), None)
    if endpoint is None or endpoint.key not in endpoint.facts.evidence:
        return finding
    lines = [line for line in endpoint.text.splitlines() if line.strip(" -*")]
    return replace(finding, quote="\n".join(lines[-_QUOTED:])[:1200])


# --- why a test did not finish ----------------------------------------------------------------------


def hindrance(server: Endpoint, client: Endpoint) -> Finding | None:
    """Return the finding for an incomplete test; None if it completed."""
    keys = [client.key, server.key]
    for endpoint in (server, client):
        if endpoint.tool:
            package = PACKAGES.get(endpoint.tool, "perftest")
            return unknown(f"{endpoint.tool} is not installed on {endpoint.node}", evidence=[endpoint.key],
                           fix=f"install `{endpoint.tool}` (package {package}) on {endpoint.node}")  # fmt: skip
    if client.status == "ok":
        return None
    return replace(_hindrance(server, client, keys), why="A job on this path would have the same problem.")


def _hindrance(server: Endpoint, client: Endpoint, keys: list[str]) -> Finding:
    for endpoint in (server, client):
        cause = parsers.network.perftest.cause(endpoint.text)
        if cause and cause not in (
            parsers.network.perftest.PerftestError.CONNECT,
            parsers.network.perftest.PerftestError.QUEUE,
        ):
            return _caused(cause, endpoint, server, client)
    if empty := [
        endpoint
        for endpoint in (server, client)
        if endpoint.parameters.get("gid_index") is not None and _no_address(endpoint)
    ]:
        return _caused(parsers.network.perftest.PerftestError.GID, empty[0], server, client)
    causes = {parsers.network.perftest.cause(endpoint.text) for endpoint in (server, client)}
    met = any(parsers.network.perftest.connected(endpoint.text) for endpoint in (server, client))
    if parsers.network.perftest.PerftestError.QUEUE in causes:
        return _caused(parsers.network.perftest.PerftestError.QUEUE, client, server, client)
    if client.status == "timeout" and met:
        return _caused(parsers.network.perftest.PerftestError.PATH, client, server, client)
    if parsers.network.perftest.PerftestError.CONNECT in causes or (
        client.status == "timeout" and server.status == "timeout"
    ):
        return _caused(parsers.network.perftest.PerftestError.CONNECT, client, server, client)
    record = client.facts.evidence.record(client.key)
    last = next((line.strip() for line in reversed(client.text.splitlines()) if line.strip()), "")
    why = record.describe() or f"exit status {record.rc}" + (f": {last[:160]}" if last else "")
    return unknown(f"the test did not complete: {why}", evidence=keys)


def _no_address(endpoint: Endpoint) -> bool:
    return not endpoint.parameters.get("gid") or str(endpoint.parameters["gid"]).startswith(":: ")


def _caused(
    cause: parsers.network.perftest.PerftestError, endpoint: Endpoint, server: Endpoint, client: Endpoint
) -> Finding:
    """Return the finding for a known cause, with its fix."""
    parameters, keys = endpoint.parameters, [endpoint.key]
    device, address, port = parameters.get("device"), server.parameters.get("address"), server.parameters.get("port")
    if cause is parsers.network.perftest.PerftestError.GID:
        rows = "; ".join(
            f"on {end.node}, index {used.get('gid_index')} is {used.get('gid') or 'missing or empty'}"
            for end in (server, client)
            for used in [end.parameters]
        )
        return failed(f"the GID index is not usable: {rows}", subject=str(device), evidence=keys,
                      expected="on both sides a RoCE v2 entry with an IP address of the same version",
                      fix="omit --gid-index, or use the index from `show_gids` (RoCE v2, IPv4)")  # fmt: skip
    if cause in (parsers.network.perftest.PerftestError.CUDA, parsers.network.perftest.PerftestError.DMA_BUF):
        return unknown(f"perftest on {endpoint.node} was {cause.value}, so GPU memory was not measured", evidence=keys,
                       fix="build perftest with CUDA (`./configure CUDA_H_PATH=.../cuda.h`)" + (
                           ", or run `modprobe nvidia-peermem`"
                           if cause is parsers.network.perftest.PerftestError.DMA_BUF else ""))  # fmt: skip
    if cause is parsers.network.perftest.PerftestError.MEMORY and parameters.get("gpu"):
        return failed(f"{device} of {endpoint.node} cannot access the memory of GPU {parameters['gpu']}",
                      subject=str(device), evidence=keys,
                      fix="run `modprobe nvidia-peermem`, or install the driver's open kernel modules (DMA-BUF); see "
                      "gpudirect.peer-memory")  # fmt: skip
    if cause is parsers.network.perftest.PerftestError.MEMORY:
        try:
            limit = f"{size_text(endpoint.facts.memlock_bytes)} of locked memory allowed"
        except EvidenceError:
            limit = "its limit of locked memory is not known"
        fix = "set `ulimit -l unlimited`, and LimitMEMLOCK=infinity for sshd and slurmd; see host.memlock"
        return failed(f"{endpoint.node} cannot register memory with {device}: {limit}", evidence=keys, fix=fix)
    if cause is parsers.network.perftest.PerftestError.DEVICE:
        fix = "check whether /dev/infiniband/uverbsN is readable (rdma.device-nodes), and run `rdma link`"
        return failed(f"{endpoint.node} cannot open {device}", subject=str(device), evidence=keys, fix=fix)
    if cause is parsers.network.perftest.PerftestError.PORT:
        return unknown(f"TCP port {port} is in use on {server.node}", evidence=keys, fix="use another port: --port")
    if cause is parsers.network.perftest.PerftestError.CONNECT:
        fix = f"run `ip route get {address}` on {client.node}; look for a firewall on {server.node}; or use --port"
        return failed(f"{client.node} cannot connect by TCP to {address} port {port} on {server.node}",
                      evidence=[client.key, server.key], fix=fix)  # fmt: skip
    if cause is parsers.network.perftest.PerftestError.QUEUE:
        gids = f"{client.parameters.get('gid')} to {server.parameters.get('gid')}"
        return failed(f"the queue pairs could not be connected: {client.node} cannot reach the GID of {server.node}",
                      found=gids, evidence=[client.key, server.key],
                      fix="run `rdma link` and `ip neigh`; both sides need one GID type, IP version and "
                      "partition")  # fmt: skip
    roce = server.parameters.get("roce")
    what = "UDP port 4791 is dropped on the path" if roce else "the path between the two LIDs drops them"
    fix = ("allow UDP 4791 on hosts (`nft list ruleset`) and switches; see path-mtu for packets that are too large"
           if roce else "run `ibtracert` between the two LIDs, and `ibqueryerrors`")  # fmt: skip
    return failed(f"TCP connects, but no RDMA packet is acknowledged: {what}", found="no answer",
                  evidence=[client.key, server.key], fix=fix)  # fmt: skip
