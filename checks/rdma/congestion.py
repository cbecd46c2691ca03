"""Checks of congestion over a window: pauses, ignored notifications."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from preflight import facts
from preflight.checks.applicability import no_compute_port
from preflight.checks.rdma.error_counters import MLX5
from preflight.checks.rdma.per_port import (
    about,
    is_complete,
    keys,
    no_judged_port,
    port_reporters,
    quoted,
    report_gaps,
    some,
    total,
)
from preflight.checks.window_load import IDLE, LOADED, UNDER_LOAD
from preflight.expectations import Site
from preflight.facts.node import NodeFacts
from preflight.model import Finding, check, passed, some_of, unknown, warned

if TYPE_CHECKING:
    from preflight.facts.counter_growth import PortGrowth
    from preflight.facts.port_stalls import Held

ITEMS = ("PA-19", "FP-CON-4", "NT-LENS-8")

#: Paused shares of the window: the first warns; the second fails if the port carries less than IDLE of its rate.
HELD, STUCK = 0.01, 0.5


@check(
    "counters.congestion",
    title="Congestion does not delay the traffic",
    fault="Congestion delays the traffic",
    impact="slows-job",
    owner="network",
    source=f"{MLX5}; IEEE 802.1Qbb; InfiniBand PortXmitWait; the shares of the window are a judgement",
    fix="For pauses, run `preflight check --window 60` on the peers to find the slow receiver. For ignored "
    "CNPs, run `echo 1 > /sys/class/net/IF/ecn/roce_rp/enable/3`. For global pause, run `ethtool -A IF rx off tx off`.",
    explains=(("counters.step-times", "log"),),
    action="fix-site",
    separate=True,
    answers=(*ITEMS, "FP-BW-4"),
    gating=False,
    window=True,
    unless=(no_compute_port, no_judged_port),
)
def congestion(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the paused share of the window of each compute port with 1%.

    ## Why it matters
    Congestion spreads: a receiver that pauses its switch causes that switch to pause others, and a ring runs at the
    pace of the port that waits longest.

    ## Verdicts
    A port that is paused for at least 1% of the window warns, in either direction: received pauses come from the
    fabric, sent pauses from a host that is too slow. A port that is paused for at least half of the window fails if it
    carries less than 5% of its rate. If a driver counts pauses but not their length, the share is an upper bound:
    below 1% it passes, otherwise it is unknown. InfiniBand's `port_xmit_wait` counts ticks of unspecified length: no
    growth passes, and growth is unknown.

    Two more cases warn: congestion notifications that are ignored because the sender's reaction point is off, and
    global pause on a lossless site, which stops traffic that PFC would not. Below half of a port's rate, it is unknown
    whether the fabric absorbs a burst. A pass states at how many RoCE ports ignored notifications are not counted.

    ## False alarms
    An incast by design, such as all ranks that write one checkpoint through one port.
    """
    ports = yield from report_gaps(node, site)
    read = [port for port in ports if is_complete(port, facts.counter_growth.SOURCES)]
    if not read:
        return
    loud = [*_ignored(read, site), *(one for port in read for one in _held(node, site, port))]
    yield from loud
    if not loud:
        yield passed(
            f"no port was paused for {HELD:.0%} of {facts.counter_growth.window_of(read)}{_notifications(read)}",
            found=_summary(read), evidence=keys(read[0].growths)[:3],
        ).about(*ITEMS)  # fmt: skip
    yield _burst(read)


def _notifications(ports: Sequence[PortGrowth]) -> str:
    """Describe whether notifications are ignored, which not all drivers count."""
    roce = [port for port in ports if port.port.roce]
    uncounted = [port for port in roce if not port.matching("rp_cnp_ignored")]
    if uncounted:
        where = some_of(len(uncounted), len(roce), "RoCE port")
        return f"; ignored congestion notifications are not counted at {where}"
    return ", and none ignores congestion notifications" if roce else ""


def _ignored(ports: Sequence[PortGrowth], site: Site) -> Iterator[Finding]:
    """Yield ports that ignore congestion notifications, or use global pause."""
    for port in ports:
        if ignored := total(port, "rp_cnp_ignored"):
            yield warned(
                f"{port.port.name} ignores congestion notifications: its reaction point is off",
                found=f"rp_cnp_ignored +{ignored} in {port.seconds:.0f} s",
                expected="no growth",
                **about(port, port.matching("rp_cnp_ignored")),
            ).about(*ITEMS)
        port_pauses = port.matching("[rt]x_global_pause")
        if site.lossless.value and any(one.grown for one in port_pauses):
            yield warned(
                f"{port.port.name} uses global pause, although this site uses priority flow control",
                found=", ".join(f"{one.counter.name} +{one.grown}" for one in port_pauses),
                expected=f"PFC of one priority ({site.lossless.source})",
                **about(port, port_pauses),
            ).about(*ITEMS)


def _held(node: NodeFacts, site: Site, port: PortGrowth) -> Iterator[Finding]:
    """Judge the share of the window for which a port was paused, in each direction."""
    warn, fail = port_reporters(node, site)
    for hold in facts.port_stalls.held(port):
        growths = [one for one in port.growths if one.counter.name in hold.counters]
        at: dict[str, Any] = {"subject": port.port.name, "evidence": keys(growths or port.growths[:1])}
        at["quote"] = quoted(growths)
        if hold.share is None or (hold.bound and hold.share >= HELD):
            why = hold.why or f"at most {hold.share:.0%} of the window: only pauses are counted, not their length"
            yield unknown(f"{port.port.name}: how long it was paused is unknown: {why} ({hold.what})",
                          found=hold.what, fix="compare with the counters of the switch port", **at
                          ).about(*ITEMS, "FP-BW-4")  # fmt: skip
        elif hold.share >= HELD:
            carried = _carried(port, hold)
            stuck = hold.share >= STUCK and carried is not None and carried < IDLE
            who = "was paused by its switch" if hold.way == "rx" else "paused its switch"
            sent = "sent" if hold.way == "rx" else "received"
            rate = f", and {sent} at {carried:.1%} of its rate" if carried is not None else ""
            yield (fail if stuck else warn)(
                f"{port.port.name} {who} for {hold.share:.1%} of {port.seconds:.0f} s{rate}",
                found=f"{hold.share:.1%} of the window ({hold.what})", expected=f"less than {HELD:.0%}", **at
            ).about(*ITEMS, "FP-BW-4")  # fmt: skip


def _carried(port: PortGrowth, hold: Held) -> float | None:
    """Return the share of its rate that a paused port carried; None if unknown."""
    if port.gbps is None or not port.port.rate_gbps:
        return None
    sent, received = port.gbps
    return (sent if hold.way == "rx" else received) / port.port.rate_gbps


def _summary(ports: Sequence[PortGrowth]) -> str:
    """Return the longest pause of all ports, with ECN marks and notifications."""
    holds = [(hold.share or 0.0, port.port.name, hold) for port in ports for hold in facts.port_stalls.held(port)]
    longest = "no port can be paused: PFC and pauses are off"
    if holds:
        share, name, hold = max(holds, key=lambda one: one[0])
        longest = f"longest pause: {name}, {'at most ' * hold.bound}{share:.2%} of the window ({hold.what})"
    marked, cnps = (sum(total(port, name) for port in ports) for name in ("np_ecn_marked_.*", "rp_cnp_handled"))
    return f"{longest}; {marked} packets ECN-marked, {cnps} CNPs handled"


def _burst(ports: Sequence[PortGrowth]) -> Finding:
    """Report whether the fabric absorbed a burst.

    It did if no packet was discarded while the ports were busy.
    """
    loads = [port.load for port in ports if port.load is not None]
    evidence = keys(ports[0].growths)[:3]
    most = max(loads, default=0.0)
    if most < LOADED:
        return unknown(
            f"no burst occurred: the busiest port carried {100 * most:.0f}% of its rate",
            found=f"{100 * most:.0f}%", expected=f"at least {100 * LOADED:.0f}%, as in a collective",
            evidence=evidence, fix=UNDER_LOAD,
        ).about("FP-BW-4")  # fmt: skip
    loss = facts.counter_catalogue.CounterKind.LOSS
    dropped = [port.port.name for port in ports if any("discard" in one.counter.name for one in port.grown(loss))]
    if dropped:
        return warned(
            f"the fabric did not absorb the burst: packets were discarded at {some(dropped)}",
            found=f"discards at {100 * most:.0f}% of the rate", expected="no discards",
            evidence=evidence, fix="see counters.loss",
        ).about("FP-BW-4")  # fmt: skip
    return passed(f"no packet was discarded at {100 * LOADED:.0f}% or more of a port's rate",
                  found=f"{100 * most:.0f}% of the rate", evidence=evidence).about("FP-BW-4")  # fmt: skip
