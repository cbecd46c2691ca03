"""Tests between two nodes (``preflight pair``): what they measured, or what kept them from it.

They are no part of the checks that every run plans: a test is judged where one was carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from preflight.checks.pair_path import path_mtu
from preflight.checks.pair_sides import Half, each, hindrance
from preflight.cluster import Site
from preflight.facts import NodeFacts, perftest
from preflight.model import Check, Finding, check, failed, passed, unknown, warned

#: Shares of the line rate that a write or read of large messages reaches: below the first a job is held back, below
#: the second something is odd. AzNHC asks for 380 of 400 Gb/s (H100), 360 (H200), 180 of 200, 96 of 100.
GATE, USUAL = 0.90, 0.95

#: Message size from which the line rate is the measure, bytes; smaller ones are bound by the messages per second.
LARGE = 1 << 20

#: Microseconds of a small write between neighbours (OCI's multi-node checks).
LATENCY_US = 5.0


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


def _checked(name: str, title: str, source: str, judge: Callable[[Half, Half], Iterator[Finding]], doc: str) -> Check:
    """Make the check of one test."""

    def run(nodes: Sequence[NodeFacts], sites: Mapping[str, Site]) -> Iterator[Finding]:
        return each(nodes, name, judge)

    run.__doc__ = doc
    fix = "`preflight check --hosts` of both nodes, then the same test against a third."
    return check(f"pair.{name}", title=title, source=source, fix=fix, scope="fleet")(run)


PERFTEST = "linux-rdma/perftest; AzNHC and OCI multi-node checks (380 or 384 of 400 Gb/s)"

CHECKS = {
    "path-mtu": _checked(
        "path-mtu", "Packets of the interface's MTU pass undivided", "ping(8) -M do; RFC 2923", path_mtu,
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
