"""Traffic over a window: how much each port carried, how evenly, held up by what, and with what load on the CPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from preflight import facts
from preflight.checks.counters import MLX5
from preflight.checks.each_port import LOADED, UNDER_LOAD, about, keys, some, told, total, whole
from preflight.checks.presence import efa_only
from preflight.cluster import Site
from preflight.evidence import EvidenceError
from preflight.facts import NodeFacts
from preflight.facts.rdma import Port
from preflight.model import Finding, check, passed, skipped, unknown, warned

if TYPE_CHECKING:
    from preflight.facts.counter_table import Kind
    from preflight.facts.counters import PortGrowth


@check(
    "counters.visible",
    title="Throughput, errors, ECN and pauses of the ports can be seen",
    source=MLX5,
    fix="In a virtual machine or pod ask the host, which has the physical function; else update the driver, and read "
    "`ethtool -S IF` and /sys/class/infiniband/DEVICE/ports/1/hw_counters by hand.",
    answers=("FP-OBS-3", "FP-OBS-4", "FP-OBS-5", "FP-OBS-6", "NT-CNT-1", "FP-LOSS-3"),
    gating=False,
    window=True,
    reads=("file:/sys/class/infiniband/*/hca_type",),
)
def visible(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Look whether each active compute port tells its traffic, losses, ECN marks and pauses, twice.

    What nobody can see nobody can alarm on: a port without these counters loses packets in silence, and the job's
    slowness is looked for everywhere else.

    A driver that lacks the byte counters, the loss counters or, on RoCE, those of ECN warns; so does a lossless site
    whose PFC priority has no pause counter: the kernel shows it only while PFC is on. A source that did not answer is
    unknown.

    A false alarm: a virtual function, which never has the counters of the physical port.
    """
    ports = yield from told(node, site)
    read = [port for port in ports if whole(port, facts.counters.SOURCES)]
    if not read:
        return
    dark = [port for port in read if port.gbps is None and not _vague(port, facts.counter_table.Kind.TRAFFIC)]
    rates = [port.gbps for port in read if port.gbps is not None]
    evidence = keys(read[0].growths)[:3]
    if dark:
        yield _lacking(dark, "bytes sent and received", evidence).about("FP-OBS-3")
    if rates:
        sent, received = (sum(way) for way in zip(*rates, strict=True))
        yield passed(
            f"bytes sent and received are counted on {len(rates)} ports",
            found=f"sent {sent:.1f} Gb/s, received {received:.1f} Gb/s",
            evidence=evidence,
        ).about("FP-OBS-3")
    errors = ("FP-OBS-4", "NT-CNT-1", "FP-LOSS-3")
    blind = [port for port in read if not _counts_losses(port)]
    if blind:
        yield _lacking(blind, "retransmissions and time-outs", evidence).about(*errors)
    else:
        number = len([one for one in read[0].growths if one.counter.kind is facts.counter_table.Kind.LOSS])
        yield passed(f"{number} loss counters on each of {len(read)} ports", evidence=evidence).about(*errors)
    yield _ecn_seen(read, evidence).about("FP-OBS-5")
    yield _pauses_seen(node, site, read, evidence).about("FP-OBS-6")


def _counts_losses(port: PortGrowth) -> bool:
    said = [(one.counter, one.key) for one in port.growths] + [(one.counter, one.key) for one in port.unclear]
    return any(known.kind is facts.counter_table.Kind.LOSS and key.endswith("hw_counters") for known, key in said)


def _vague(port: PortGrowth, kind: Kind) -> bool:
    return any(one.counter.kind is kind for one in port.unclear)


def _lacking(ports: Sequence[PortGrowth], what: str, evidence: Sequence[str]) -> Finding:
    names = [port.port.name for port in ports]
    return warned(
        f"the driver does not count {what} on {some(names)}",
        subject=names[0] if len(names) == 1 else "",
        found="no such counters",
        expected="counters as mlx5's physical function has them",
        evidence=evidence,
    )


def _ecn_seen(ports: Sequence[PortGrowth], evidence: Sequence[str]) -> Finding:
    roce = [port for port in ports if port.port.roce]
    if skip := efa_only([port.port for port in ports], "whose driver counts no ECN marks"):
        return skip
    if not roce:
        return skipped("the compute ports are InfiniBand, which marks no packets with ECN of IP", evidence=evidence[:1])
    without = [port for port in roce if not port.matching("np_ecn_marked_roce_packets|rp_cnp_handled")]
    if without:
        return _lacking(without, "ECN marks and CNPs", evidence)
    marked = sum(total(port, "np_ecn_marked_roce_packets") for port in roce)
    sent, obeyed = (sum(total(port, name) for port in roce) for name in ("np_cnp_sent", "rp_cnp_handled"))
    found = f"{marked} packets marked, {sent} CNPs sent, {obeyed} obeyed"
    return passed(f"ECN marks and CNPs are counted on {len(roce)} ports", found=found, evidence=evidence)


def _pauses_seen(node: NodeFacts, site: Site, ports: Sequence[PortGrowth], evidence: Sequence[str]) -> Finding:
    roce = [port for port in ports if port.port.roce]
    if skip := efa_only([port.port for port in ports], "which have no pauses"):
        return skip
    if not roce:
        return skipped("the compute ports are InfiniBand, which has credits, no pauses", evidence=evidence[:1])
    priority = site.pfc_priority.value if site.lossless.value else None
    wanted = f"rx_prio{priority}_pause" if priority is not None else "rx_prio[0-7]_pause"
    without = [port.port.name for port in roce if not port.matching(wanted)]
    pauses = f"{sum(total(p, 'rx_prio[0-7]_pause') for p in roce)} pauses received, "
    pauses += f"{sum(total(p, 'tx_prio[0-7]_pause') for p in roce)} sent"
    if not without:
        return passed(f"pauses are counted on {len(roce)} ports", found=pauses, evidence=evidence)
    if priority is None:
        return skipped("no pause counter of any priority: PFC is off, and nothing asks for it", evidence=evidence[:3])
    if all(_pfc_is_off(node, port.port, priority) for port in roce if port.port.name in without):
        said = f"{some(without)}: PFC is off for priority {priority}, so nothing counts its pauses: roce.chain says so"
        return skipped(said, evidence=evidence[:3])
    virtual = any(facts.rdma.is_virtual_function(node.evidence, p.port.device) for p in roce if p.port.name in without)
    say = unknown if node.in_virtual_machine or node.in_container or virtual else warned
    return say(
        f"{some(without)}: no pause counter of priority {priority}: PFC is off there, or hidden from this function",
        evidence=evidence,
        fix="see roce.chain; in a virtual machine or pod ask the host",
        found=f"no {wanted}",
        expected=f"pause counters of priority {priority} ({site.pfc_priority.source})",
    )


def _pfc_is_off(node: NodeFacts, port: Port, priority: int) -> bool:
    """Tell whether a port is known to have no PFC for a priority; False where nobody could tell."""
    try:
        return priority not in facts.qos.pfc(node.evidence, port.netdev or "").value
    except EvidenceError:
        return False


@check(
    "counters.congestion",
    title="What held the traffic up, and whether it was too much",
    source=f"{MLX5}; IEEE 802.1Qbb; InfiniBand PortXmitWait",
    fix="Pauses: `preflight check --window 60` on the peers finds the slow receiver. CNPs ignored: `echo 1 > "
    "/sys/class/net/IF/ecn/roce_rp/enable/3`. Pauses of the whole port: `ethtool -A IF rx off tx off`.",
    answers=("PA-19", "FP-CON-4", "NT-LENS-8", "FP-BW-4"),
    gating=False,
    window=True,
)
def congestion(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Read waits, ECN marks, CNPs and pauses of each active compute port over the window.

    Congestion spreads: a receiver that pauses its switch makes that switch pause others, and a ring runs at the pace
    of the port that waits longest.

    Waiting itself is no fault and never fails: it explains what other checks find. Two things warn: congestion
    notifications that are ignored, because the sender's reaction point is off, and pauses of the whole port on a
    lossless site, which stop traffic that PFC should leave alone. Whether the fabric absorbs a burst is unknown below
    half of a port's rate.

    A false alarm: `port_xmit_wait` as a total, in ticks of no fixed length; here it is only told beside others.
    """
    ports = yield from told(node, site)
    read = [port for port in ports if whole(port, facts.counters.SOURCES)]
    if not read:
        return
    items = ("PA-19", "FP-CON-4", "NT-LENS-8")
    bad = False
    for port in read:
        if ignored := total(port, "rp_cnp_ignored"):
            bad = True
            yield warned(
                f"{port.port.name} ignores congestion notifications: its reaction point is off",
                found=f"rp_cnp_ignored +{ignored} in {port.seconds:.0f} s",
                expected="no growth",
                **about(port, port.matching("rp_cnp_ignored")),
            ).about(*items)
        whole_port = port.matching("[rt]x_global_pause")
        if site.lossless.value and any(one.grown for one in whole_port):
            bad = True
            yield warned(
                f"{port.port.name} pauses whole ports, though this site's pauses are per priority",
                found=", ".join(f"{one.counter.name} +{one.grown}" for one in whole_port),
                expected=f"PFC of one priority ({site.lossless.source})",
                **about(port, whole_port),
            ).about(*items)
    if not bad:
        found = f"{_held_up(read)}; {_waits(read)}"
        yield passed(f"no port ignores congestion notifications in {facts.counters.window_of(read)}",
                     found=found, evidence=keys(read[0].growths)[:3]).about(*items)  # fmt: skip
    yield _burst(read)


def _held_up(ports: Sequence[PortGrowth]) -> str:
    marked, cnps = (sum(total(port, name) for port in ports) for name in ("np_ecn_marked_.*", "rp_cnp_handled"))
    paused = sum(total(port, "rx_prio[0-7]_pause") for port in ports)
    held_us = max((total(port, "rx_prio[0-7]_pause_duration") for port in ports), default=0)
    said = f"{marked} packets ECN-marked, {cnps} CNPs obeyed, {paused} pauses received"
    share = held_us / (1e4 * max(port.seconds for port in ports))
    return f"{said}, no port held longer than {share:.2g} % of the time" if paused else said


def _waits(ports: Sequence[PortGrowth]) -> str:
    waits = {port.port.name: total(port, "port_xmit_wait") for port in ports}
    most = max(waits, key=lambda name: waits[name])
    return f"most waits: {most}, port_xmit_wait +{waits[most]} ticks" if waits[most] else "no port waited for credits"


def _burst(ports: Sequence[PortGrowth]) -> Finding:
    """Say whether the fabric took a burst: nothing discarded while the ports were busy."""
    loads = [port.load for port in ports if port.load is not None]
    evidence = keys(ports[0].growths)[:3]
    most = max(loads, default=0.0)
    if most < LOADED:
        return unknown(
            f"no burst was seen: the busiest port carried {100 * most:.0f} % of its rate",
            found=f"{100 * most:.0f} %", expected=f"at least {100 * LOADED:.0f} %, as in a collective",
            evidence=evidence, fix=UNDER_LOAD,
        ).about("FP-BW-4")  # fmt: skip
    loss = facts.counter_table.Kind.LOSS
    dropped = [port.port.name for port in ports if any("discard" in one.counter.name for one in port.grown(loss))]
    if dropped:
        return warned(
            f"the fabric did not absorb the burst: packets were discarded at {some(dropped)}",
            found=f"discards at {100 * most:.0f} % of the rate", expected="no discards",
            evidence=evidence, fix="see counters.loss",
        ).about("FP-BW-4")  # fmt: skip
    return passed(f"nothing was discarded at {100 * LOADED:.0f} % of a port's rate and more",
                  found=f"{100 * most:.0f} % of the rate", evidence=evidence).about("FP-BW-4")  # fmt: skip
