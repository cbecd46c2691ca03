"""Checks of InfiniBand links: speed, missing links, growing errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from preflight import facts
from preflight.checks.fabric.sweep import DIAGS, listed, not_this_fabric
from preflight.expectations.fabric_table import FabricSite
from preflight.model import Finding, check, clause, counted, failed, passed, unknown, warned

if TYPE_CHECKING:
    from preflight.facts.fabric.compare import PortErrorGrowth
    from preflight.facts.fabric.sweep import FabricFacts
    from preflight.parsers.infiniband.ibnetdiscover import FabricLink
    from preflight.parsers.infiniband.ibqueryerrors import Errors

_NVSENTINEL = "(NVSentinel's defaults)"
_IBCHECKERRS = "no growth; 10 an hour fail (rdma-core ibcheckerrs)"

#: Counter -> hourly growth above which it fails, the accepted growth and its source, and meaning.
GATES = {
    "SymbolErrorCounter": (
        120,
        f"no growth; more than 120 an hour fail {_NVSENTINEL}",
        "the cable or a transceiver corrupts bits",
    ),
    "LinkErrorRecoveryCounter": (
        300,
        f"no growth; more than 5 a minute fail {_NVSENTINEL}",
        "the link retrains repeatedly",
    ),
    "LinkDownedCounter": (2, "no growth; 3 in a window of hours fail (Azure healthagent)", "the link went down"),
    "PortRcvErrors": (9, _IBCHECKERRS, "packets arrive damaged"),
    "LocalLinkIntegrityErrors": (0, f"no growth {_NVSENTINEL}", "more local errors than allowed for a link"),
    "ExcessiveBufferOverrunErrors": (0, f"no growth {_NVSENTINEL}", "flow control failed"),
}
#: Counters that never fail -> hourly growth at which they warn, the accepted growth and its source, and meaning.
HINTS = {
    "PortXmitDiscards": (360_000, f"fewer than 100 a second {_NVSENTINEL}", "congestion drops packets"),
    "PortXmitConstraintErrors": (1, "no growth", "packets are refused by partition key"),
    "PortRcvConstraintErrors": (1, "no growth", "packets are refused by partition key"),
    "PortRcvRemotePhysicalErrors": (
        100, "fewer than 100 an hour (rdma-core ibcheckerrs)", "an earlier link of the path damages packets",
    ),
}  # fmt: skip


@check(
    "fabric.link-speed",
    title="Every link of the fabric runs at the speed of its peers",
    fault="A link of the fabric runs below the speed of its peers",
    impact="slows-job",
    owner="network",
    source=f"{DIAGS}: ibnetdiscover(8), iblinkinfo(8); majority of at least 3 links and 60%",
    fix="Reseat or replace the cable between the two ports named, then run `ibportstate LID PORT query` at both ends.",
    action="fix-site",
    scope="fleet",
    sweep=True,
    reads=("cmd:ibnetdiscover", "cmd:iblinkinfo -l"),
    unless=(not_this_fabric,),
)
def link_speed(swept: FabricFacts, site: FabricSite) -> Iterator[Finding]:
    """Compare the speed and width of each link with similar links.

    Similar links join the same kinds of chips.

    ## Why it matters
    A link that trained at fewer lanes or a lower speed is Active and Up at both ends. It slows every flow routed over
    it, and the collective behind the flow.

    ## Verdicts
    A link slower than most of at least three similar links fails, and so does a link with a single lane. A link in the
    cluster file's reference sweep is compared with its speed there instead. If the fastest speed is not that of most
    links, the check warns, because it is not known which speed is right. Ports of different chips are not compared.
    Unconnected ports are not judged: only a reference shows what should be connected. The "could be" speed of a port is
    quoted but not judged: it is the chip's capability, not the speed the cable was bought for. A link without a speed,
    or in an incomplete sweep, is unknown.

    ## False alarms
    HCAs of one model that run at two speeds on purpose (splitter cables).
    """
    net, keys = swept.net, [swept.net_key]
    before = site.reference.net if site.reference else None
    slow, mixed = facts.fabric.compare.slow(net, before), facts.fabric.compare.mixed(net, before)
    for one in slow:
        expected = f"{one.usual} on most links of this kind ({one.holders} of {one.peers})"
        if not one.usual:
            expected = "more than one lane"
        elif not one.holders and site.reference:
            expected = f"{one.usual} ({site.reference.path})"
        name = net.words(one.link)
        yield failed(f"the link {name} runs at {one.link.speed}", subject=name, found=one.link.speed,
                     expected=f"{expected}{_could_be(swept, one.link)}", evidence=keys)  # fmt: skip
    if mixed:
        speeds_of = Counter(link.speed for link in mixed)
        speed_counts = ", ".join(f"{number} at {speed}" for speed, number in sorted(speeds_of.items()))
        yield warned(f"links of one kind run at different speeds, and which is right is not known: {speed_counts}",
                     found=speed_counts, expected="one speed", evidence=keys,
                     fix='save a good sweep and name it in the cluster file: [fabric] reference = "FILE"')  # fmt: skip
    strange = [link for link in net.links if link.speed and link.gbps is None]
    if strange:
        speeds = ", ".join(sorted({link.speed for link in strange}))
        yield unknown(f"{clause(len(strange), 'link', 'has')} a speed that this version does not know: {speeds}",
                      evidence=keys)  # fmt: skip
    if swept.partial:
        yield unknown(f"{swept.partial}; the state of the other links is unknown", evidence=keys)
    elif not slow and not strange and not mixed:
        speeds = ", ".join(sorted({link.speed for link in net.links}))
        yield passed(
            f"all {len(net.links)} links run at the speed of their peers: {speeds}", found=speeds, evidence=keys
        )


def _could_be(swept: FabricFacts, link: FabricLink) -> str:
    """Return the speeds that both ends support, if iblinkinfo prints them.

    12X is left out: no cluster uses cables of that width.
    """
    better = {could for one in swept.states_of(link) for could in one.could_be} - {"12X"}
    return f"; both ends could run at {' or '.join(sorted(better))}" if better else ""


@check(
    "fabric.reference",
    title="The fabric matches its reference sweep",
    fault="The fabric differs from its reference sweep",
    impact="loses-redundancy",
    owner="network",
    source=f"the cluster file's reference sweep; {DIAGS}: ibnetdiscover(8)",
    fix="Reconnect the missing cable or device; `ibportstate LID PORT query` shows the remaining end. If it was "
    "removed on purpose, record a new reference: `ibnetdiscover > FILE`.",
    action="fix-site",
    scope="fleet",
    sweep=True,
    reads=("cmd:ibnetdiscover", "cmd:iblinkinfo -l"),
    unless=(not_this_fabric,),
)
def reference(swept: FabricFacts, site: FabricSite) -> Iterator[Finding]:
    """Compare devices, links, ports and speeds with a reference sweep, by GUID.

    ## Why it matters
    A pulled cable leaves no trace: the port is Down and Polling, like one that never had a cable. Jobs continue with
    one rail or uplink less.

    ## Verdicts
    A missing device or link fails, and so does a link that is slower than in the reference. HCAs whose only switch is
    missing are reported with that switch. A link that ends at another port warns; new links and devices are only
    listed. Without a reference, or with an incomplete sweep, the result is unknown.

    ## False alarms
    Nodes that are shut down or in repair; record a new reference without them.
    """
    keys, net = [swept.net_key], swept.net
    if site.reference is None:
        inventory = (
            f"{counted(len(net.switches), 'switch')}, {counted(len(net.hcas), 'HCA')} and "
            f"{counted(len(net.links), 'link')}"
        )
        yield unknown(f"no reference sweep is declared; the fabric now has {inventory}", found=inventory, evidence=keys,
                      fix='save a good sweep and name it in the cluster file: [fabric] reference = "FILE"')  # fmt: skip
        return
    before = site.reference.net
    changed = facts.fabric.compare.difference(before, net)
    for old, now in changed.slower:
        yield failed(f"the link {net.words(now)} runs at {now.speed}, formerly {old.speed}", subject=net.words(now),
                     found=now.speed, expected=f"{old.speed} ({site.reference.path})", evidence=keys)  # fmt: skip
    for old, now in changed.moved:
        yield warned(f"the link {before.words(old)} is now {net.words(now)}", subject=before.words(old),
                     found=net.words(now),
                     expected=f"{before.words(old)} ({site.reference.path})", evidence=keys,
                     fix="put the cable back, or record a new reference: routing and rails depend on the "
                     "cabling plan")  # fmt: skip
    if swept.partial:
        lack = len(changed.gone) + len(changed.missing)
        yield unknown(f"{swept.partial}; {lack} devices and links of the reference were not seen", evidence=keys)
        return
    without = {device.guid for device in changed.gone if device.is_switch}
    for device in changed.gone:
        its = [link.other(device.guid) for link in before.links if device.guid in dict(link.ends)]
        if its and not device.is_switch and {guid for guid, _ in its} <= without:
            continue  # reported with its switch
        what = "HCA" if device.kind == "hca" else device.kind
        taken = [before.devices[guid] for guid, _ in its if device.is_switch and not before.devices[guid].is_switch]
        gone = [one.label for one in taken if one in changed.gone]
        with_it = f", with the HCA{'s' if gone[1:] else ''} behind it ({listed(gone)})" if gone else ""
        where = listed([before.port(end) for end in its if before.devices[end[0]].label not in gone])
        it = f"the {what}" if gone else "it"
        yield failed(f"the {what} {device.label} is missing{with_it}; {it} was connected to {where or 'nothing else'}",
                     subject=device.label, found="absent", expected=f"present ({site.reference.path})",
                     evidence=keys)  # fmt: skip
    for link in changed.missing:
        yield failed(f"the link {before.words(link)} is missing{_state(swept, link)}", subject=before.words(link),
                     found="absent", expected=f"{link.speed} ({site.reference.path})", evidence=keys)  # fmt: skip
    if not (changed.slower or changed.moved or changed.gone or changed.missing):
        new = f"; new: {listed([net.words(link) for link in changed.new_links])}" if changed.new_links else ""
        yield passed(f"all {len(before.links)} links of {site.reference.path} are present{new}",
                     found=f"{len(net.links)} links", evidence=keys)  # fmt: skip


def _state(swept: FabricFacts, link: FabricLink) -> str:
    """Return the states of a link's ports, such as Down/Polling; empty if not read."""
    found = swept.states_of(link)
    return "; its ports are " + " and ".join(f"{one.state}/{one.physical}" for one in found) if found else ""


@check(
    "fabric.link-errors",
    title="No error counter of the fabric grows",
    fault="An error counter of the fabric grows",
    impact="slows-job",
    owner="network",
    source=f"{DIAGS}: ibqueryerrors(8); NVSentinel, rdma-core ibcheckerrs, Azure healthagent for the numbers",
    fix="Clean or replace the cable at the port named, then run `ibqueryerrors` twice, an hour apart.",
    action="fix-site",
    answers=("PA-19",),
    scope="fleet",
    sweep=True,
    reads=("cmd:ibqueryerrors",),
    unless=(not_this_fabric,),
)
def link_errors(swept: FabricFacts, site: FabricSite) -> Iterator[Finding]:
    """Compare error counters with the start of a window and with the reference.

    ## Why it matters
    Each damaged packet is retransmitted after a timeout, and all ranks of the collective wait; a link that goes down
    for a second can end the job.

    ## Verdicts
    Growth within an hour (or within the window, if shorter) fails above 120 symbol errors, 300 recoveries, 2 link downs
    or 9 damaged packets, and for any link integrity or overrun error. Smaller growth warns, and so do a refused packet,
    100 packets damaged on an earlier link, and 360,000 discards. A single reading covers all time since the last reset:
    it passes if all counters are zero, and is unknown otherwise. A saturated counter cannot grow, and is unknown.

    ## False alarms
    Reboots and pulled cables count as link downs at both ends. Waiting to send (PortXmitWait) means congestion, and
    multicast loops (PortRcvSwitchRelayErrors) are normal; neither is judged.
    """
    now, keys, earlier = swept.errors, [swept.errors_key], _earlier(swept, site)
    if not earlier:
        yield from _one_reading(swept)
        return
    grown_counters: dict[tuple[object, ...], Finding] = {}
    for before, after, window in earlier:
        for one in facts.fabric.compare.growth(before, after):
            if found := _grown(swept, one, window):
                grown_counters.setdefault((one.port, one.counter), found)
    yield from grown_counters.values()
    unanswered = max(after.unanswered for _, after, _ in earlier)
    if unanswered or swept.errors_key in swept.lost:
        yield unknown("some counter queries were not answered, so the errors of those ports are unknown", evidence=keys)
    elif not grown_counters:
        spans = " and ".join(_span(window) for *_, window in earlier)
        yield passed(f"no error counter of {now.nodes} devices has grown in {spans}", found="no growth", evidence=keys)


def _earlier(swept: FabricFacts, site: FabricSite) -> list[tuple[Errors, Errors, float]]:
    """Return the pairs of readings to compare, with the hours between them.

    One pair spans the window; the other starts at the reference.
    """
    found = [swept.window] if swept.window else []
    if site.reference and site.reference.errors:
        window = facts.fabric.reference.hours(site.reference.at, swept.evidence.collected_at)
        if window is not None and window > 0:
            found.append((site.reference.errors, swept.errors, window))
    return found


def _one_reading(swept: FabricFacts) -> Iterator[Finding]:
    keys, now, judged = [swept.errors_key], swept.errors, {*GATES, *HINTS}
    history = {port: {n: v for n, v in values.items() if n in judged} for port, values in now.counters.items()}
    marked = {port: values for port, values in history.items() if values}
    if swept.errors_key in swept.lost or now.unanswered:
        yield unknown("the counters of part of the fabric were not read", evidence=keys)
        return
    if not marked:
        yield passed(f"every error counter of {now.nodes} devices is zero", found="0", evidence=keys)
        return
    ports = [f"{_port(swept, p)}: {', '.join(f'{n} {v}' for n, v in values.items())}" for p, values in marked.items()]
    yield unknown(
        f"{clause(len(marked), 'port', 'has')} counted errors at an unknown time: {listed(ports, '; ')}",
        found=counted(len(marked), "port"), evidence=keys,
        fix="read the counters twice (`preflight check --fabric --window 60`), or name a saved sweep in the cluster "
        "file: [fabric] reference",
    )  # fmt: skip


def _grown(swept: FabricFacts, one: PortErrorGrowth, window: float) -> Finding | None:
    """Judge the growth of one counter; None if it is not judged or grew too little."""
    gate, hint = GATES.get(one.counter), HINTS.get(one.counter)
    rule = gate or hint
    if rule is None:
        return None
    port, keys = _port(swept, one.port), [swept.errors_key]
    if one.full or one.by < 0:
        why = f"is saturated at {one.before} and no longer counts" if one.full else (
            f"fell from {one.before} to {one.now}: it was reset"
        )  # fmt: skip
        return unknown(f"{port}: {one.counter} {why}", subject=port, evidence=keys,
                       fix="reset the counters at a quiet time (`ibqueryerrors -k`), and record a new "
                       "reference")  # fmt: skip
    allowed = rule[0] * max(window, 1.0)
    details: dict[str, Any] = {
        "subject": port,
        "found": f"+{one.by} in {_span(window)}",
        "expected": rule[1],
        "evidence": keys,
    }
    words = f"{port}: {rule[2]}; {one.counter} grew by {one.by} in {_span(window)}"
    if gate:
        return failed(words, **details) if one.by > allowed else warned(words, **details)
    return warned(words, **details) if one.by >= allowed else None


def _port(swept: FabricFacts, port: tuple[str, int]) -> str:
    name = swept.errors.names.get(port[0]) or swept.device_of(port[0])
    return f"{name} port {port[1]}"


def _span(window: float) -> str:
    if window >= 1:
        return f"{window:.3g} h"
    return f"{window * 60:.0f} min" if window >= 0.05 else f"{window * 3600:.0f} s"
