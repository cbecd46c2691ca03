"""Checks of congestion: ECN marks, pauses, and the load of uplinks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from preflight.checks.switch.common import each_switch, judged_ports, listed, unusable
from preflight.checks.switch.links import no_cable
from preflight.checks.switch.settings import without_dcqcn
from preflight.expectations.switches_table import EthernetSite
from preflight.facts.switch import cable_ends, hashing, pause
from preflight.facts.switch.ethernet import CableEnd, Ethernet
from preflight.facts.switch.model import SwitchFacts, growth
from preflight.model import Finding, check, counted, failed, none_of, passed, unknown, warned

#: Share of packets marked in a complete window above which congestion is permanent. A judgement call.
_MARKED = 0.1

#: Load below which uplinks are idle; imbalance that remains with very many flows; share of the mean below which an
#: uplink is unused. Judgement calls.
_IDLE, _EVEN, _NOTHING = 0.01, 1.1, 0.01

#: Probability that the imbalance of hashing alone stays below the limit.
_RARE = 0.99


def no_leaf(net: Ethernet, site: EthernetSite) -> Finding | None:
    """Report switches without a cable to any known host."""
    if any(not cable.other.is_switch for cable in net.cables):
        return None
    return unknown("no cable leads from these switches to a known host, so no leaf is known",
                   evidence=[switch.key("lldp") for switch in net.switches[:1]],
                   fix="pass the hosts' evidence as well")  # fmt: skip


def uplinks_of_leaves(net: Ethernet) -> dict[str, list[str]]:
    """Return the ports of each leaf that lead to switches without hosts."""
    uplinks: dict[str, list[str]] = {cable.near.device: [] for cable in net.cables if not cable.other.is_switch}
    for end, far in net.far_ends.items():
        # not a peer link between two leaves (MLAG)
        if end.device in uplinks and far.is_switch and far.device not in uplinks:
            uplinks[end.device].append(end.port)
    return uplinks


@check(
    "switch.marks",
    title="Switches mark packets where they pause senders",
    fault="A switch pauses senders without marking packets, or marks them all the time",
    impact="slows-job",
    owner="network",
    source="DCQCN (SIGCOMM 2015); SONiC COUNTERS_DB (SAI_QUEUE_STAT_WRED_ECN_MARKED_PACKETS, PFC_n_TX_PKTS)",
    fix="Compare thresholds and buffers: `preflight explain switch.ecn-before-pfc`, `ecnconfig -l`.",
    action="fix-site",
    separate=True,
    scope="fleet",
    switches=True,
    window=True,
    reads=("redis:COUNTERS_DB queues", "redis:COUNTERS_DB ports", "eos:show qos interfaces ecn counters queue"),
    unless=(without_dcqcn,),
)
def marks(net: Ethernet, site: EthernetSite) -> Iterator[Finding]:
    """Compare the packets that each switch marked with the pauses that it sent.

    ## Why it matters
    Marks without pauses are congestion control at work. Pauses without marks mean that it does not act: every flow
    through the switch stops, even uncongested ones.

    ## Verdicts
    A switch that sent pauses for at least 0.1% of the window, and marked no packet of its queues with ECN, warns; if
    its marks are not counted, it is unknown. More than one marked packet in ten, over the complete window, also warns;
    this limit is a judgement, because no standard defines one. Marks without pauses pass.

    ## False alarms
    A pause storm that a peer started and the switch only passes on.
    """
    good = yield from each_switch(
        net, site, lambda switch: _marks_of(net, switch, site), "pfc", "ecn",
        growth=["port counters", "queue counters"],
    )  # fmt: skip
    if good:
        marked_by = sum(
            any(_grown(switch, *place)[1] for place in _marked_queues(net, switch, site)) for switch in good
        )
        yield passed(f"{none_of(len(good), 'switch')} sent pauses without marking packets; {marked_by} of them "
                     "marked packets",
                     evidence=[net.switches[0].key("queue counters")])  # fmt: skip


def _marked_queues(net: Ethernet, switch: SwitchFacts, site: EthernetSite) -> Iterator[tuple[str, int]]:
    """Yield the lossless queues with ECN."""
    for port, priority in judged_ports(net, switch, site):
        queue = port.name, switch.queue(port.name, priority)
        if (marking := switch.ecn.get(queue)) is not None and marking.on:
            yield queue


def _grown(switch: SwitchFacts, port: str, queue: int) -> tuple[int | None, int | None]:
    """Return the packets and the marked packets of a queue in the window.

    A number is None if it is not counted.
    """
    assert switch.second
    before, after = switch.first.queues.get((port, queue)), switch.second.queues.get((port, queue))
    if before is None or after is None:
        return None, None
    return growth(before.packets, after.packets), growth(before.marked, after.marked)


def _marks_of(net: Ethernet, switch: SwitchFacts, site: EthernetSite) -> Iterator[Finding]:
    queues = list(_marked_queues(net, switch, site))
    counted = switch.marks_counted is not False and switch.poll_ms.get("marks", 0) is not None
    numbers = {queue: _grown(switch, *queue) for queue in queues}
    marked = [number for _, number in numbers.values() if number is not None] if counted else []
    pausing = [end.port for end, _, sent in pause.paused_ports(switch, net, site.priority) if sent]
    keys = [switch.key("queue counters"), switch.key("port counters"), switch.key("ecn")]
    if pausing and queues and not marked:
        yield unknown(
            f"{switch.name} sent pauses from {listed(pausing)}, but its marks are not counted", subject=switch.name,
            evidence=[*keys, switch.key("polling")], fix="count them: `counterpoll wredqueue enable`, then read again",
        )  # fmt: skip
    elif pausing and queues and not sum(marked):
        yield warned(f"{switch.name} sent pauses from {listed(pausing)}, but marked no packet", subject=switch.name,
                     found="no marks", expected="marks before pauses", evidence=keys)  # fmt: skip
    full = [f"{port} ({number / packets:.0%})" for (port, _), (packets, number) in numbers.items()
            if counted and packets and number and number > _MARKED * packets]  # fmt: skip
    if full:
        yield warned(f"{switch.name}: more than one packet in ten was marked at {listed(full)}", subject=switch.name,
                     found=full[0], expected=f"at most {_MARKED:.0%} of the packets", evidence=keys)  # fmt: skip


@check(
    "switch.uplink-balance",
    title="The uplinks of each leaf are loaded as evenly as hashing can",
    fault="The uplinks of a leaf are less even than hashing explains",
    impact="slows-job",
    owner="network",
    source="multinomial distribution of equal flows on equal links; SONiC COUNTERS_DB (SAI_PORT_STAT_IF_OUT_OCTETS)",
    fix="Use more queue pairs (NCCL_IB_QPS_PER_CONNECTION), the UDP source port in the hash, or adaptive routing; look "
    "for an uplink that routes do not use: `show ip route`, `show interfaces counters`.",
    action="fix-site",
    separate=True,
    answers=("AN-7", "FP-CON-5"),
    scope="fleet",
    switches=True,
    window=True,
    reads=(
        "redis:COUNTERS_DB ports",
        "redis:APPL_DB LLDP_ENTRY_TABLE",
        "eos:show interfaces",
        "nxos:show interface",
        "linux:ip -j -s link",
    ),
    unless=(no_cable, no_leaf),
)
def uplink_balance(net: Ethernet, site: EthernetSite) -> Iterator[Finding]:
    """Compare the most loaded uplink of each leaf with the imbalance of hashing alone.

    ## Why it matters
    Hashing puts each flow on one uplink. With few flows, one uplink may carry twice the mean without any fault;
    with many flows, the same ratio means polarised hashes or a route that skips uplinks.

    ## Verdicts
    With the number of flows that the cluster file declares (`flows`), an imbalance that hashing exceeds in only
    one of a hundred cases fails, and so does an uplink that should have traffic but has none. Without that key, up to
    1.1 times the mean passes, and a higher ratio is unknown. Uplinks of one speed are compared; idle leaves pass. A
    leaf with an uplink of unknown speed is unknown. Uplinks to a switch with which all BGP sessions are shut down in
    the configuration are left out; the message counts them.

    ## False alarms
    Flows of very different size, such as storage beside collectives.
    """
    good, worst, idle = 0, 1.0, 0
    uplinks = uplinks_of_leaves(net)
    shut = {(leaf, port) for leaf, ports in uplinks.items() for port in ports
            if cable_ends.drained(net, CableEnd(leaf, port, True))}  # fmt: skip
    uplinks = {leaf: [port for port in ports if (leaf, port) not in shut] for leaf, ports in uplinks.items()}
    for switch in net.switches:
        if switch.name not in uplinks:
            continue
        results = [*unusable(switch, "port counters")] or [*_without_load(switch, uplinks[switch.name])]
        for loads in () if results else _loads(switch, uplinks[switch.name]).values():
            mean = sum(loads.values()) / len(loads)
            if mean < _IDLE:
                idle += 1
            elif (finding := _uneven(switch, site, loads, mean)) is not None:
                results.append(finding)
            else:
                worst = max(worst, max(loads.values()) / mean)
        yield from results
        good += not results
    if good:
        shown = f"{worst:.2f} times the mean"
        yield passed(f"the busiest uplink of {counted(good, 'leaf', 'leaves')} carries at most {shown}"
                     + ("; some are idle" if idle else "")
                     + (f"; the BGP sessions over {counted(len(shut), 'uplink')} are shut down" if shut else ""),
                     found=shown, evidence=[net.switches[0].key("port counters")])  # fmt: skip


def _without_load(switch: SwitchFacts, uplinks: Sequence[str]) -> Iterator[Finding]:
    """Yield *unknown* for uplinks in use without known bytes or speed."""
    used = [name for name in uplinks if switch.ports[name].up is not False]
    if len(used) > 1 and (blank := [name for name in used if pause.load(switch, name) is None]):
        yield unknown(f"{switch.name}: the load of {listed(blank)} is unknown, because bytes or speeds are "
                      "missing",
                      subject=switch.name, evidence=[switch.key("port counters"), switch.key("ports")],
                      fix=switch.remedy)  # fmt: skip


def _loads(switch: SwitchFacts, uplinks: Sequence[str]) -> Mapping[float, Mapping[str, float]]:
    """Return the load of uplinks in use by speed, for speeds with several uplinks."""
    by_speed: dict[float, dict[str, float]] = {}
    for name in uplinks:
        port, load = switch.ports[name], pause.load(switch, name)
        if port.up is not False and port.speed_gbps and load is not None:
            by_speed.setdefault(port.speed_gbps, {})[name] = load
    return {speed: loads for speed, loads in by_speed.items() if len(loads) > 1}


def _uneven(switch: SwitchFacts, site: EthernetSite, loads: Mapping[str, float], mean: float) -> Finding | None:
    """Judge the uplinks of one speed; None if they are balanced."""
    flows, number, keys = site.settings.flows, len(loads), [switch.key("port counters"), switch.key("lldp")]
    fullest = max(loads, key=lambda port: loads[port])
    ratio = loads[fullest] / mean
    empty = [port for port, load in loads.items() if load < _NOTHING * mean]
    shown = f"{switch.name} {fullest} carries {ratio:.2f} times the mean of {number} uplinks"
    if flows is None:
        if ratio <= _EVEN and not empty:
            return None
        few, many = (hashing.most_loaded(times * number, number, _RARE) for times in (4, 64))
        return unknown(
            f"{shown}; hashing of {4 * number} flows gives up to {few:.2f}, and of {64 * number} flows up to "
            f"{many:.2f}",
            subject=switch.name, found=f"{ratio:.2f}", evidence=keys,
            fix="declare the flows of a leaf: [switches] flows = 512",
        )  # fmt: skip
    bound = hashing.most_loaded(flows, number, _RARE)
    if empty and hashing.idle_share(flows, number) < 1 - _RARE:
        return failed(
            f"{switch.name} {listed(empty)} carries no traffic, but the other uplinks do",
            subject=switch.name,
            found="no traffic",
            expected=f"a share of {flows} flows",
            evidence=keys,
        )
    if ratio > max(bound, _EVEN):
        return failed(f"{shown}; hashing of {flows} flows rarely gives more than {bound:.2f}", subject=switch.name,
                      found=f"{ratio:.2f}", expected=f"at most {max(bound, _EVEN):.2f}", evidence=keys)  # fmt: skip
    return None


@check(
    "switch.hash",
    title="Two tiers of switches hash flows with different seeds",
    fault="Two tiers of switches hash flows with the same seed",
    impact="slows-job",
    owner="network",
    source="hash polarisation: RDMA over Ethernet for AI Training (SIGCOMM 2024); SONiC switch.json (ecmp_hash_seed)",
    fix="Set a different ecmp_hash_seed on one of the tiers; SONiC derives it from `type` of DEVICE_METADATA.",
    action="fix-site",
    answers=("FP-CON-5",),
    scope="fleet",
    switches=True,
    reads=("redis:APPL_DB SWITCH_TABLE", "redis:APPL_DB LLDP_ENTRY_TABLE"),
    unless=(no_cable, no_leaf),
)
def hash_seeds(net: Ethernet, site: EthernetSite) -> Iterator[Finding]:
    """Compare the hash seeds of switches that spread the same flows.

    ## Why it matters
    A switch that uses the same hash as the one before it sees only flows that chose the same path there, so it puts all
    of them on the same link, and its other links stay empty.

    ## Verdicts
    A switch above the leaves warns if it has several links to one device or to a tier above, and the same seed as an
    adjacent switch that also spreads flows. A spine with one link to each leaf has no choice, so its seed is
    irrelevant. A switch that does not show a relevant seed is unknown.

    ## False alarms
    Switches with different chips, whose hashes differ despite equal seeds.
    """
    leaves = {cable.near.device for cable in net.cables if not cable.other.is_switch}
    links: dict[str, Counter[str]] = {switch.name: Counter() for switch in net.switches}
    for end, far in net.far_ends.items():
        if end.is_switch and far.is_switch:
            links[end.device][far.device] += 1
    same: dict[str, list[str]] = {}
    blank: list[str] = []
    judged = 0
    for switch in net.switches:
        others = links[switch.name]
        above = [device for device in others if device not in leaves]
        if switch.name in leaves or not (max(others.values(), default=0) > 1 or len(above) > 1):
            continue
        beside = [net.by_name[name] for name in others if sum(links[name].values()) > 1]
        if switch.hash_seed is None or any(other.hash_seed is None for other in beside):
            blank.append(switch.name)
        elif names := sorted(other.name for other in beside if other.hash_seed == switch.hash_seed):
            same.setdefault(switch.hash_seed, []).extend([*names, switch.name])
        else:
            judged += 1
    for seed, hashing_alike in same.items():
        names = sorted(set(hashing_alike))
        shown = sorted(names, key=lambda name: name in leaves)  # leaves, which are not adjacent to each other, last
        yield warned(f"adjacent switches hash with the same seed {seed}: {listed(shown)}", subject=", ".join(names),
                     found=f"seed {seed}", expected="a different seed on each tier",
                     evidence=[net.by_name[name].key("hash") for name in names[:2]])  # fmt: skip
    if blank:
        yield unknown(f"{listed(blank)}: the hash seed is not shown, here or on an adjacent switch", evidence=[
            net.by_name[blank[0]].key("hash")], fix="pass APPL_DB of the switches")  # fmt: skip
    if judged or not (same or blank):
        yield passed(f"{none_of(judged, 'switch')} above the leaves shares its hash seed with an adjacent switch",
                     evidence=[net.switches[0].key("hash")])  # fmt: skip
