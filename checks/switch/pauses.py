"""Checks of pauses: where they begin, and NICs that pause without load."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from preflight.checks.switch.common import judged_ports, listed, unread, unusable
from preflight.evidence.document import EvidenceError
from preflight.expectations.switches_table import EthernetSite
from preflight.facts.counter_catalogue import CounterKind
from preflight.facts.gpudirect import nic_link
from preflight.facts.switch import pause
from preflight.facts.switch.ethernet import CableEnd, Ethernet
from preflight.facts.switch.model import SwitchFacts, growth
from preflight.model import Finding, check, failed, passed, unknown, warned

#: Share of the window at which an upper bound of pauses warns. A judgement call.
_CLEAR_BOUND = 0.1


@check(
    "fabric.pause-root",
    title="No device stops the senders of the fabric",
    fault="A device stops the senders of the fabric with pauses",
    impact="slows-job",
    owner="network",
    source="RDMA over Commodity Ethernet at Scale (SIGCOMM 2016, section 4); IEEE 802.1Qbb; IEEE 802.3 annex 31B",
    fix="Examine the device named: run `preflight check` on a host (PCIe width, receive buffers), or `show pfc "
    "counters` on a switch.",
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
    explains=(
        ("switch.marks", "names"),
        ("switch.watchdog-fired", "names"),
        ("counters.congestion", "cable", "* receives data more slowly *", "* paused its switch for *"),
        ("counters.congestion", "cable", "*", "* was paused by its switch *"),
        ("fleet.rates", "cable", "* receives data more slowly *", "traffic *"),
    ),
)
def pause_root(net: Ethernet, site: EthernetSite) -> Iterator[Finding]:
    """Find the device where the pauses of a window begin.

    ## Why it matters
    A pause stops every flow of its priority on the cable, so one slow device stops senders two switches away. The ports
    with the most pauses are usually its victims.

    ## Verdicts
    The pauses are followed from each paused port to a device that is not paused itself. If that device is a host, it
    fails: it receives data more slowly than the data arrives; its evidence, such as a narrow PCIe link, is quoted.
    `fabric.host-storm` reports a NIC that pauses without load. A ring of switches that wait for each other fails. If
    the device is a switch, it warns: either one of its ports sends at 90% of its rate (incast, or an uplink that
    several flows share), or its thresholds pause too early. A device without evidence is unknown. If it is named like
    the hosts, or if the cluster file lists the switches without it, it is probably a slow host, and warns. A port
    counts as paused from 0.1% of the window. Where only frames are counted, not their time, the share is an upper
    bound: a host is then unknown below 10%, and warns above. For a switch that counts no pauses, the counts of the
    hosts and switches at the other ends of its cables are used; if some of these count none either, it is unknown
    whether the switch is the origin. Pauses of a priority that is not lossless at the port warn.

    ## False alarms
    A collective that is limited by one host on purpose, such as a parameter server.
    """
    results = _without_pauses(net, site)
    yield from results
    roots = [root for root in pause.roots(net, site.priority) if root.kind != pause.NIC_STORM]
    for root in roots:
        yield _root(net, root, site)
    strange = [finding for switch in net.switches for finding in _of_other_priorities(net, switch)]
    yield from strange
    if not roots and not strange and len({result.subject for result in results}) < len(net.switches):
        yield passed("no port of the switches was paused for 0.1% of the window",
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


def _without_pauses(net: Ethernet, site: EthernetSite) -> list[Finding]:
    """Report switches whose pauses are unknown."""
    results: list[Finding] = []
    for switch in net.switches:
        results += [*unread(switch, "pfc")] or [*unusable(switch, "port counters")] or [*_uncounted(net, switch, site)]
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
        ("switch.watchdog-fired", "names"),
        ("switch.lossless-drops", "names"),
        ("counters.receiver", "cable"),
        ("counters.congestion", "cable"),
        ("fleet.rates", "cable", "*", "traffic *"),
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
    A NIC that pauses without end is broken. It stops every flow towards it, and then other switches, until jobs on
    other nodes hang.

    ## Verdicts
    A host that pauses its port for half of the window, while the port sends less than 5% of its rate, fails: the
    switch measures both. A port that counts only pause frames, not their time, is judged by
    `fabric.pause-root`.

    ## False alarms
    A node whose operating system has crashed, until it is restarted.
    """
    results = _without_pauses(net, site)
    yield from results
    storms = [root for root in pause.roots(net, site.priority) if root.kind == pause.NIC_STORM]
    for root in storms:
        yield _root(net, root, site)
    if not storms and len({result.subject for result in results}) < len(net.switches):
        yield passed("no host pauses its port for half of the window without load",
                     evidence=[net.switches[0].key("port counters")])  # fmt: skip


def _uncounted(net: Ethernet, switch: SwitchFacts, site: EthernetSite) -> Iterator[Finding]:
    """Yield *unknown* for ports whose pauses are not known."""
    blank: dict[str, list[str]] = {}
    for port, priority in judged_ports(net, switch, site):
        counters = switch.first.ports.get(port.name)
        if port.up is not False and not pause.is_measured(port, counters, priority):
            counted = counters is not None and counters.pfc_rx[priority] is not None
            why = "the speed is not shown, so the time of pauses is not known" if counted else "pauses are not counted"
            blank.setdefault(why, []).append(port.name)
    for why, names in blank.items():
        yield unknown(f"{switch.name} {listed(list(dict.fromkeys(names)))}: {why}", subject=switch.name,
                      evidence=[switch.key("port counters")], fix=switch.remedy)  # fmt: skip


def _root(net: Ethernet, root: pause.PauseRoot, site: EthernetSite) -> Finding:
    share = f"{'at most ' if root.bound else ''}{root.share:.1%} of the window"
    stopped = f"{listed(root.waiting)} {'waits' if len(root.waiting) == 1 else 'wait'} for {share}"
    words, report = {
        pause.RECEIVER: ("{0} receives data more slowly than it arrives", failed),
        pause.NIC_STORM: ("the NIC of {0} sends pauses without load", failed),
        pause.CYCLE: ("{0} wait for each other: risk of deadlock", failed),
        pause.INCAST: ("{0} is full: more traffic arrives for it than it can send", warned),
        pause.UPLINK: ("{0}, an uplink, is full: several flows share it", warned),
        pause.THRESHOLDS: ("{0} pauses its peers without a full port: thresholds or headroom", warned),
        pause.UNKNOWN: (f"{{0}} pauses other devices for an unknown reason: {_lacks(net, root)}", unknown),
    }[root.kind]
    fix, owner = "", "node" if root.kind == pause.RECEIVER else ""
    if root.kind == pause.RECEIVER and root.bound:  # the number of frames does not show the duration
        words, report = "{0} pauses its switch for an unknown time", warned
        report = unknown if root.share < _CLEAR_BOUND else report
        fix = "measure the pause time with `show pfc counters` on the switch, and `ethtool -S IF` on the host"
    first = next((name for name in (*root.waiting, *net.by_name) if name in net.by_name), "")
    keys = [net.by_name[first].key("port counters")] if first else []
    if root.kind == pause.UNKNOWN and _is_host(net, site, root.where):
        words = "{0} probably receives data more slowly than it arrives; there is no evidence from it"
        report, owner = warned, "node"
    elif root.kind == pause.RECEIVER:
        reasons, shown = _slow_host(net, root.where)
        stopped = f"{stopped}; its evidence shows {listed(reasons)}" if reasons else stopped
        keys = [*keys, *shown]
    if root.kind == pause.UNKNOWN:
        fix = "pass the evidence of this device, and of all hosts and switches at its cables"
    return report(f"{words.format(root.where)}; {stopped}", subject=root.where, found=root.kind, expected="no pauses",
                  evidence=keys, fix=fix, owner=owner).with_parts(*root.waiting)  # fmt: skip


def _lacks(net: Ethernet, root: pause.PauseRoot) -> str:
    """Return why the origin of a pause is unknown."""
    if (switch := net.by_name.get(root.where)) and pause.all_known(net, switch):
        return "its files do not show the load of all its ports"
    if switch:
        return "neither the switch nor the devices at its cables count all pauses that it receives"
    return "there is no evidence from it"


def _is_host(net: Ethernet, site: EthernetSite, name: str) -> bool:
    """Return whether a device without evidence is a host, judging by its name."""
    short = name.lower().partition(".")[0]
    if names := site.settings.names:
        return short not in {switch.lower().partition(".")[0] for switch in names}
    return net.is_like_hosts(name)


def _slow_host(net: Ethernet, name: str) -> tuple[list[str], list[str]]:
    """Return the signs of a slow receiver on a host, and the keys of their records."""
    reasons: list[str] = []
    keys: list[str] = []
    for host in net.hosts:
        if host.node.node != name:
            continue
        with suppress(EvidenceError):
            link = nic_link(host.node.evidence, host.port.device)
            if link is not None and host.port.rate_gbps is not None and link.gbps < host.port.rate_gbps:
                reasons.append(f"PCIe of {host.port.device} at {link.gbps:.0f} Gb/s for a port of "
                               f"{host.port.rate_gbps:g}")  # fmt: skip
                keys += [f"{name} {key}" for key in link.evidence]
        with suppress(EvidenceError):
            counted = host.node.port_growth.get(host.port.name)
            for growing in counted.grown(CounterKind.RECEIVER) if counted else ():
                reasons.append(f"{growing.counter.name} +{growing.grown}")
                keys.append(f"{name} {growing.key}")
    return reasons, keys
