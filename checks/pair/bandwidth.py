"""Checks of tests between two nodes (``preflight pair``).

Each check runs only if its test was carried out, now or in saved evidence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from preflight import parsers
from preflight.checks.pair.endpoints import Endpoint, each, each_finished
from preflight.checks.pair.path_mtu import path_mtu as path_judged
from preflight.expectations import Site
from preflight.facts.node import NodeFacts
from preflight.model import Finding, check, failed, passed, unknown, warned

#: Fractions of the line rate for large messages: below the first the check fails, below the second it warns. AzNHC
#: requires 380 of 400 Gb/s (H100), 360 (H200), 180 of 200, 96 of 100.
GATE, USUAL = 0.90, 0.95

#: Minimum message size in bytes for a comparison with the line rate; smaller ones are limited by the message rate.
LARGE = 1 << 20

#: Maximum time of a small write between neighbours, in microseconds (OCI's multi-node checks).
LATENCY_US = 5.0

#: Maximum ratio of the 99th percentile of small writes to their median: a judgement call.
TAIL = 2.0

Sites = Mapping[str, Site]


def _bandwidth(server: Endpoint, client: Endpoint) -> Iterator[Finding]:
    result = client.facts.parsed(client.key, parsers.network.perftest.parse_bandwidth)
    measured = f"{result.average_gbps:.4g} Gb/s"
    details = _details(client, f"{measured}, {result.messages} messages of {result.size} bytes")
    floor = client.parameters.get("at_least_gbps")
    if isinstance(floor, (int, float)):
        make_finding = passed if result.average_gbps >= floor else failed
        more = {} if make_finding is passed else {"expected": f"at least {floor:g} Gb/s (--at-least)"}
        word = "at least" if make_finding is passed else "less than"
        yield make_finding(f"the bandwidth is {measured}, {word} the required {floor:g} Gb/s", **details, **more)
        return
    if any(endpoint.parameters.get("software") for endpoint in (server, client)):
        yield unknown(f"the bandwidth between software devices is {measured}; they have no line rate to compare "
                      "it with",
                      fix="declare what to expect: --at-least GBPS", **details)  # fmt: skip
        return
    rates = {endpoint.node: endpoint.parameters.get("rate_gbps") for endpoint in (server, client)}
    known = [rate for rate in rates.values() if isinstance(rate, (int, float)) and rate > 0]
    if len(known) < 2 or result.size < LARGE:
        small = f"messages below {LARGE} bytes do not fill a link"
        why = small if len(known) == 2 else "the rate of a port is not known"
        yield unknown(
            f"the bandwidth is {measured}, but {why}", fix="declare what to expect: --at-least GBPS", **details
        )
        return
    rate = min(known)
    share, slow = result.average_gbps / rate, " and ".join(node for node, one in rates.items() if one == rate)
    summary = f"the bandwidth is {measured}, {share:.0%} of the {rate:g} Gb/s line rate"
    if share >= USUAL:
        yield passed(summary, **details)
        return
    make_finding = failed if share < GATE else warned
    yield make_finding(f"{summary} of {slow}",
              expected=f"at least {GATE:.0%}, usually {USUAL:.0%} (AzNHC: 380 of 400 Gb/s, ib_write_bw, 8 MiB)",
              fix="run `preflight check` on both; look at PCIe link, NUMA node, MTU, counters (--window 60)",
              **details)  # fmt: skip


def _latency(server: Endpoint, client: Endpoint) -> Iterator[Finding]:
    result = client.facts.parsed(client.key, parsers.network.perftest.parse_latency)
    measured = f"{result.typical_us:.4g} µs (median)"
    details = _details(client, f"{measured}, {result.messages} messages of {result.size} bytes")
    if any(endpoint.parameters.get("software") for endpoint in (server, client)):
        yield unknown(f"the latency between software devices is {measured}; no value is expected of them",
                      fix="test between real ports", **details)  # fmt: skip
        return
    fix = "check C-states and governor (`cpupower`), the NUMA node of the test, and the hops between the nodes"
    p99, tail = result.p99_us, ""
    if p99 is not None:
        tail = f"; 99% of the writes take at most {p99:.4g} µs"
    good = result.typical_us <= LATENCY_US
    if not good:
        yield warned(
            f"the latency is {measured}, more than {LATENCY_US:g} µs",
            expected=f"at most {LATENCY_US:g} µs between neighbours (OCI)",
            fix=fix,
            **details,
        )
    if p99 is not None and p99 > max(TAIL * result.typical_us, LATENCY_US):
        good = False
        yield warned(f"the slowest 1% of the writes take at least {p99:.4g} µs, compared with {measured}",
                     expected=f"99% within {TAIL:g} times the median (a judgement)",
                     fix="look for other traffic on the path (`preflight check --window 60`), C-states and interrupts",
                     **details)  # fmt: skip
    if good:
        yield passed(f"the latency is {measured}{tail}", **details)


def _pingpong(server: Endpoint, client: Endpoint) -> Iterator[Finding]:
    result = client.facts.parsed(client.key, parsers.network.perftest.parse_pingpong)
    summary = f"{result.messages} messages reached {server.node} and came back"
    yield passed(summary, **_details(client, f"{result.round_trip_us:g} µs each"))


def _details(client: Endpoint, found: str) -> dict[str, Any]:
    """Return the details of a finding; the client's output is evidence for both sides."""
    return {"found": found, "evidence": [client.key], "subject": str(client.parameters.get("device"))}


#: Fix for tests between GPU memories.
FIX_GPU = "Run the same test without `-gpu`: if it is fast, look at gpudirect.path and gpudirect.iommu of both nodes."

PERFTEST = "linux-rdma/perftest; AzNHC and OCI multi-node checks (380 or 384 of 400 Gb/s)"
FIX = "Run `preflight check --hosts NODES` with both nodes, then run the same test against a third node."


@check(
    "pair.path-mtu",
    title="Packets of the interface's MTU pass unfragmented",
    fault="Packets of the interface's MTU do not pass unfragmented",
    impact="blocks-job",
    owner="network",
    source="ping(8) -M do; RFC 2923",
    fix=FIX,
    action="fix-site",
    scope="fleet",
    pair="path-mtu",
)
def path_mtu(nodes: Sequence[NodeFacts], sites: Sites) -> Iterator[Finding]:
    """Find the largest packet that passes unfragmented in each direction.

    The packets have the flag "do not fragment"; the largest has the interface's MTU.

    ## Why it matters
    A switch port with a smaller MTU silently drops large packets: connections open, the first large message hangs, and
    every host looks healthy.

    ## Verdicts
    The check passes if packets of the interface's MTU are answered in both directions. It fails if only smaller ones
    are answered, or if the MTUs of the two interfaces differ. If not even the smallest packet is answered, the result
    is unknown.

    ## False alarms
    A firewall that passes small echo requests and drops large ones.
    """
    return each(nodes, "path-mtu", path_judged)


@check(
    "pair.pingpong",
    title="RDMA messages pass both ways",
    fault="RDMA messages do not pass both ways",
    impact="blocks-job",
    owner="network",
    source="rdma-core libibverbs/examples, ibv_rc_pingpong(1)",
    fix=FIX,
    scope="fleet",
    pair="pingpong",
)
def pingpong(nodes: Sequence[NodeFacts], sites: Sites) -> Iterator[Finding]:
    """Send messages both ways over a reliable connection between two ports.

    ## Why it matters
    If this fails, a job hangs in its first collective, although both ports report that they are up.

    ## Verdicts
    The check passes if all messages came back, fails if the cause is known (GID, memory, path), and is unknown
    otherwise.

    ## False alarms
    A firewall between the hosts that blocks the test's TCP port but not RDMA; use --port.
    """
    return each_finished(nodes, "pingpong", _pingpong)


@check(
    "pair.write-bw",
    title="RDMA writes reach the line rate",
    fault="RDMA writes stay below the line rate",
    impact="slows-job",
    owner="network",
    source=PERFTEST,
    fix=FIX,
    answers=("PA-13", "NT-GDR-2"),
    scope="fleet",
    pair="write-bw",
)
def write_bw(nodes: Sequence[NodeFacts], sites: Sites) -> Iterator[Finding]:
    """Compare the bandwidth of RDMA writes with the line rate.

    The slower of the two ports sets the limit.

    ## Why it matters
    Every ring through this pair runs at the rate of the pair: one pair at half rate doubles the time of a collective.

    ## Verdicts
    A bandwidth below 90% of the line rate fails, and below 95% warns; with --at-least, only that number applies.
    Software devices and messages below 1 MiB cannot be compared with a line rate, and are unknown.

    ## False alarms
    A job that uses one of the two ports at the same time.
    """
    return each_finished(nodes, "write-bw", _bandwidth)


@check(
    "pair.read-bw",
    title="RDMA reads reach the line rate",
    fault="RDMA reads stay below the line rate",
    impact="slows-job",
    owner="network",
    source=PERFTEST,
    fix=FIX,
    answers=("NT-GDR-2",),
    scope="fleet",
    pair="read-bw",
)
def read_bw(nodes: Sequence[NodeFacts], sites: Sites) -> Iterator[Finding]:
    """Compare the bandwidth of RDMA reads with the line rate.

    The slower of the two ports sets the limit.

    ## Why it matters
    Storage and one-sided libraries use reads; limits on outstanding reads or on PCIe reads show only here.

    ## Verdicts
    The limits are those of writes: a bandwidth below 90% fails, and below 95% warns; with --at-least, only that
    number applies.

    ## False alarms
    A job that uses one of the two ports at the same time.
    """
    return each_finished(nodes, "read-bw", _bandwidth)


@check(
    "pair.write-bw-gpu",
    title="RDMA writes between GPU memories reach the line rate",
    fault="RDMA writes between GPU memories stay below the line rate",
    impact="slows-job",
    owner="network",
    source=PERFTEST,
    fix=FIX_GPU,
    answers=("NT-GDR-2",),
    scope="fleet",
    pair="write-bw-gpu",
)
def write_bw_gpu(nodes: Sequence[NodeFacts], sites: Sites) -> Iterator[Finding]:
    """Compare the bandwidth of RDMA writes between GPU memories with the line rate.

    Each side uses the GPU nearest to its port.

    ## Why it matters
    NCCL sends from GPU memory. A path that is fast between host memories may still be slow to a GPU, because of PCIe
    access control (ACS), an IOMMU, or a NIC that is far from the GPU.

    ## Verdicts
    The limits are those of pair.write-bw. If the NIC cannot access the memory of the GPU, the check fails; if perftest
    was built without CUDA, the result is unknown.

    ## False alarms
    A job that uses one of the two ports or GPUs at the same time.
    """
    return each_finished(nodes, "write-bw-gpu", _bandwidth)


@check(
    "pair.read-bw-gpu",
    title="RDMA reads between GPU memories reach the line rate",
    fault="RDMA reads between GPU memories stay below the line rate",
    impact="slows-job",
    owner="network",
    source=PERFTEST,
    fix=FIX_GPU,
    answers=("NT-GDR-2",),
    scope="fleet",
    pair="read-bw-gpu",
)
def read_bw_gpu(nodes: Sequence[NodeFacts], sites: Sites) -> Iterator[Finding]:
    """Compare the bandwidth of RDMA reads between GPU memories with the line rate.

    Each side uses the GPU nearest to its port.

    ## Why it matters
    A read fetches data from the GPU of the other node over PCIe. ACS, an IOMMU or a small PCIe read size slows reads
    down more than writes.

    ## Verdicts
    The limits are those of pair.write-bw. If the NIC cannot access the memory of the GPU, the check fails; if perftest
    was built without CUDA, the result is unknown.

    ## False alarms
    A job that uses one of the two ports or GPUs at the same time.
    """
    return each_finished(nodes, "read-bw-gpu", _bandwidth)


@check(
    "pair.write-lat",
    title="Small RDMA writes have low, consistent latency",
    fault="Small RDMA writes have high or inconsistent latency",
    impact="slows-job",
    owner="network",
    source="OCI multi-node checks (5 µs); the spread is a judgement",
    fix=FIX,
    answers=("AN-8",),
    scope="fleet",
    pair="write-lat",
)
def write_lat(nodes: Sequence[NodeFacts], sites: Sites) -> Iterator[Finding]:
    """Judge the latency of small RDMA writes between two nodes.

    The median is compared with 5 µs, and the 99th percentile with the median.

    ## Why it matters
    Latency limits small collectives, at each hop of a ring or tree. A collective waits for its slowest message, so
    rare slow messages slow it down.

    ## Verdicts
    A median above 5 µs warns, and so does a 99th percentile above twice the median and above 5 µs. Software devices
    have no expected latency, and are unknown.

    ## False alarms
    Two nodes that are many hops apart by design, or a busy core at either end.
    """
    return each_finished(nodes, "write-lat", _latency)


#: Checks by the name of their test.
CHECKS = {one.pair: one for one in (path_mtu, pingpong, write_bw, read_bw, write_bw_gpu, read_bw_gpu, write_lat)}
