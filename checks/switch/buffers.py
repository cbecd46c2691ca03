"""Checks of the buffers behind lossless queues."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.checks.switch.common import each_switch, judged_ports, listed, place_of
from preflight.checks.switch.settings import without_dcqcn
from preflight.expectations.switches_table import EthernetSite
from preflight.facts.switch.ethernet import CableEnd, Ethernet
from preflight.facts.switch.model import PriorityGroup, SwitchFacts, SwitchPort
from preflight.model import Finding, check, counted, failed, passed, unknown, warned

#: Maximum ratio of the lossless ports' headroom to the shared pool. A judgement call; SONiC's default is 2.
_SHARED_BY = 4.0

#: Share of the headroom that may be used. A judgement call.
_FULL = 0.9


@check(
    "switch.ecn-before-pfc",
    title="Switches mark packets before their buffers send pauses",
    fault="A switch sends pauses before it marks packets",
    impact="slows-job",
    owner="network",
    source="DCQCN (SIGCOMM 2015, section 4); SAI (dynamic threshold: 2^n of the free pool); SONiC BUFFER_PROFILE",
    fix="Lower `green_min_threshold` of the ECN profile (`ecnconfig -p PROFILE -gmin BYTES`), or raise `dynamic_th`.",
    explains=(
        ("ethernet.peers-equal", "names"),
        ("fabric.pause-root", "switch", "*", "*without a full port*"),
        ("switch.marks", "switch"),
    ),
    action="fix-site",
    answers=("FP-CON-3",),
    scope="fleet",
    switches=True,
    reads=(
        "redis:CONFIG_DB WRED_PROFILE",
        "redis:CONFIG_DB BUFFER_PROFILE",
        "redis:APPL_DB BUFFER_POOL_TABLE",
        "eos:show qos interfaces ecn",
    ),
    unless=(without_dcqcn,),
)
def ecn_before_pfc(net: Ethernet, site: EthernetSite) -> Iterator[Finding]:
    """Compare each queue's lower ECN threshold with the level at which it pauses.

    ## Why it matters
    Marks slow down the senders that cause a queue; pauses stop all of them. If the buffer pauses first, congestion
    control never acts.

    ## Verdicts
    A queue warns if its packets are marked only at a level at which its buffer already pauses. That level is the static
    threshold of the priority group, or the group's share of an otherwise empty pool, which is the highest possible
    level. The headroom (`xoff`) is not compared: it is used after the pause. `switch.ecn` reports a queue without ECN.
    A pool without a size is unknown.

    ## False alarms
    A queue that several ports fill, each of which stays below its own level.
    """
    good = yield from each_switch(
        net, site, lambda switch: _late_marks(net, switch, site), "pfc", "queues", "ecn", "groups", "profiles"
    )
    if good:
        yield passed(f"{counted(len(good), 'switch marks', 'switches mark')} packets of the lossless queues before "
                     "pausing",
                     evidence=[net.switches[0].key("ecn"), net.switches[0].key("profiles")])  # fmt: skip


def _late_marks(net: Ethernet, switch: SwitchFacts, site: EthernetSite) -> Iterator[Finding]:
    late: dict[tuple[int, int], list[str]] = {}
    blank: list[str] = []
    for port, priority in judged_ports(net, switch, site):
        marking = switch.ecn.get((port.name, switch.queue(port.name, priority)))
        group = switch.groups.get((port.name, switch.group(port.name, priority, site.dscp)))
        if marking is None or not marking.on or marking.kmin is None or group is None or group.xoff is None:
            continue  # switch.ecn, switch.headroom or switch.buffer-pools reports it
        level = _pauses_at(switch, group)
        if level is None:
            blank.append(port.name)
        elif marking.kmin >= level:
            late.setdefault((marking.kmin, level), []).append(port.name)
    keys = [switch.key("ecn"), switch.key("profiles"), switch.key("pools")]
    for (kmin, level), names in late.items():
        yield warned(
            f"{switch.name}: lossless queues of {listed(names)} are marked from {kmin} bytes, but their ports pause "
            f"from {level} bytes", subject=switch.name, found=f"{kmin} bytes", expected=f"below {level} bytes",
            evidence=keys,
        )  # fmt: skip
    if blank:
        yield unknown(f"{switch.name} {listed(blank)}: the level at which the port pauses is not shown: the size of "
                      "its pool or its threshold is missing", subject=switch.name, evidence=keys,
                      fix=switch.remedy)  # fmt: skip


def _pauses_at(switch: SwitchFacts, group: PriorityGroup) -> int | None:
    """Return the bytes in a priority group at which it pauses; None if unknown."""
    if group.static_th is not None:
        return group.static_th
    size = switch.pools.get(group.pool, {}).get("size")
    if group.dynamic_th is None or size is None or abs(group.dynamic_th) > 16:
        return None
    share = 2.0**group.dynamic_th
    return int(size * share / (1 + share))


@check(
    "switch.buffer-pools",
    title="Lossless priorities use lossless buffers, and share enough headroom",
    fault="A lossless priority uses a lossy buffer, or too little shared headroom",
    impact="slows-job",
    owner="network",
    source="SONiC headroom design (shared headroom pool, over-subscribe ratio 2); SONiC BUFFER_PG and BUFFER_PROFILE",
    fix="Bind a lossless profile: `config interface buffer priority-group lossless set PORT 3`.",
    explains=(
        ("ethernet.peers-equal", "names"),
        ("switch.lossless-drops", "parts"),
        ("switch.queue-depth", "parts"),
    ),
    action="fix-site",
    answers=("FP-CON-2",),
    scope="fleet",
    switches=True,
    reads=(
        "redis:CONFIG_DB BUFFER_PG",
        "redis:CONFIG_DB BUFFER_PROFILE",
        "redis:CONFIG_DB BUFFER_POOL",
        "eos:show qos interfaces",
    ),
)
def buffer_pools(net: Ethernet, site: EthernetSite) -> Iterator[Finding]:
    """Check the buffer of each lossless priority, and the headroom that ports share.

    ## Why it matters
    PFC on a port with a lossy buffer pauses too late: packets are dropped although every port shows PFC.

    ## Verdicts
    A lossless priority fails if its group has a profile without headroom. A priority that RoCE uses also fails if it is
    mapped to a group without a profile while another group of the port has headroom. It fails as well if it has no
    buffer at a cable to a known device while other ports have headroom. Any other priority whose buffer is not shown is
    unknown. If ports share a headroom pool, the switch warns if the total headroom of the ports in use exceeds four
    times the pool; a smaller excess passes, because ports rarely all pause at the same time.

    ## False alarms
    Switches on which few ports carry RoCE, although PFC is enabled on all of them.
    """
    good = yield from each_switch(
        net, site, lambda switch: _wrong_pools(net, switch, site), "pfc", "groups", "profiles"
    )
    if good:
        yield passed(f"the lossless priorities of {counted(len(good), 'switch')} use lossless buffers",
                     evidence=[net.switches[0].key("groups"), net.switches[0].key("profiles")])  # fmt: skip


def _wrong_pools(net: Ethernet, switch: SwitchFacts, site: EthernetSite) -> Iterator[Finding]:
    keys = [switch.key("groups"), switch.key("profiles")]
    wrong: dict[tuple[int, str], list[str]] = {}
    shared: dict[str, int] = {}
    sharing: dict[str, list[str]] = {}
    elsewhere: dict[tuple[int, int], list[str]] = {}
    without: dict[tuple[int, int], list[str]] = {}
    blank: dict[int, list[str]] = {}
    with_headroom = {port for (port, _), group in switch.groups.items() if group.xoff}
    for port, priority in judged_ports(net, switch, site):
        number = switch.group(port.name, priority, site.dscp)
        group = switch.groups.get((port.name, number))
        if group is None:
            used = site.priority == priority or len(port.pfc or ()) == 1  # others may have no traffic
            if used and number != priority and port.name in with_headroom:
                elsewhere.setdefault((priority, number), []).append(port.name)
            elif used and with_headroom and _is_bare(net, switch, port, number):
                without.setdefault((priority, number), []).append(port.name)
            elif port.up is not False:
                blank.setdefault(priority, []).append(port.name)
        elif group.xoff is None:
            wrong.setdefault((priority, group.profile), []).append(port.name)
        elif port.up is not False and (group.size or 0) < (group.xon or 0) + group.xoff:
            shared[group.pool] = shared.get(group.pool, 0) + group.xoff  # not reserved for this port
            sharing.setdefault(group.pool, []).append(place_of(switch, port.name, priority))
    for (priority, profile), names in wrong.items():
        yield failed(
            f"{switch.name} {listed(names)}: the lossless priority {priority} uses the buffer profile {profile}, which "
            "has no headroom", subject=switch.name, found=profile, expected="a profile with xoff", evidence=keys,
        ).with_parts(*(place_of(switch, name, priority) for name in names))  # fmt: skip
    for (priority, number), names in elsewhere.items():
        yield failed(
            f"{switch.name} {listed(names)}: packets of the lossless priority {priority} enter priority group "
            f"{number}, which has no buffer profile, but another group has headroom", subject=switch.name,
            found=f"group {number}", expected="the group with headroom", evidence=keys,
            fix="map the traffic class to that group: TC_TO_PRIORITY_GROUP_MAP",
        ).with_parts(*(place_of(switch, name, priority) for name in names))  # fmt: skip
    for (priority, number), names in without.items():
        yield failed(
            f"{switch.name} {listed(names)}: the lossless priority {priority} has no buffer (priority group {number}), "
            f"but that of other ports has headroom", subject=switch.name, found="no buffer",
            expected="a profile with xoff", evidence=keys,
        ).with_parts(*(place_of(switch, name, priority) for name in names))  # fmt: skip
    for priority, names in blank.items():
        yield unknown(f"{switch.name} {listed(names)}: the buffer of the lossless priority {priority} is not shown",
                      subject=switch.name, evidence=keys, fix=switch.remedy)  # fmt: skip
    for pool, wanted in shared.items():
        has = switch.pools.get(pool, {}).get("xoff")
        if has and wanted > _SHARED_BY * has:
            yield warned(
                f"{switch.name}: the headroom of ports in use is {wanted / has:.1f} times the {has} bytes "
                f"that {pool} shares", subject=switch.name, found=f"{wanted} bytes",
                expected=f"at most {_SHARED_BY:g} times {has} bytes", evidence=[*keys, switch.key("pools")],
            ).with_parts(*sharing[pool])  # fmt: skip


def _is_bare(net: Ethernet, switch: SwitchFacts, port: SwitchPort, group: int) -> bool:
    """Return whether the port of a known cable has no buffer for a priority group."""
    in_use = port.up is not False and CableEnd(switch.name, port.name, True) in net.far_ends
    return in_use and switch.buffered is not None and (port.name, group) not in switch.buffered


@check(
    "switch.queue-depth",
    title="The buffers of lossless queues have room",
    fault="The headroom of a lossless port was nearly full",
    impact="slows-job",
    owner="network",
    source="SONiC COUNTERS_DB (SAI_QUEUE_STAT_SHARED_WATERMARK_BYTES, …_XOFF_ROOM_WATERMARK_BYTES)",
    fix="Compare `show priority-group watermark headroom` with the profile; look for the sender that ignores pauses.",
    action="fix-site",
    answers=("FP-OBS-7", "FP-CON-2", "PA-19", "FP-BW-4"),
    scope="fleet",
    switches=True,
    reads=("redis:COUNTERS_DB queues", "redis:COUNTERS_DB pgs", "eos:show qos interfaces ecn counters queue"),
)
def queue_depth(net: Ethernet, site: EthernetSite) -> Iterator[Finding]:
    """Compare the highest level of each lossless buffer with its size.

    ## Why it matters
    The headroom is used only after a pause. If it was nearly full once, the next burst, or a longer cable, drops
    packets of a lossless queue.

    ## Verdicts
    A headroom of which 90% or more was used warns; this limit is a judgement. The levels are the highest since the
    watermarks were last cleared; preflight never clears them. A switch that shows no level of its lossless queues is
    unknown. The message names the deepest queue; its depth alone is not a fault.

    ## False alarms
    A level that was reached before the buffers were changed.
    """
    good = yield from each_switch(
        net, site, lambda switch: _levels(net, switch, site), "pfc", "queue counters", "group counters"
    )
    depths = [
        (counters.watermark, f"{switch.name} {port}")
        for switch in good
        for (port, _), counters in switch.first.queues.items()
        if counters.watermark is not None
    ]
    if depths:
        deepest, where = max(depths)
        yield passed(f"{counted(len(good), 'switch shows', 'switches show')} the depth of the lossless queues; "
                     "the deepest since the last clear: "
                     f"{deepest} bytes at {where}", found=f"{deepest} bytes",
                     evidence=[good[0].key("queue counters"), good[0].key("group counters")])  # fmt: skip


def _levels(net: Ethernet, switch: SwitchFacts, site: EthernetSite) -> Iterator[Finding]:
    keys = [switch.key("queue counters"), switch.key("group counters")]
    blank: list[str] = []
    for port, priority in judged_ports(net, switch, site):
        depth = switch.first.queues.get((port.name, switch.queue(port.name, priority)))
        number = switch.group(port.name, priority, site.dscp)
        level, group = switch.first.groups.get((port.name, number)), switch.groups.get((port.name, number))
        used = level.xoff_watermark if level else None
        if used is not None and group is not None and group.xoff and used >= _FULL * group.xoff:
            yield warned(
                f"{switch.name} {port.name}: {used} of {group.xoff} bytes of headroom were used since the last clear",
                subject=f"{switch.name} {port.name}", found=f"{used} bytes",
                expected=f"below {_FULL:.0%} of {group.xoff} bytes", evidence=keys,
            ).with_parts(place_of(switch, port.name, priority))  # fmt: skip
        elif port.up is not False and (depth is None or depth.watermark is None):
            blank.append(port.name)
    if blank:
        yield unknown(f"{switch.name} {listed(blank)}: the depth of the lossless queue is not shown",
                      subject=switch.name, evidence=keys, fix="count it: `counterpoll watermark enable`")  # fmt: skip
