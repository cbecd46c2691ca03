"""Checks of switch counters over a window: drops and storms."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.checks.switch.common import each_switch, judged_ports, listed, place_of
from preflight.expectations.switches_table import EthernetSite
from preflight.facts.switch.ethernet import CableEnd, Ethernet
from preflight.facts.switch.model import SwitchFacts, growth
from preflight.model import Finding, check, counted, failed, passed, unknown


@check(
    "switch.lossless-drops",
    title="No switch drops packets of a lossless queue",
    fault="A switch drops packets of a lossless queue",
    impact="slows-job",
    owner="network",
    source="IEEE 802.1Qbb; SONiC COUNTERS_DB (SAI_QUEUE_STAT_DROPPED_PACKETS, SAI_INGRESS_PRIORITY_GROUP_STAT_…)",
    fix="Compare headroom, MTU and DSCP maps of the port: `show priority-group drop counters`, `preflight explain "
    "switch.headroom`.",
    explains=(("counters.loss", "cable"),),
    action="fix-site",
    separate=True,
    answers=("FP-BW-4", "PA-19"),
    scope="fleet",
    switches=True,
    window=True,
    reads=("redis:COUNTERS_DB queues", "redis:COUNTERS_DB pgs", "eos:show priority-flow-control counters detail"),
)
def lossless_drops(net: Ethernet, site: EthernetSite) -> Iterator[Finding]:
    """Compare the drop counters of each lossless queue and priority group in a window.

    ## Why it matters
    Lossless means that nothing is dropped. A drop is a sign of wrong headroom, frame size, maps or watchdog settings,
    and makes RDMA retransmit complete messages.

    ## Verdicts
    Any growth fails. A queue or priority group without a drop counter, a window that is too short for the polling
    interval, and counters that were cleared are unknown.

    ## False alarms
    Drops while a PFC watchdog ends a storm; `switch.watchdog-fired` then fails as well.
    """
    good = yield from each_switch(
        net, site, lambda switch: _drops_of(net, switch, site), "pfc", growth=["queue counters"]
    )
    if good:
        yield passed(f"no lossless queue of {counted(len(good), 'switch')} dropped a packet",
                     evidence=[net.switches[0].key("queue counters")])  # fmt: skip


def _drops_of(net: Ethernet, switch: SwitchFacts, site: EthernetSite) -> Iterator[Finding]:
    assert switch.second
    keys = [switch.key("queue counters"), switch.key("group counters")]
    blank: dict[str, list[str]] = {"queue": [], "priority group": []}
    for port, priority in judged_ports(net, switch, site):
        queue = port.name, switch.queue(port.name, priority)
        before, after = switch.first.queues.get(queue), switch.second.queues.get(queue)
        drops = growth(before.drops, after.drops) if before and after else None
        group = port.name, switch.group(port.name, priority, site.dscp)
        earlier, later = switch.first.groups.get(group), switch.second.groups.get(group)
        arriving = growth(earlier.drops, later.drops) if earlier and later else None
        where = f"{switch.name} {port.name}"
        if drops or arriving:
            what = counted(drops, "outgoing packet") if drops else counted(arriving or 0, "incoming packet")
            yield failed(
                f"{where} dropped {what} of the lossless priority {priority}{_to(net, switch, port.name)}",
                subject=where,
                found=f"+{(drops or 0) + (arriving or 0)}", expected="+0", evidence=keys,
            ).with_parts(place_of(switch, port.name, priority))  # fmt: skip
        elif drops is None or arriving is None:
            blank["queue" if drops is None else "priority group"].append(port.name)
    for part, names in blank.items():
        if names:
            yield unknown(f"{switch.name} {listed(names)}: no drops of the lossless {part} are counted",
                          subject=switch.name, evidence=keys, fix=switch.remedy)  # fmt: skip


@check(
    "switch.watchdog-fired",
    title="No PFC watchdog has stopped a storm",
    fault="A PFC watchdog has stopped a storm of pauses",
    impact="slows-job",
    owner="network",
    explains=(("switch.lossless-drops", "parts"),),
    source="SONiC pfcwd (PFC_WD_STATUS, PFC_WD_QUEUE_STATS_DEADLOCK_DETECTED); SIGCOMM 2016, section 4.3",
    fix="Find the device that sends the pauses: `show pfc counters`, `pfcwd show stats`; drain the host connected to "
    "the port.",
    action="fix-site",
    separate=True,
    answers=("FP-CON-4",),
    scope="fleet",
    switches=True,
    window=True,
    reads=("redis:COUNTERS_DB queues",),
)
def watchdog_fired(net: Ethernet, site: EthernetSite) -> Iterator[Finding]:
    """Count the storms that the PFC watchdogs detected in a window.

    ## Why it matters
    While a storm lasts, the watchdog drops every packet of the queue: jobs through the port stop.

    ## Verdicts
    A storm within the window fails, and so does an ongoing one. Storms that ended before the window are only counted in
    the message. Switches without a watchdog on their queues are unknown.

    ## False alarms
    Firmware that still reports *stormed* after the storm; compare two windows.
    """
    good = yield from each_switch(
        net, site, lambda switch: _storms(net, switch, site), "pfc", growth=["queue counters"]
    )
    if good:
        past = sum(
            after.detected or 0
            for switch in good
            for port, priority in judged_ports(net, switch, site)
            if switch.second and (after := switch.second.queues.get((port.name, switch.queue(port.name, priority))))
        )
        earlier = f"; {past} ended before it" if past else ""
        yield passed(f"the PFC watchdogs of {counted(len(good), 'switch')} detected no storm in the window{earlier}",
                     evidence=[good[0].key("queue counters")])  # fmt: skip


def _storms(net: Ethernet, switch: SwitchFacts, site: EthernetSite) -> Iterator[Finding]:
    assert switch.second
    silent: list[str] = []
    for port, priority in judged_ports(net, switch, site):
        queue = port.name, switch.queue(port.name, priority)
        before, after = switch.first.queues.get(queue), switch.second.queues.get(queue)
        where, keys = f"{switch.name} {port.name}", [switch.key("queue counters")]
        new = growth(before.detected, after.detected) if before and after else None
        if after is None or new is None:
            silent.append(port.name)
        elif new or (after.storm == "stormed" and after.detected != after.restored):
            what = f"{new} storm{'s' * (new > 1)} in the window" if new else "a storm that lasts"
            message = f"{where}: the PFC watchdog of queue {queue[1]} detected {what}{_to(net, switch, port.name)}"
            yield failed(message, subject=where, found=what, expected="none", evidence=keys).with_parts(
                place_of(switch, port.name, priority)
            )
    if silent:
        yield unknown(f"{switch.name} {listed(silent)}: the queue shows no watchdog", subject=switch.name,
                      evidence=[switch.key("queue counters")], fix="start it: `pfcwd start_default`")  # fmt: skip


def _to(net: Ethernet, switch: SwitchFacts, port: str) -> str:
    """Return the other end of a port's cable, as the end of a message."""
    far = net.far_ends.get(CableEnd(switch.name, port, True))
    return f" (cable to {far})" if far else ""
