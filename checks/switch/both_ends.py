"""Checks of the counters at both ends of a cable: lost links, pauses."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.checks.switch.common import listed
from preflight.checks.switch.links import no_cable
from preflight.expectations.switches_table import EthernetSite
from preflight.facts.switch import cable_ends
from preflight.facts.switch.ethernet import CableEnd, Ethernet, EthernetCable
from preflight.facts.switch.model import growth
from preflight.model import Finding, check, clause, counted, failed, none_of, passed, unknown, warned

#: Minimum number of pauses sent for a comparison, and minimum share of them that the other end must count: the two
#: windows begin some seconds apart. Judgement calls.
_PAUSES, _COUNTED = 100_000, 0.5

#: Share of the bytes by which counters of two vendors may differ: headers, preamble and checksum of short frames.
_OVERHEAD = 0.02


@check(
    "link.flaps",
    title="No cable lost its link",
    fault="A cable lost its link",
    impact="blocks-job",
    owner="network",
    source="SONiC swss-schema (PORT_TABLE flap_count); EOS linkStatusChanges; Linux carrier_changes, link_downed",
    fix="Reseat or replace the cable if both ends lost the link; otherwise start with the end that lost it.",
    explains=(("counters.flaps", "cable"), ("kernel.events", "cable", "*", "the link of *"), ("switch.bgp", "cable")),
    action="fix-site",
    separate=True,
    answers=("AN-6",),
    scope="fleet",
    switches=True,
    window=True,
    reads=("redis:APPL_DB PORT_TABLE", "eos:show interfaces"),
    unless=(no_cable,),
)
def flaps(net: Ethernet, site: EthernetSite) -> Iterator[Finding]:
    """Compare how often both ends of each cable lost the link in a window.

    ## Why it matters
    A link that comes back looks healthy, but its queue pairs retried or died meanwhile. Which end saw the loss shows
    whether the cable or a device is at fault.

    ## Verdicts
    Any loss in the window fails. If both ends lost the link, the cable or a module is at fault; if only the host did,
    its NIC or driver; if only a switch did, its port. The finding states if the other end was not counted. If neither
    end of a cable was counted twice, the result is unknown.

    ## False alarms
    A device that was restarted, or a cable that was moved, within the window.
    """
    steady = half = 0
    blank: list[str] = []
    for cable in net.cables:
        lost = [cable_ends.lost(net, end) for end in cable.ends]
        if any(lost):
            yield _flap(net, cable, lost[0], lost[1])
        elif lost == [None, None]:
            blank.append(str(cable))
        else:
            steady += 1
            half += None in lost
    if blank:
        yield unknown(f"it is unknown whether {counted(len(blank), 'cable')} lost the link: {listed(blank)}",
                      evidence=[net.switches[0].key("ports")],
                      fix="read the switches twice: `preflight check --switches --window 60`")  # fmt: skip
    if steady:
        only = f"; {clause(half, 'cable', 'is')} counted at one end only" if half else ""
        yield passed(f"{none_of(steady, 'cable')} lost its link{only}", evidence=[net.switches[0].key("ports")])


def _flap(net: Ethernet, cable: EthernetCable, near: int | None, far: int | None) -> Finding:
    counts = [
        f"{end}: {'not counted' if lost is None else lost}" for end, lost in zip(cable.ends, (near, far), strict=True)
    ]
    shown, owner = ", ".join(counts), ""
    if near and far:
        words = "both ends lost the link: suspect the cable or a module"
    elif None in (near, far):
        words = f"{cable.near if near else cable.other} lost the link; the other end was not counted"
    elif near:
        words = f"only {cable.near} lost the link: suspect its port or module"
    elif cable.other.is_switch:
        words = f"only {cable.other} lost the link: suspect its port or module"
    else:
        words, owner = f"only {cable.other} lost the link: suspect its NIC, firmware or driver", "node"
    keys = [net.by_name[cable.near.device].key("ports")]
    keys += [net.by_name[cable.other.device].key("ports")] if cable.other.is_switch else []
    return failed(f"{cable}: {words}{cable.note}", subject=str(cable), found=shown, expected="no change at either end",
                  evidence=keys, owner=owner)  # fmt: skip


@check(
    "link.counters-agree",
    title="Each end of a cable counts the bytes and pauses that the other sent",
    fault="An end of a cable does not count the bytes or pauses that the other sent",
    impact="slows-job",
    owner="network",
    source="IEEE 802.1Qbb; mlx5 ethtool counters (tx_prioN_pause, rx_prioN_pause); SONiC COUNTERS_DB (PFC_n_RX_PKTS)",
    fix="Compare `show pfc counters` with `ethtool -S IF | grep -e pause -e bytes_phy`: priority, port, and errors of "
    "the cable. Counters that never change are not polled: `counterpoll show`.",
    action="fix-site",
    separate=True,
    answers=("AN-5",),
    scope="fleet",
    switches=True,
    window=True,
    reads=(
        "redis:COUNTERS_DB ports",
        "eos:show interfaces",
        "eos:show priority-flow-control counters detail",
        "nxos:show interface",
        "linux:ip -j -s link",
    ),
    unless=(no_cable,),
)
def counters_agree(net: Ethernet, site: EthernetSite) -> Iterator[Finding]:
    """Compare what one end of a cable sent with what the other received.

    ## Why it matters
    A pause that the other end does not receive stops nothing: the buffer overflows. The settings of both ends may look
    right if a map, the firmware or a damaged cable is the cause. Bytes that the other end does not count mean that its
    counters do not change, or that the cable leads elsewhere: then no other result about this port can be trusted.

    ## Verdicts
    If one end sent at least 100,000 pauses of a lossless priority, and the other received less than half of them in
    proportion to its window, the cable warns; this limit is a judgement. Cables with fewer pauses pass. Bytes warn if
    more are missing than the port can send in the time that only one of the two windows covers, plus 2%; RDMA traffic
    counts alone if a host shows nothing else. Bytes are not compared if the time of a window is not recorded, as in
    pasted answers. If no cable has counters from both ends, the result is unknown.

    ## False alarms
    Pauses in a short burst at the edge of a window: the windows of host and switch begin some seconds apart.
    """
    judged = busy = weighed = 0
    for cable in net.cables:
        pairs = list(_pauses(net, cable, site))
        judged += bool(pairs)
        traffic = list(_bytes(net, cable))
        weighed += bool(traffic)
        yield from (_missing(net, cable, *way) for way in traffic if way[2] - way[3] > way[4])
        for sender, receiver, priority, sent, received in pairs:
            if sent < _PAUSES:
                continue
            busy += 1
            if received < _COUNTED * sent:
                yield warned(
                    f"{sender} sent {sent:.0f} pauses of priority {priority}, but {receiver} counted {received:.0f}"
                    f"{cable.note}", subject=str(cable), found=f"{received:.0f}", expected=f"about {sent:.0f}",
                    evidence=[net.by_name[end.device].key("port counters") for end in cable.ends if end.is_switch],
                )  # fmt: skip
    if judged or weighed:
        many = f", many in {counted(busy, 'direction')}" if busy else ""
        yield passed(f"both ends count the same pauses on {counted(judged, 'cable')}{many}, and the same bytes on "
                     f"{counted(weighed, 'cable')}",
                     evidence=[net.switches[0].key("port counters")])  # fmt: skip
    else:
        yield unknown(
            "no cable has counters of bytes or pauses from both ends in one window",
            evidence=[net.switches[0].key("port counters")],
            fix="read hosts and switches twice: `preflight check --hosts … --switches --window 60`",
        )  # fmt: skip


def _bytes(net: Ethernet, cable: EthernetCable) -> Iterator[tuple[CableEnd, CableEnd, int, float, float]]:
    """Yield sender, receiver, bytes sent and received, and bytes that may be missing."""
    near, far = (cable_ends.traffic(net, end) for end in cable.ends)
    speed = cable_ends.speed(net, cable.near) or cable_ends.speed(net, cable.other)
    apart_s = cable_ends.apart_s(near, far) if near and far else None
    if near is None or far is None or apart_s is None or not speed:
        return
    for sender, receiver, sent, received in (
        (cable.near, cable.other, near.sent, far.received),
        (cable.other, cable.near, far.sent, near.received),
    ):
        if sent is not None and received is not None:
            yield sender, receiver, sent, received, apart_s * speed * 1e9 / 8 + _OVERHEAD * sent


def _missing(net: Ethernet, cable: EthernetCable, sender: CableEnd, receiver: CableEnd, sent: int, received: float,
             allowed: float) -> Finding:  # fmt: skip
    return warned(
        f"{sender} sent {sent / 1e9:,.1f} GB, but {receiver} counted {received / 1e9:,.1f} GB{cable.note}",
        subject=str(cable), found=f"{received / 1e9:,.1f} GB", expected=f"at least {(sent - allowed) / 1e9:,.1f} GB",
        evidence=[net.by_name[end.device].key("port counters") for end in cable.ends if end.is_switch],
    )  # fmt: skip


def _pauses(
    net: Ethernet, cable: EthernetCable, site: EthernetSite
) -> Iterator[tuple[CableEnd, CableEnd, int, float, float]]:
    """Yield sender, receiver, priority, and the pauses sent and received in a window."""
    port = net.port(cable.near)
    if port is None or not port.pfc:
        return
    for priority in sorted(net.priorities(port, site.priority)):
        near, far = _sent_and_received(net, cable.near, priority), _sent_and_received(net, cable.other, priority)
        if near and far:
            scale = near[2] / far[2]  # both in the time of the first end
            for sender, receiver, sent, received in (
                (cable.near, cable.other, near[0], _times(far[1], scale)),
                (cable.other, cable.near, _times(far[0], scale), near[1]),
            ):
                if sent is not None and received is not None:
                    yield sender, receiver, priority, sent, received


def _times(number: float | None, scale: float) -> float | None:
    return None if number is None else number * scale


def _sent_and_received(net: Ethernet, end: CableEnd, priority: int) -> tuple[float | None, float | None, float] | None:
    """Return the pauses that an end sent and received, and its window in seconds.

    None if the end was not read twice; a number is None if it is not counted.
    """
    if end.is_switch:
        switch = net.by_name[end.device]
        before, after = switch.first.ports.get(end.port), switch.second.ports.get(end.port) if switch.second else None
        if before is None or after is None or not switch.window_s:
            return None
        return (growth(before.pfc_tx[priority], after.pfc_tx[priority]),
                growth(before.pfc_rx[priority], after.pfc_rx[priority]), switch.window_s)  # fmt: skip
    counted = cable_ends.grown(net, end)
    if counted is None or not counted.seconds:
        return None
    sent, received = (counted.named(f"{way}_prio{priority}_pause") for way in ("tx", "rx"))
    return sent.grown if sent else None, received.grown if received else None, counted.seconds
