"""Checks of switch counters over a window: drops, storms, pauses."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.checks.switch.common import judged_ports, listed, lossy, unread
from preflight.expectations.switches_table import EthernetSite
from preflight.facts.switch import pause
from preflight.facts.switch.ethernet import CableEnd, Ethernet
from preflight.facts.switch.model import SwitchFacts, growth, went_back
from preflight.model import Finding, check, failed, passed, unknown, warned


def unusable(switch: SwitchFacts, part: str) -> Iterator[Finding]:
    """Yield why the growth of a switch's counters is not known."""
    yield from unread(switch, part)
    if part in switch.gaps:
        return
    key, why = [switch.key(part)], ""
    group = "port" if part == "port counters" else "queue"
    poll = switch.poll_ms.get(group, 1000 if group == "port" else 10_000)
    least = max((poll or 0) * 2 / 1000, 2.0)  # readings within two polling intervals may be equal
    if switch.second is None:
        why = "its counters were read once"
    elif went_back(switch.first, switch.second):
        why = "its counters were cleared between the readings"
    elif poll is None:
        why = f"polling of the {group} counters is off (FLEX_COUNTER_TABLE)"
    elif switch.window_s is None:
        why = "the times of its two readings are not known"
    elif switch.window_s < least:
        why = f"its readings are {switch.window_s:g} s apart, the counters are polled every {poll / 1000:g} s"
    if why:
        yield unknown(
            f"{switch.name}: growth is not known: {why}", subject=switch.name, evidence=key,
            fix=f"read the counters twice, at least {least:g} s apart: `show techsupport`, `counterpoll show`",
        )  # fmt: skip


@check(
    "switch.lossless-drops",
    title="No switch drops packets of a lossless queue",
    fault="A switch drops packets of a lossless queue",
    impact="slows-job",
    owner="network",
    source="IEEE 802.1Qbb; SONiC COUNTERS_DB (SAI_QUEUE_STAT_DROPPED_PACKETS, SAI_INGRESS_PRIORITY_GROUP_STAT_…)",
    fix="Compare headroom, MTU and DSCP maps of the port: `show priority-group drop counters`, `preflight explain "
    "switch.headroom`.",
    action="fix-site",
    separate=True,
    scope="fleet",
    switches=True,
    window=True,
    reads=("redis:COUNTERS_DB queues", "redis:COUNTERS_DB pgs", "eos:show priority-flow-control counters detail"),
)
def lossless_drops(net: Ethernet, site: EthernetSite) -> Iterator[Finding]:
    """Compare the drop counters of each lossless queue and priority group in a window.

    ## Why it matters
    Lossless means that nothing is dropped. A drop is a misconfiguration, of headroom, frame size, maps or the watchdog,
    and makes RDMA retransmit complete messages.

    ## Verdicts
    Any growth fails. A queue without a drop counter, a window that is too short for the polling interval, and counters
    that were cleared are unknown.

    ## False alarms
    Drops while a PFC watchdog ends a storm; `switch.watchdog-fired` then fails as well.
    """
    good = 0
    for switch in net.switches:
        results = [*unread(switch, "pfc")] or [*lossy(net, switch, site)] or [*unusable(switch, "queue counters")]
        results = results or [*_drops_of(net, switch, site)]
        yield from results
        good += not results
    if good:
        yield passed(f"no lossless queue of {good} switches dropped a packet",
                     evidence=[net.switches[0].key("queue counters")])  # fmt: skip


def _drops_of(net: Ethernet, switch: SwitchFacts, site: EthernetSite) -> Iterator[Finding]:
    assert switch.second
    blank: list[str] = []
    for port, priority in judged_ports(net, switch, site):
        queue = port.name, switch.queue(port.name, priority)
        before, after = switch.first.queues.get(queue), switch.second.queues.get(queue)
        drops = growth(before.drops, after.drops) if before and after else None
        group = port.name, switch.group(port.name, priority)
        earlier, later = switch.first.groups.get(group), switch.second.groups.get(group)
        arriving = growth(earlier.drops, later.drops) if earlier and later else None
        where = f"{switch.name} {port.name}"
        keys = [switch.key("queue counters"), switch.key("group counters")]
        if drops or arriving:
            what = f"{drops} leaving" if drops else f"{arriving} arriving"
            yield failed(
                f"{where} dropped {what} packets of the lossless priority {priority}", subject=where,
                found=f"+{(drops or 0) + (arriving or 0)}", expected="+0", evidence=keys,
            )  # fmt: skip
        elif drops is None:
            blank.append(port.name)
    if blank:
        yield unknown(f"{switch.name} {listed(blank)}: no drops of the lossless queue are counted", subject=switch.name,
                      evidence=[switch.key("queue counters")], fix=switch.remedy)  # fmt: skip


@check(
    "switch.watchdog-fired",
    title="No PFC watchdog has stopped a storm",
    fault="A PFC watchdog has stopped a storm of pauses",
    impact="slows-job",
    owner="network",
    source="SONiC pfcwd (PFC_WD_STATUS, PFC_WD_QUEUE_STATS_DEADLOCK_DETECTED); SIGCOMM 2016, section 4.3",
    fix="Look for the device that pauses: `show pfc counters`, `pfcwd show stats`; drain the host at the port.",
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
    Firmware that leaves the state at stormed after the storm; compare two windows.
    """
    good, past = 0, 0
    for switch in net.switches:
        results = [*unread(switch, "pfc")] or [*lossy(net, switch, site)] or [*unusable(switch, "queue counters")]
        if results:
            yield from results
            continue
        assert switch.second
        silent: list[str] = []
        fired = False
        for port, priority in judged_ports(net, switch, site):
            queue = port.name, switch.queue(port.name, priority)
            before, after = switch.first.queues.get(queue), switch.second.queues.get(queue)
            where, keys = f"{switch.name} {port.name}", [switch.key("queue counters")]
            new = growth(before.detected, after.detected) if before and after else None
            if after is None or new is None:
                silent.append(port.name)
            elif new or (after.storm == "stormed" and after.detected != after.restored):
                what = f"{new} storms in the window" if new else "a storm that lasts"
                fired = True
                yield failed(f"{where}: the PFC watchdog of queue {queue[1]} detected {what}", subject=where,
                             found=what, expected="none", evidence=keys)  # fmt: skip
            else:
                past += after.detected or 0
        if silent:
            yield unknown(f"{switch.name} {listed(silent)}: the queue shows no watchdog", subject=switch.name,
                          evidence=[switch.key("queue counters")], fix="start it: `pfcwd start_default`")  # fmt: skip
        good += not silent and not fired
    if good:
        earlier = f"; {past} ended before it" if past else ""
        yield passed(f"the PFC watchdogs of {good} switches detected no storm in the window{earlier}",
                     evidence=[net.switches[0].key("queue counters")])  # fmt: skip


#: Share of the window from which an upper bound of pauses warns. A judgement call.
_CLEAR_BOUND = 0.1


@check(
    "fabric.pause-root",
    title="No device stops the senders of the fabric",
    fault="A device stops the senders of the fabric with pauses",
    impact="slows-job",
    owner="network",
    source="RDMA over Commodity Ethernet at Scale (SIGCOMM 2016, section 4); IEEE 802.1Qbb; IEEE 802.3 annex 31B",
    fix="Look at the device named: `preflight check` on a host (PCIe width, receive buffers), `show pfc counters`.",
    action="fix-site",
    separate=True,
    answers=("FP-CON-1", "FP-CON-4"),
    scope="fleet",
    switches=True,
    window=True,
    reads=(
        "redis:COUNTERS_DB ports",
        "redis:APPL_DB LLDP_ENTRY_TABLE",
        "eos:show priority-flow-control counters detail",
    ),
    explains=(("switch.marks", "names"),),
)
def pause_root(net: Ethernet, site: EthernetSite) -> Iterator[Finding]:
    """Find the device where the pauses of a window begin.

    ## Why it matters
    A pause stops every flow of its priority on the cable, so one slow device stops senders two switches away. The ports
    with the most pauses are usually its victims.

    ## Verdicts
    The pauses are followed from each paused port to a device that is not paused itself. If that device is a host, it
    fails: it receives more slowly than it is sent data. A NIC that pauses without load is reported by
    `fabric.host-storm`. A ring of switches that wait for each other fails. A switch with a port that sends at 90 % of
    its rate warns (incast, or an uplink that several flows share), and so does a switch without such a port: its
    thresholds pause too early. A device without evidence is unknown. A port counts from 0.1 % of the window. Where only
    frames are counted, not their time, the share is an upper bound: a host is then unknown below 10 %, and warns above.
    Pauses of a priority that is not lossless at the port warn.

    ## False alarms
    A collective that is limited by one host on purpose, such as a parameter server.
    """
    results = _without_pauses(net)
    yield from results
    roots = [root for root in pause.roots(net, site.priority) if root.kind != pause.NIC_STORM]
    for root in roots:
        yield _root(net, root)
    strange = [finding for switch in net.switches for finding in _of_other_priorities(net, switch)]
    yield from strange
    if not roots and not strange and len(results) < len(net.switches):
        yield passed("no port of the switches was paused for 0.1 % of the window",
                     evidence=[net.switches[0].key("port counters")])  # fmt: skip


def _of_other_priorities(net: Ethernet, switch: SwitchFacts) -> Iterator[Finding]:
    """Yield the ports that receive pauses of a priority that is not lossless there."""
    for name, after in switch.second.ports.items() if switch.second else ():
        port, before = switch.ports.get(name), switch.first.ports.get(name)
        if port is None or before is None or port.pfc is None:
            continue
        frames = {n: growth(before.pfc_rx[n], after.pfc_rx[n]) or 0 for n in range(8) if n not in port.pfc}
        if not any(frames.values()):
            continue
        priority = max(frames, key=lambda n: frames[n])
        far = net.far_ends.get(CableEnd(switch.name, name, True))
        lossless = listed([str(n) for n in sorted(port.pfc)]) or "none"
        yield warned(
            f"{switch.name} {name} receives pauses of priority {priority}{f' from {far}' if far else ''}; "
            f"lossless there: {lossless}",
            subject=f"{switch.name} {name}",
            found=f"+{frames[priority]}",
            expected="+0",
            evidence=[switch.key("port counters"), switch.key("pfc")],
            fix="set the same PFC priorities at both ends (`link.pfc`), or find the device that "
            "pauses a different priority",
        )


def _without_pauses(net: Ethernet) -> list[Finding]:
    """Report switches whose pauses are unknown."""
    results: list[Finding] = []
    for switch in net.switches:
        results += [*unread(switch, "pfc")] or [*unusable(switch, "port counters")] or [*_uncounted(switch)]
    return results


@check(
    "fabric.host-storm",
    title="No NIC pauses its switch without load",
    fault="A NIC pauses its switch without load",
    impact="slows-job",
    owner="node",
    source="RDMA over Commodity Ethernet at Scale (SIGCOMM 2016, section 4.3: NIC PFC storm)",
    fix="Take the node out of the queue and reset the NIC (`mlxfwreset`); if it pauses again, replace it.",
    explains=(
        ("switch.marks", "names"),
        ("fabric.pause-root", "names"),
        ("counters.receiver", "cable"),
        ("counters.congestion", "cable"),
    ),
    action="isolate",
    answers=("AN-5",),
    scope="fleet",
    switches=True,
    window=True,
    reads=(
        "redis:COUNTERS_DB ports",
        "redis:APPL_DB LLDP_ENTRY_TABLE",
        "eos:show priority-flow-control counters detail",
    ),
)
def host_storm(net: Ethernet, site: EthernetSite) -> Iterator[Finding]:
    """Find hosts whose NIC pauses the switch although it receives almost no traffic.

    ## Why it matters
    A NIC that pauses without end is broken. It stops every flow towards it, then the switches behind, until jobs on
    other nodes hang.

    ## Verdicts
    A host that pauses its port for half of the window, while the port sends less than 5 % of its rate, fails: the
    switch measures both. A port that counts only pause frames, not their time, is judged by
    `fabric.pause-root`.

    ## False alarms
    A node whose operating system has crashed, until it is restarted.
    """
    results = _without_pauses(net)
    yield from results
    storms = [root for root in pause.roots(net, site.priority) if root.kind == pause.NIC_STORM]
    for root in storms:
        yield _root(net, root)
    if not storms and len(results) < len(net.switches):
        yield passed("no host pauses its port for half of the window without load",
                     evidence=[net.switches[0].key("port counters")])  # fmt: skip


def _uncounted(switch: SwitchFacts) -> Iterator[Finding]:
    """Yield *unknown* for a switch that counts no pauses of its lossless priorities."""
    blank = [
        port.name
        for port in switch.lossless.values()
        if (counters := switch.first.ports.get(port.name)) is None
        or all(counters.pfc_rx[n] is None and counters.paused_us[n] is None for n in port.pfc or ())
    ]
    if blank:
        yield unknown(f"{switch.name} {listed(blank)}: pauses are not counted", subject=switch.name,
                      evidence=[switch.key("port counters")], fix=switch.remedy)  # fmt: skip


def _root(net: Ethernet, root: pause.PauseRoot) -> Finding:
    share = f"{'at most ' if root.bound else ''}{root.share:.1%} of the window"
    stopped = f"{listed(root.waiting)} {'waits' if len(root.waiting) == 1 else 'wait'}, for {share}"
    words, report = {
        pause.RECEIVER: ("{0} receives more slowly than it is sent to", failed),
        pause.NIC_STORM: ("the NIC of {0} pauses without load", failed),
        pause.CYCLE: ("{0} wait for each other: risk of deadlock", failed),
        pause.INCAST: ("{0} is full: it receives more traffic than it can send", warned),
        pause.UPLINK: ("{0}, an uplink, is full: several flows share it", warned),
        pause.THRESHOLDS: ("{0} pauses its peers without a full port: thresholds or headroom", warned),
        pause.UNKNOWN: ("{0} stops other devices for an unknown reason: it is not among the evidence", unknown),
    }[root.kind]
    fix, owner = "", "node" if root.kind == pause.RECEIVER else ""
    if root.kind == pause.RECEIVER and root.bound:  # the number of frames does not show the duration
        words, report = "{0} pauses its port, for an unknown time", warned
        report = unknown if root.share < _CLEAR_BOUND else report
        fix = (
            "measure the pause time: `show pfc counters` with PAUSE durations, `ethtool -S IF | grep pause` on the host"
        )
    first = next((name for name in (*root.waiting, *net.by_name) if name in net.by_name), "")
    keys = [net.by_name[first].key("port counters")] if first else []
    fix = "pass its files or evidence as well" if root.kind == pause.UNKNOWN else fix
    return report(f"{words.format(root.where)}; {stopped}", subject=root.where, found=root.kind, expected="no pauses",
                  evidence=keys, fix=fix, owner=owner)  # fmt: skip
