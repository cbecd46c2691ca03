"""Checks of counter growth between two readings.

Totals since boot are not judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from preflight import facts
from preflight.checks.applicability import efa_only, no_compute_port
from preflight.checks.host.kernel_links import LOST_WITH_LINK
from preflight.checks.rdma.per_port import (
    about,
    is_complete,
    judged_ports,
    keys,
    listing,
    no_judged_port,
    port_reporters,
    rate,
    report_gaps,
    unclear,
    unread,
    windows,
)
from preflight.expectations import Site
from preflight.facts.node import NodeFacts
from preflight.model import Finding, check, passed, some_of

if TYPE_CHECKING:
    from preflight.facts.counter_catalogue import CounterKind
    from preflight.facts.counter_growth import Growth, PortGrowth

MLX5 = "https://docs.kernel.org/networking/device_drivers/ethernet/mellanox/mlx5/counters.html"
_IBERRORS = "rdma-core ibcheckerrs and ibqueryerrors; NVSentinel nic-health-monitor"


def _reading(ports: Sequence[PortGrowth], kinds: set[CounterKind], what: str, of: int) -> Iterator[Finding]:
    """Report the ports with complete readings and no growth of these kinds."""
    sure = [port for port in ports if is_complete(port, facts.counter_growth.SOURCES, kinds)]
    if not sure:
        return
    loads = [port.load for port in sure if port.load is not None]
    busy = f", at up to {100 * max(loads):.0f}% of their rate" if loads else ""
    where = some_of(len(sure), of, "compute port")
    if what.startswith("no ") and len(sure) == of > 1:
        where = f"any of {of} compute ports"
    yield passed(
        f"{what} on {where} in {facts.counter_growth.window_of(sure)}{busy}",
        found="no growth",
        evidence=keys(sure[0].growths)[:3],
    )


#: Counters of queue pairs that died, which ends their job.
_DEADLY = frozenset({"req_transport_retries_exceeded", "req_rnr_retries_exceeded"})


def _impact(grown: Sequence[Growth]) -> str:
    """Return the impact if it differs from that of the check, else an empty string."""
    return "blocks-job" if any(growth.counter.name in _DEADLY for growth in grown) else ""


def _cause(port: PortGrowth, names: set[str]) -> str:
    """Return the likely cause of counters that grew together."""
    if names & _DEADLY:
        return "queue pairs failed, so NCCL reports error 12 and the job ends"
    if any("discard" in name and name != "port_xmit_discards" and not name.startswith("tx_") for name in names):
        return (
            "this NIC's port ran out of buffers, because no pause stopped the sender (PFC off or on another priority)"
        )
    if names & {"port_xmit_discards", "tx_discards_phy"}:
        return "packets were dropped on transmit: the link went down, or the next hop blocked for too long"
    if names & {"rx_icrc_encapsulated"}:
        return "packets arrive damaged: a bad cable, NIC or switch on the path"
    if names & {"tx_pause_storm_error_events"}:
        return "the NIC stopped pausing after a pause storm: its host accepted no packets"
    if names == {"out_of_sequence"}:
        return "packets arrived out of order: normal with adaptive routing, otherwise packet loss"
    if names & {"local_ack_timeout_err"} and not names & {"out_of_sequence", "packet_seq_err"}:
        return "acknowledgements timed out: packet loss, or peers that ended"
    return "packets are lost between the peers and retransmitted"


#: Findings of a campaign of nccl-tests that errors of a port explain.
IN_BENCH = (("bench.factor", "log"), ("bench.ports", "log"))


@check(
    "counters.loss",
    title="No packets are lost",
    fault="Packets are lost",
    impact="slows-job",
    owner="network",
    explains=(("counters.congestion", "names"), ("nccl.failures", "log"), *IN_BENCH),
    source=f"{_IBERRORS}; {MLX5}",
    fix="Run `preflight check --window 60` on the peers too: the end with NIC discards or link errors is the "
    "cause. Then check `ethtool -S IF | grep discard`, PFC at both ends of the cable, and `ibqueryerrors` on "
    "InfiniBand.",
    action="fix-site",
    separate=True,
    answers=("FP-LOSS-3", "PA-19", "AN-8", "NT-CNT-1"),
    window=True,
    unless=(no_compute_port, no_judged_port),
)
def loss(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare each loss counter of the compute ports at the start and end of a window.

    ## Why it matters
    After one lost packet, RDMA retransmits the rest of the message, and a queue pair that loses too many packets fails
    and ends the job. A loss rate that TCP tolerates can make every collective several times slower.

    ## Verdicts
    Any growth warns; retransmissions and gaps warn above one in a million received packets. A failed queue pair, a
    buffer overrun, or more than one acknowledgement time-out a second fails; the rate is a lower bound (growth minus
    twice its square root). A window of 60 s under traffic is best: an idle fabric loses no packets.

    ## False alarms
    `local_ack_timeout_err` of a job that ended within the window, and `out_of_sequence` alone with adaptive routing.
    Totals since boot, and counters that are saturated or wrapped, are never judged.
    """
    kind = facts.counter_catalogue.CounterKind.LOSS
    ports = yield from report_gaps(node, site, kind)
    warn, fail = port_reporters(node, site)
    clean = []
    for port in ports:
        grown = port.frequent(kind)
        if not grown:
            clean.append(port)
            continue
        bad = [one for one in grown if one.fails]
        worst = sorted(grown, key=lambda one: (not one.fails, -one.per_s))
        load = "" if port.load is None else f" while it carries {100 * port.load:.0f}% of its rate"
        yield (fail if bad else warn)(
            f"{port.port.name} loses packets{load}: {_cause(port, {one.counter.name for one in grown})}",
            found=f"{listing(worst[:4])} in {port.seconds:.0f} s",
            expected="no growth; gaps and retransmissions at most 1 in a million packets received",
            impact=_impact(bad),
            **about(port, worst),
        )
    yield from _reading(clean, {kind}, "no packet was lost", len(ports))


def no_damage_counted(node: NodeFacts, site: Site) -> Finding | None:
    """Skip EFA ports, whose driver counts no damaged packets."""
    return efa_only(judged_ports(node, site), "their driver counts no damaged packets")


@check(
    "counters.link-quality",
    title="Links do not damage packets",
    fault="A link damages packets",
    impact="slows-job",
    owner="network",
    explains=(
        ("counters.flaps", "part"),
        ("kernel.events", "part", "*", "the link of *"),
        ("counters.loss", "part", "*", "*arrive damaged*"),
        *LOST_WITH_LINK,
        ("trend.links", "part"),
        ("nccl.failures", "log"),
        *IN_BENCH,
    ),
    source=f"{_IBERRORS}; {MLX5}; raw bit error ratio: Oracle's oci-hpc healthcheck",
    fix="Clean and reseat the cable, then swap it with a neighbour's and check whether the errors move with it; "
    "then test the module and the port. `mlxlink -d DEVICE -m -c` shows the faulty lane.",
    answers=("AN-6", "NT-CNT-1"),
    window=True,
    unless=(no_compute_port, no_judged_port, no_damage_counted),
)
def link_quality(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare symbol, checksum and retraining counters over the window.

    ## Why it matters
    Each packet that a bad cable or module damages is retransmitted, and every ring waits for that port. Such a link may
    get worse and fail in the middle of a run.

    ## Verdicts
    Any growth warns. More than 120 symbol errors, 10 damaged packets or 300 retrainings an hour fail, based on a lower
    bound of the rate (growth minus twice its square root); so does any local integrity error. Bits corrected by FEC
    are normal and warn above a raw bit error ratio of 1e-7. A packet that was marked bad on an earlier link warns
    about that link.

    ## False alarms
    A cable that was plugged in during the window.
    """
    kinds = {facts.counter_catalogue.CounterKind.LINK, facts.counter_catalogue.CounterKind.ELSEWHERE}
    ports = yield from report_gaps(node, site, *kinds)
    warn, fail = port_reporters(node, site)
    clean = []
    for port in ports:
        own, other = (
            port.grown(facts.counter_catalogue.CounterKind.LINK),
            port.grown(facts.counter_catalogue.CounterKind.ELSEWHERE),
        )
        ratio = _raw_ratio(port)
        if own:
            worst = sorted(own, key=lambda one: (not one.fails, -one.per_s))
            yield (fail if worst[0].fails else warn)(
                f"the link of {port.port.name} has errors: {worst[0].counter.meaning}, {rate(worst[0].per_s)}",
                found=f"{listing(worst)} in {port.seconds:.0f} s",
                expected="no growth",
                **about(port, worst),
            )
        if other:
            yield warn(
                f"{port.port.name} receives packets that another link damaged",
                found=f"{listing(other)} in {port.seconds:.0f} s",
                expected="no growth",
                **about(port, other),
                fix="find the link: `ibqueryerrors` lists the port with a growing SymbolErrorCounter or PortRcvErrors",
            )
        if ratio is not None and ratio > 1e-7:
            key = port.matching("rx_corrected_bits_phy")[0].key
            yield warn(
                f"FEC of {port.port.name} corrects 1 bit in {1 / ratio:,.0f}",
                subject=port.port.name,
                found=f"raw bit error ratio {ratio:.2g}",
                expected="at most 1e-7",
                evidence=[key],
            )
        if not own and not other and not (ratio or 0) > 1e-7:
            clean.append(port)
    yield from _reading(clean, kinds, "no symbol error and no damaged packet", len(ports))


def _raw_ratio(port: PortGrowth) -> float | None:
    """Return the bit error ratio before FEC; None if unknown.

    An idle link also carries bits.
    """
    corrected, counted = port.named("rx_corrected_bits_phy"), port.named("rx_bits_phy")
    if corrected is None:
        return None
    bits = counted.grown if counted else (port.port.rate_gbps or 0) * 1e9 * corrected.seconds
    return corrected.grown / bits if bits else None


_FLAPS = ("counters", "ethtool", "carrier")


def no_flaps_counted(node: NodeFacts, site: Site) -> Finding | None:
    """Skip EFA ports, whose driver counts no link losses."""
    return efa_only(judged_ports(node, site), "their driver counts no flaps")


@check(
    "counters.flaps",
    title="No link flaps",
    fault="A link flaps",
    impact="blocks-job",
    owner="network",
    explains=(
        *LOST_WITH_LINK,
        ("kernel.events", "part"),
        ("trend.flaps", "part"),
        ("nccl.failures", "log"),
        *IN_BENCH,
    ),
    source=f"NVSentinel nic-health-monitor; rdma-core ibcheckerrs; {MLX5}",
    fix="Find the time with `dmesg -T | grep -i 'link down'`; reseat or replace the cable, then check the peer's "
    "port. Neighbours that flap together point to a restarted switch.",
    answers=("AN-6", "NT-CNT-1"),
    window=True,
    unless=(no_compute_port, no_judged_port, no_flaps_counted),
)
def flaps(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the number of link losses of each compute port over the window.

    The counters of the port, the driver and the carrier are read.

    ## Why it matters
    While a link is down, its queue pairs retry; after some seconds they fail, and the job ends. Once the link is up
    again, only the counters show the loss.

    ## Verdicts
    Any growth within the window fails. Earlier counts are ignored: each reboot and each pulled cable adds one, and the
    old 8-bit counter stops at 255.

    ## False alarms
    A switch reboot, or work on the cable, during the window; run the check again.
    """
    ports = windows(node, site)
    _, fail = port_reporters(node, site)
    steady, silent = [], []
    for port in ports:
        grown = port.grown(facts.counter_catalogue.CounterKind.FLAP)
        if grown:
            yield fail(
                f"{port.port.name} lost its link within {port.seconds:.0f} s",
                found=listing(grown),
                expected="no change",
                **about(port, grown),
            )
        elif any(one.counter.kind is facts.counter_catalogue.CounterKind.FLAP for one in port.growths):
            steady.append(port)
        else:
            silent.append(port)
    yield from unread(silent, _FLAPS)
    yield from unclear(silent, {facts.counter_catalogue.CounterKind.FLAP})
    if steady:
        before = any(one.counter.name == "link_downed" and one.before for port in steady for one in port.growths)
        history = "; earlier counts of link_downed are ignored" if before else ""
        yield passed(
            f"{some_of(len(steady), len(ports), 'compute port')} stayed up for "
            f"{facts.counter_growth.window_of(steady)}{history}",
            found="no change",
            evidence=keys(
                one for one in steady[0].growths if one.counter.kind is facts.counter_catalogue.CounterKind.FLAP
            ),
        )


@check(
    "counters.receiver",
    title="This host receives packets fast enough",
    fault="This host receives packets too slowly",
    impact="slows-job",
    source=f"{MLX5}; one packet in a million: as for loss",
    fix="Compare `pcie.nic-link`, `pcie.max-read-request`, `kernel.cpu-governor` and `numa.affinity`: the usual "
    "cause is a slow PCIe link or a busy CPU; otherwise the application posts too few receives.",
    explains=(("fabric.pause-root", "cable"),),
    action="fix-site",
    separate=True,
    answers=("PA-19", "FP-CON-1"),
    window=True,
    unless=(no_compute_port, no_judged_port),
)
def receiver(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the counters of missing receive buffers over the window.

    ## Why it matters
    A host that is too slow for its NIC loses packets or pauses its switch, and the pauses affect unrelated nodes: the
    slowest receiver sets the pace of all.

    ## Verdicts
    A growing number of receiver-not-ready answers warns, and so do dropped packets above one in a million received. A
    queue pair that gave up on a receiver fails.

    ## False alarms
    A job that starts or ends within the window, whose first messages find no buffer.
    """
    kind = facts.counter_catalogue.CounterKind.RECEIVER
    ports = yield from report_gaps(node, site, kind)
    warn, fail = port_reporters(node, site)
    clean = []
    for port in ports:
        grown = port.frequent(kind)
        if not grown:
            clean.append(port)
            continue
        pauses = sum(one.grown for one in port.matching("tx_(prio[0-7]|global)_pause"))
        held = f"; it paused its switch {pauses} times" if pauses else ""
        yield (fail if any(one.fails for one in grown) else warn)(
            f"{port.port.name} had no buffer for received packets: the host or the application is too slow",
            found=f"{listing(grown)} in {port.seconds:.0f} s{held}",
            expected="no growth; dropped packets at most 1 in a million",
            impact=_impact(grown),
            **about(port, grown),
        )
    yield from _reading(clean, {kind}, "every packet found a buffer", len(ports))
