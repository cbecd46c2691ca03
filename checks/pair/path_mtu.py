"""Check of the path MTU between two nodes, and the hop that limits it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from preflight import parsers
from preflight._startup.lightclass import replace
from preflight.checks.pair.endpoints import Endpoint
from preflight.evidence.document import EvidenceError
from preflight.model import Finding, failed, passed, unknown

#: Minimum overhead of a RoCE v2 packet in bytes: IPv4 20, UDP 8, base transport header 12, checksum 4 (IBTA annex A17).
ROCE_HEADERS = 44


def path_mtu(server: Endpoint, client: Endpoint) -> Iterator[Finding]:
    """Judge the pings of different sizes that each side sent."""
    here, there = (endpoint.parameters.get("interface_mtu") for endpoint in (server, client))
    if here != there:
        yield failed(
            f"the interfaces have different MTUs: {here} on {server.node} and {there} on {client.node}",
            found=f"{here} and {there} bytes",
            expected="the same on both ends",
            evidence=["pair:path-mtu"],
            fix="run `ip link set IF mtu 9000` on both, and set it on all switch ports between them",
        )
    problems = {endpoint.node: _way(endpoint, other) for endpoint, other in ((server, client), (client, server))}
    found = {node: finding for node, finding in problems.items() if finding}
    alike = len(found) == 2 and len({finding.message for finding in found.values()}) == 1
    if alike:  # a reply is as large as its request, so one obstacle stops both
        yield next(iter(found.values()))
    else:
        yield from (replace(one, message=f"from {node}: {one.message}") for node, one in found.items())
    if not found and here == there:
        yield passed(f"packets of {here} bytes pass unfragmented in both directions", evidence=["pair:path-mtu"])


def _way(endpoint: Endpoint, other: Endpoint) -> Finding | None:
    """Return the fault on the path to the other side; None if the MTU passes."""
    sizes = endpoint.parameters.get("sizes")
    mtu = endpoint.parameters.get("interface_mtu")
    if not isinstance(sizes, dict) or not sizes or not isinstance(mtu, int):
        raise EvidenceError("pair:path-mtu", f"{endpoint.node} tested no size")
    pings: dict[int, parsers.network.ping.Ping] = {}
    for size, key in sizes.items():
        record = endpoint.facts.evidence.record(key)
        if record.status == "missing":
            return unknown(f"ping is not installed on {endpoint.node}", evidence=[key],
                           fix=f"install `ping` (package iputils-ping) on {endpoint.node}")  # fmt: skip
        if not record.ok:
            raise EvidenceError(key, record.describe())
        try:
            pings[int(size)] = parsers.network.ping.parse(f"{record.out}\n{record.err}")
        except ValueError as error:
            raise EvidenceError(key, f"cannot be parsed: {error}") from None
    passing = max((size for size, one in pings.items() if one.passes), default=None)
    limit = min(mtu, _mtu_of(other))
    if passing is not None and passing >= limit:
        return None
    if passing is None:
        first, address = pings[min(pings)], other.parameters.get("address")
        why = first.objection or "there is neither an answer nor an error, so a route is missing or ICMP is filtered"
        return unknown(f"not even packets of {min(pings)} bytes pass: {why}", evidence=[sizes[str(min(pings))]],
                       fix=f"run `ip route get {address}` and `ip neigh` on {endpoint.node}")  # fmt: skip
    size = min(one for one in pings if one > passing)
    stopped, keys = pings[size], [sizes[str(size)], sizes[str(passing)]]
    bound = f"{passing} bytes" if size - passing == 1 else f"between {passing} and {size} bytes"
    rdma = endpoint.parameters.get("active_mtu")
    if isinstance(rdma, int) and rdma + ROCE_HEADERS > passing:
        bound += f", too few for this port's RDMA MTU of {rdma}"
    details: dict[str, Any] = {"found": f"passing: {bound}", "expected": f"{limit} bytes, the MTU of the interface",
                               "evidence": keys, "subject": str(endpoint.parameters.get("interface", ""))}  # fmt: skip
    fix = f"raise the MTU of the switch port or VLAN on the path (usually 9216) to that of the hosts, {mtu}"
    if stopped.silent:
        return failed(f"the path has an MTU black hole: packets of {passing} bytes pass, but {size} bytes vanish "
                      "without an error", fix=fix,
                      why="A connection opens, small messages pass, and the first large one hangs until it times out: "
                      "neither RDMA nor TCP learns that its packets are too large.", **details)  # fmt: skip
    carried = stopped.reported_mtu or stopped.local_mtu
    if carried and carried < mtu:
        return failed(
            f"a router on the path forwards packets of at most {carried} bytes, and rejects larger ones with an error",
            fix=fix,
            **details,
        )
    objection = stopped.objection or f"refused by {endpoint.node} itself"
    return failed(f"packets of {passing} bytes pass, but {size} bytes do not: {objection}", fix=fix, **details)


def _mtu_of(endpoint: Endpoint) -> int:
    mtu = endpoint.parameters.get("interface_mtu")
    return mtu if isinstance(mtu, int) else 1 << 16
