"""Checks of switch settings: ECN, headroom, PFC watchdog."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from preflight._startup.lightclass import dataclass
from preflight.checks.switch.common import each_switch, judged_ports, listed, place_of
from preflight.evidence.document import EvidenceError
from preflight.expectations.switches_table import EthernetSite
from preflight.facts import congestion
from preflight.facts.switch import headroom as formula
from preflight.facts.switch.ethernet import Ethernet
from preflight.facts.switch.model import QueueMarking, SwitchFacts, SwitchPort, went_back
from preflight.model import Finding, check, counted, failed, passed, skipped, unknown, warned

#: Published thresholds in bytes, the widest span: DCQCN (2015) to Cisco Nexus 9000 and SONiC's AZURE_LOSSLESS.
_KMIN, _KMAX = (5_000, 1 << 20), (200_000, 3_000_000)

#: Bytes of a frame beyond a port's MTU: Ethernet header, VLAN tag, checksum.
_OVERHEAD = 22


def without_dcqcn(net: Ethernet, site: EthernetSite) -> Finding | None:
    """Skip a fabric whose hosts do not slow down on ECN marks, by design."""
    if site.settings.dcqcn is not False or not net.switches:
        return None
    key = net.switches[0].key("ecn")
    return skipped(f"hosts do not slow down on ECN marks ({site.source('dcqcn')} = false)", evidence=[key])


def without_watchdog(net: Ethernet, site: EthernetSite) -> Finding | None:
    """Skip a fabric that is declared without a PFC watchdog."""
    if site.settings.watchdog is not False or not net.switches:
        return None
    return skipped(
        f"the fabric has no PFC watchdog by design ({site.source('watchdog')} = false)",
        evidence=[net.switches[0].key("watchdog")],
    )


@check(
    "switch.answers",
    title="Every switch shows the judged settings and counters",
    fault="A switch lacks judged settings or counters",
    impact="drifts",
    owner="network",
    source="SONiC: sonic-utilities (scripts/generate_dump), sonic-swss (doc/swss-schema.md)",
    fix="Run `preflight check --switches`, or pass more files; the findings list the commands of each switch.",
    action="fix-site",
    scope="fleet",
    switches=True,
    reads=("redis:CONFIG_DB PORT", "redis:APPL_DB PORT_TABLE", "eos:show interfaces"),
)
def answers(net: Ethernet, site: EthernetSite) -> Iterator[Finding]:
    """Read every table of each switch that a check needs.

    ## Why it matters
    A check of a switch without data cannot pass, because faults there stay invisible.

    ## Verdicts
    A switch without an answer, or with a database that was not read, is unknown. A table without rows counts as read:
    it contains no settings. A switch whose counter decreased between two readings warns: its counters were cleared or
    it was restarted, so nothing is known about growth.

    ## False alarms
    Files of only one database, provided on purpose; then the other checks are unknown as well.
    """
    complete = []
    for name, why in net.silent.items():
        yield unknown(f"{name} gave no answer: {why}", subject=name,
                      fix="connect as `ssh` does, or pass its files with --switch-files")  # fmt: skip
    for switch in net.switches:
        if switch.gaps:
            missing = {switch.keys.get(part, part): why for part, why in switch.gaps.items()}
            why = next(iter(missing.values()))
            yield unknown(
                f"{switch.name}: {counted(len(missing), 'record was', 'records were')} not read "
                f"({', '.join(list(missing)[:3])}): {why}",
                subject=switch.name, found=f"{counted(len(missing), 'record')} missing", fix=switch.remedy,
            )  # fmt: skip
        elif switch.second and (cleared := went_back(switch.first, switch.second)):
            yield warned(
                f"{switch.name}: counters of {listed(cleared)} decreased between the readings",
                subject=switch.name, evidence=[switch.key("port counters")],
                fix="read them again; `show reboot-cause` shows whether the switch was restarted",
            )  # fmt: skip
        else:
            complete.append(switch)
    if complete:
        yield passed(f"{counted(len(complete), 'switch shows', 'switches show')} all judged settings and counters",
                     evidence=[complete[0].key("ports")])  # fmt: skip


@check(
    "switch.ecn",
    title="Switches mark packets of the lossless queue before they pause",
    fault="A switch does not correctly mark packets of the lossless queue",
    impact="slows-job",
    owner="network",
    source="DCQCN (SIGCOMM 2015); SONiC qos_config.j2 (AZURE_LOSSLESS); Cumulus Linux RoCE; Cisco RoCE blueprint",
    fix="Bind an ECN profile to the queue of the RoCE priority; `ecnconfig -l` lists those of SONiC.",
    explains=(
        ("ethernet.peers-equal", "names"),
        ("fabric.pause-root", "switch", "*", "*without a full port*"),
        ("switch.marks", "switch"),
    ),
    action="fix-site",
    answers=("FP-CON-3", "FP-LOSS-2", "AN-4", "PA-14"),
    scope="fleet",
    switches=True,
    reads=(
        "redis:CONFIG_DB WRED_PROFILE",
        "redis:CONFIG_DB QUEUE",
        "redis:CONFIG_DB PORT_QOS_MAP",
        "eos:show qos interfaces ecn",
    ),
    unless=(without_dcqcn,),
)
def ecn(net: Ethernet, site: EthernetSite) -> Iterator[Finding]:
    """Compare the ECN profile of each lossless queue with the needs of DCQCN.

    ## Why it matters
    Without marks, a sender slows down only when it is paused. Pauses stop every flow of the priority, even uncongested
    ones, and spread from switch to switch.

    ## Verdicts
    A lossless queue without ECN fails if the hosts run DCQCN or the cluster file declares it (`dcqcn`), and is unknown
    if neither is known. A lower threshold that is 0 or above the upper one fails; equal thresholds pass, because they
    mark in one step (RFC 8257). Thresholds outside the range of all published ones warn: they depend on rate and
    buffer, and vendors differ by a factor of 200. A fabric that is declared without DCQCN (`dcqcn = false`) is not
    judged.

    ## False alarms
    A fabric that controls congestion by PFC alone; declare it.
    """
    wanted = site.settings.dcqcn or _hosts_react(net, site)
    good = yield from each_switch(net, site, lambda switch: _ecn_of(net, switch, site, wanted), "pfc", "queues", "ecn")
    if good:
        spans = sorted({f"{ecn.kmin} to {ecn.kmax} bytes" for switch in good for ecn in switch.ecn.values()})
        yield passed(f"{counted(len(good), 'switch marks', 'switches mark')} packets of the lossless queues from "
                     f"{listed(spans)}",
                     found=listed(spans), evidence=[good[0].key("ecn")])  # fmt: skip


def _hosts_react(net: Ethernet, site: EthernetSite) -> bool | None:
    """Return whether hosts react to marks; None if no host shows it."""
    reactions = set()
    for host in net.hosts:
        try:
            priority = site.priority if site.priority is not None else 3
            reactions.add(congestion.ecn(host.node.evidence, host.netdev, priority).reaction_point)
        except EvidenceError:
            continue
    return True if True in reactions else False if reactions else None


def _ecn_of(net: Ethernet, switch: SwitchFacts, site: EthernetSite, wanted: bool | None) -> Iterator[Finding]:
    without: dict[int, list[str]] = {}
    profiles: dict[str, tuple[QueueMarking, list[str]]] = {}
    for port, priority in judged_ports(net, switch, site):
        queue = switch.queue(port.name, priority)
        marking = switch.ecn.get((port.name, queue))
        if marking is None or not marking.on:
            without.setdefault(queue, []).append(port.name)
        else:
            profiles.setdefault(marking.profile, (marking, []))[1].append(port.name)
    keys = [switch.key("ecn"), switch.key("queues")]
    for queue, names in without.items():
        report = failed if wanted else unknown
        unless = "" if wanted else "; whether hosts run DCQCN is not known"
        yield report(
            f"{switch.name}: ECN is off on the lossless queue {queue} of {listed(names)}{unless}", subject=switch.name,
            found="off", expected="on", evidence=keys,
            fix="" if wanted else "declare it in the cluster file: [switches] dcqcn = true, or false",
        )  # fmt: skip
    for marking, names in profiles.values():
        yield from _thresholds(switch, marking, names)


def _thresholds(switch: SwitchFacts, marking: QueueMarking, names: list[str]) -> Iterator[Finding]:
    low, high, keys = marking.kmin, marking.kmax, [switch.key("ecn")]
    where = f"{switch.name}: ECN profile {marking.profile} of {listed(list(dict.fromkeys(names)))}"
    if low is None or high is None:
        yield unknown(f"{where} shows no thresholds", subject=switch.name, evidence=keys, fix=switch.remedy)
        return
    span = f"from {low} to {high} bytes"
    if not 0 < low <= high:
        yield failed(
            f"{where} marks {span}", subject=switch.name, found=span,
            expected="a lower threshold above 0 and not above the upper one", evidence=keys,
        )  # fmt: skip
    elif not (_KMIN[0] <= low <= _KMIN[1] and _KMAX[0] <= high <= _KMAX[1]):
        yield warned(
            f"{where} marks {span}, outside the range of all published thresholds", subject=switch.name, found=span,
            expected=f"lower {_KMIN[0]} (DCQCN) to {_KMIN[1]} (SONiC), upper {_KMAX[0]} (DCQCN) to {_KMAX[1]} (Cisco)",
            evidence=keys,
        )  # fmt: skip


@check(
    "switch.headroom",
    title="The buffers of lossless ports absorb the packets that arrive after a pause",
    fault="The buffer of a lossless port may overflow after it sends a pause",
    impact="slows-job",
    owner="network",
    source="IEEE 802.1Q annex O, IEEE 802.3 31B.3.7; SONiC headroom design (buffer_headroom_mellanox.lua)",
    fix="Set the cable length in CABLE_LENGTH, or take the profile for speed and length of `pg_profile_lookup.ini`.",
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
        "redis:CONFIG_DB CABLE_LENGTH",
        "eos:show qos interfaces",
    ),
)
def headroom(net: Ethernet, site: EthernetSite) -> Iterator[Finding]:
    """Compare each lossless port's headroom with the bytes that follow a pause.

    ## Why it matters
    A peer that is paused keeps sending for the length of the cable and its own response time. Packets that do not fit
    are dropped despite PFC, and RDMA retransmits complete messages.

    ## Verdicts
    Less than the bytes on the cable and one frame fails: no switch can be lossless with it. Less than the worst case of
    the standard, with the peer's full response time, warns. A port without a cable length or a profile is unknown.

    ## False alarms
    A peer that stops earlier than in the worst case, as most do: no packet is lost despite the warning. A declared
    length that is longer than the cable.
    """
    good = yield from each_switch(
        net, site, lambda switch: _headroom_of(net, switch, site), "pfc", "groups", "profiles", "settings"
    )
    if good:
        yield passed(f"the lossless ports of {counted(len(good), 'switch')} have headroom for the worst case",
                     evidence=[good[0].key("profiles")])  # fmt: skip


def _headroom_of(net: Ethernet, switch: SwitchFacts, site: EthernetSite) -> Iterator[Finding]:
    keys = [switch.key("profiles"), switch.key("groups"), switch.key("cables")]
    wrong_ports: dict[_Buffer, list[tuple[str, int]]] = {}
    for port, priority in judged_ports(net, switch, site):
        if (wrong := _buffer(switch, port, priority, site)) is not None:
            wrong_ports.setdefault(wrong, []).append((port.name, priority))
    for wrong, places in wrong_ports.items():
        names = list(dict.fromkeys(name for name, _ in places))
        yield wrong.report(
            f"{switch.name} {listed(names)}: {wrong.words}", subject=f"{switch.name} {names[0]}", found=wrong.value,
            expected=wrong.bound, evidence=keys, fix=wrong.fix,
        ).with_parts(*(place_of(switch, *place) for place in places))  # fmt: skip


@dataclass(frozen=True)
class _Buffer:
    """A lossless buffer that is too small or cannot be judged."""

    report: Callable[..., Finding]
    words: str
    value: str | None = None
    bound: str | None = None
    fix: str = ""


def _buffer(switch: SwitchFacts, port: SwitchPort, priority: int, site: EthernetSite) -> _Buffer | None:
    """Judge the buffer of one priority of a port; None if it is large enough."""
    number = switch.group(port.name, priority, site.dscp)
    group = switch.groups.get((port.name, number))
    if group is None or group.xoff is None:
        return _Buffer(unknown, f"no headroom is shown for priority group {number}", fix=switch.remedy)
    has, speed, length = f"{group.xoff} bytes", port.speed_gbps, port.cable_m or site.settings.cable_m
    if speed is None or not length:
        lack = "speed" if speed is None else "length of the cable"
        fix = switch.remedy if speed is None else "declare it in the cluster file: [switches] cable_m = 30"
        return _Buffer(unknown, f"the {lack} is not known", has, fix=fix)
    least = formula.needed(speed, length, port.mtu + _OVERHEAD if port.mtu else formula.FRAME)
    if least is None:
        return _Buffer(unknown, f"no response time is known at {speed:g} Gb/s", has)
    where = f"at {speed:g} Gb/s and {length:g} m"
    if group.xoff < least.minimum:
        words = (
            f"the headroom is {has}, but {least.minimum} bytes still arrive after a pause {where}: "
            f"{least.in_flight} in flight, and one frame"
        )
        return _Buffer(failed, f"{words} ({group.profile})", has, f"at least {least.minimum} bytes")
    if group.xoff < least.worst:
        words = f"the headroom is {has}, but the worst case {where} is {least.worst} bytes"
        return _Buffer(warned, f"{words} ({group.profile})", has, f"at least {least.worst} bytes")
    return None


@check(
    "switch.watchdog",
    title="The PFC watchdog is on at every lossless port",
    fault="A lossless port has no working PFC watchdog",
    impact="loses-redundancy",
    owner="network",
    source="SONiC pfcwd (sonic-utilities, sonic-swss pfcwdorch); RDMA over Commodity Ethernet at Scale (SIGCOMM 2016)",
    fix="Start it with valid times: `pfcwd start_default`, or `pfcwd start --action drop PORT 200 "
    "--restoration-time 200`.",
    explains=(("ethernet.peers-equal", "names"),),
    action="fix-site",
    answers=("FP-CON-4",),
    scope="fleet",
    switches=True,
    reads=(
        "redis:CONFIG_DB PFC_WD",
        "redis:CONFIG_DB PORT_QOS_MAP",
        "eos:show priority-flow-control counters watchdog",
    ),
    unless=(without_watchdog,),
)
def watchdog(net: Ethernet, site: EthernetSite) -> Iterator[Finding]:
    """Look up the PFC watchdog of each lossless port, and its times.

    ## Why it matters
    A NIC that pauses without end stops every flow towards it, and then the flows behind these. The watchdog drops the
    NIC's packets instead, so one broken NIC does not stop the fabric.

    ## Verdicts
    A lossless port without a watchdog warns, and so does a detection time below the polling interval, which detects
    nothing in time. If the cluster file declares `watchdog = false`, the check does not apply.

    ## False alarms
    Platforms with a watchdog in hardware that is configured elsewhere.
    """
    good = yield from each_switch(net, site, lambda switch: _watchdogs_of(net, switch, site), "pfc", "watchdog")
    if good:
        yield passed(f"the PFC watchdog is on at the lossless ports of {counted(len(good), 'switch')}",
                     evidence=[good[0].key("watchdog")])  # fmt: skip


def _watchdogs_of(net: Ethernet, switch: SwitchFacts, site: EthernetSite) -> Iterator[Finding]:
    names = list(dict.fromkeys(port.name for port, _ in judged_ports(net, switch, site)))
    keys, poll = [switch.key("watchdog")], switch.watchdog_poll_ms
    off = [name for name in names if name not in switch.watchdogs]
    times = {name: switch.watchdogs[name].detect_ms for name in names if name in switch.watchdogs}
    blind = [name for name, time in times.items() if poll and time and time < poll]
    if off:
        yield warned(f"{switch.name}: the PFC watchdog is off on {listed(off)}", subject=switch.name, found="off",
                     expected="on", evidence=keys)  # fmt: skip
    if blind:
        yield warned(
            f"{switch.name}: the detection time of {listed(blind)} is shorter than the polling interval",
            subject=switch.name, found=f"{times[blind[0]]} ms", expected=f"at least {poll} ms", evidence=keys,
        )  # fmt: skip
