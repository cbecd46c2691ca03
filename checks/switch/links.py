"""Checks of both ends of each cable: neighbours, PFC, frame size, speed and FEC."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from preflight.checks.switch.common import listed, priority_list, unread_record
from preflight.expectations.switches_table import EthernetSite
from preflight.facts.switch import cable_ends
from preflight.facts.switch.ethernet import CableEnd, Ethernet
from preflight.model import Finding, check, counted, failed, passed, unknown, warned
from preflight.parsers.network.lldp import LLDP

_LLDP_FIX = "compare `show lldp neighbors` of the switch and `lldpcli show neighbors` of the host with the cabling plan"


def no_cable(net: Ethernet, site: EthernetSite) -> Finding | None:
    """Report switches without a known cable."""
    if net.cables:
        return None
    return unknown(
        "no cable of these switches is known: neither they nor the hosts show a neighbour among them",
        evidence=[switch.key("lldp") for switch in net.switches[:1]],
        fix="enable LLDP (`show lldp table` in SONiC), and judge hosts and switches together",
    )


@check(
    "link.join",
    title="Both ends of each cable show each other",
    fault="The two ends of a cable show different neighbours",
    impact="slows-job",
    owner="network",
    source="IEEE 802.1AB (LLDP); SONiC lldpmgrd (local port id: the port's alias)",
    fix="Compare `lldpcli show neighbors` of both ends with the cabling plan.",
    action="fix-site",
    separate=True,
    answers=("AN-4",),
    scope="fleet",
    switches=True,
    reads=(
        "redis:APPL_DB LLDP_ENTRY_TABLE",
        "eos:show lldp neighbors detail",
        "nxos:show lldp neighbors detail",
        "junos:show lldp neighbors",
        "linux:lldpcli -f json0 show neighbors details",
    ),
    unless=(no_cable,),
)
def join(net: Ethernet, site: EthernetSite) -> Iterator[Finding]:
    """Compare the neighbour that each end of a cable announces with the other end.

    ## Why it matters
    Verdicts on a cable are valid only if both ends belong to it. A stale or wrong neighbour hides swapped cables.

    ## Verdicts
    Two ends that name different neighbours fail. A RoCE port of a host without a cable to a known switch, and a cable
    that only one end shows, are unknown.

    ## False alarms
    A cable that was moved within the last two minutes, until the old neighbour expires.
    """
    reported: set[CableEnd] = set()
    often = Counter(end for wrong in net.contradictions for end in (wrong.end, wrong.far))
    for wrong in net.contradictions:
        repeated = {wrong.end, wrong.far} & reported  # a wrong announcement contradicts two cables
        reported |= {wrong.end, wrong.far}
        subject = wrong.far if wrong.stranger else max(wrong.end, wrong.far, key=lambda end: often[end])
        if repeated:
            continue
        yield failed(
            f"{wrong.end} shows {wrong.names} as its neighbour, but {wrong.far} shows {wrong.far_names}",
            subject=str(subject),
            found=f"{wrong.far} shows {wrong.far_names}", expected=f"{wrong.far} shows {wrong.end}",
            evidence=[_lldp(net, wrong.end), _lldp(net, wrong.far)],
        )  # fmt: skip
    half = [cable for cable in net.cables if cable.note]
    if half:
        yield unknown(
            f"{counted(len(half), 'cable is', 'cables are')} shown by only one end: "
            f"{listed([str(cable) for cable in half])}",
            evidence=[_lldp(net, half[0].near)], fix=_LLDP_FIX,
        )  # fmt: skip
    in_conflict = {end for wrong in net.contradictions for end in (wrong.end, wrong.far)}
    alone = [host for host in net.unjoined() if CableEnd(host.node.node, host.netdev, False) not in in_conflict]
    if alone:
        names = listed([f"{host.node.node} {host.netdev}" for host in alone])
        yield unknown(f"{counted(len(alone), 'RoCE port has', 'RoCE ports have')} no cable to a known switch: {names}",
                      evidence=[f"{alone[0].node.node} {LLDP}"], fix=_LLDP_FIX)  # fmt: skip
    both = len(net.cables) - len(half)
    if both and not net.contradictions:
        yield passed(
            f"both ends of {counted(both, 'cable')} show each other as neighbours",
            evidence=[_lldp(net, net.cables[0].near)],
        )


def _lldp(net: Ethernet, end: CableEnd) -> str:
    return net.by_name[end.device].key("lldp") if end.is_switch else f"{end.device} {LLDP}"


def _key(net: Ethernet, end: CableEnd, part: str, of_host: str) -> str:
    return net.by_name[end.device].key(part) if end.is_switch else f"{end.device} {of_host}"


@check(
    "link.pfc",
    title="PFC is configured for the same priorities at both ends of each cable",
    fault="PFC is configured for different priorities at the two ends of a cable",
    impact="slows-job",
    owner="network",
    source="IEEE 802.1Qbb (PFC); SONiC PORT_QOS_MAP (pfc_enable); dcb(8), mlnx_qos",
    fix="Set the same priorities at both ends: `config interface pfc priority PORT 3 on` in SONiC, `mlnx_qos -i IF "
    "--pfc …` on a host.",
    explains=(
        ("switch.pfc", "cable"),
        ("ethernet.peers-equal", "names"),
        ("link.counters-agree", "cable"),
        ("link.errors", "cable"),
        ("switch.lossless-drops", "cable"),
        ("counters.loss", "cable", "*", "*no pause stopped the sender*"),
    ),
    action="fix-site",
    answers=("AN-4", "FP-LOSS-2"),
    scope="fleet",
    switches=True,
    reads=("redis:CONFIG_DB PORT_QOS_MAP", "eos:show priority-flow-control"),
    unless=(no_cable,),
)
def pfc(net: Ethernet, site: EthernetSite) -> Iterator[Finding]:
    """Compare the PFC priorities that are configured at both ends of each cable.

    ## Why it matters
    If only one end pauses, the other ignores it: the buffer overflows, packets are lost, and RDMA retransmits complete
    messages. Between switches, the loss hits every job that crosses the cable.

    ## Verdicts
    Any difference fails; if the cluster file declares the priority of RoCE, only that one must be on at both ends. An
    end that does not show its priorities is unknown.

    ## False alarms
    A cable to a storage network without PFC, if its host port counts as a compute port.
    """
    same = 0
    for cable in net.cables:
        sides = [cable_ends.pfc(net, end) for end in cable.ends]
        values = [value for value, _, _ in sides]
        keys = [key for _, key, _ in sides]
        if None in values:
            end, why = next((end, why) for end, (value, _, why) in zip(cable.ends, sides, strict=True) if value is None)
            yield unknown(f"{cable}: PFC of {end} is unknown: {unread_record('its record', why)}", subject=str(cable),
                          evidence=keys,
                          fix="install `dcb` or `mlnx_qos` on the host, and pass CONFIG_DB of the switch")  # fmt: skip
        elif values[0] == values[1] or _agree_on(site.priority, values):
            same += 1
        else:
            shown = ", but ".join(f"{end} has PFC on {'priority ' * bool(value)}{priority_list(value)}"
                                 for end, value in zip(cable.ends, values, strict=True))  # fmt: skip
            yield failed(f"{shown}{cable.note}", subject=str(cable), found=shown, expected="the same at both ends",
                         evidence=keys)  # fmt: skip
    if same:
        only = f" (priority {site.priority} is declared)" if site.priority is not None else ""
        yield passed(f"{counted(same, 'cable has', 'cables have')} PFC on the same priorities at both ends{only}",
                     evidence=[net.switches[0].key("pfc")])  # fmt: skip


def _agree_on(priority: int | None, values: Sequence[frozenset[int] | None]) -> bool:
    """Return whether both ends have PFC on the declared priority of RoCE."""
    return priority is not None and all(value is not None and priority in value for value in values)


@check(
    "link.mtu",
    title="Each end of a cable accepts the largest frames of the other",
    fault="One end of a cable drops the largest frames of the other",
    impact="blocks-job",
    owner="network",
    source="IEEE 802.3 (frame size); SONiC PORT mtu: bytes without Ethernet header",
    fix="Set the larger MTU at both ends: `config interface mtu PORT 9216`, `ip link set IF mtu 9000`.",
    explains=(("switch.mtu", "cable"), ("ethernet.peers-equal", "names")),
    action="fix-site",
    scope="fleet",
    switches=True,
    reads=(
        "redis:APPL_DB PORT_TABLE",
        "redis:CONFIG_DB PORT",
        "eos:show interfaces",
        "nxos:show interface",
        "junos:show interfaces",
        "linux:ip -j -s link",
    ),
    unless=(no_cable,),
)
def mtu(net: Ethernet, site: EthernetSite) -> Iterator[Finding]:
    """Compare the MTU of both ends of each cable.

    ## Why it matters
    Switches drop oversized frames silently: handshakes and small messages work, and the first large transfer hangs.

    ## Verdicts
    A switch port with a smaller MTU than the host behind it fails. Two switch ports with different MTUs on one cable
    fail as well, or warn if both accept the largest frames of all hosts. The MTU of a SONiC port includes neither the
    Ethernet header nor a VLAN tag. An end without an MTU is unknown.

    ## False alarms
    None known. If hosts without evidence send larger frames than those with it, a warning understates the fault.
    """
    good, largest = 0, _largest_of_hosts(net)
    for cable in net.cables:
        near, far = (cable_ends.mtu(net, end) for end in cable.ends)
        keys = [
            _key(net, cable.near, "ports", ""),
            _key(net, cable.other, "ports", f"file:/sys/class/net/{cable.other.port}/mtu"),
        ]
        if near is None or far is None:
            end = cable.near if near is None else cable.other
            yield unknown(f"{cable}: the MTU of {end} is unknown", subject=str(cable), evidence=keys,
                          fix="pass APPL_DB or CONFIG_DB of the switch")  # fmt: skip
            continue
        shown = f"{cable.near} has MTU {near}, but {cable.other} has MTU {far}{cable.note}"
        if near < far or (cable.other.is_switch and near != far):
            enough = cable.other.is_switch and largest is not None and min(near, far) >= largest
            report = warned if enough else failed  # no host sends a frame that either end drops
            yield report(shown, subject=str(cable), found=f"{near} and {far}", expected="the same" if
                         cable.other.is_switch else f"at least {far} at {cable.near}", evidence=keys)  # fmt: skip
        else:
            good += 1
    if good:
        yield passed(f"both ends of {counted(good, 'cable')} accept the largest frames of the other",
                     evidence=[net.switches[0].key("ports")])  # fmt: skip


def _largest_of_hosts(net: Ethernet) -> int | None:
    """Return the largest MTU of the hosts' ports; None if one is not known."""
    sizes = [cable_ends.mtu(net, CableEnd(host.node.node, host.netdev, False)) for host in net.hosts]
    return max(size for size in sizes if size is not None) if sizes and None not in sizes else None


@check(
    "link.speed-fec",
    title="Both ends of each cable run at the same speed with the same FEC",
    fault="The two ends of a cable have different speeds or FEC",
    impact="slows-job",
    owner="network",
    source="IEEE 802.3 clauses 91, 119 and 134 (RS-FEC); SONiC PORT speed and fec",
    fix="Set the same speed and FEC at both ends (`config interface fec PORT rs`, `ethtool --set-fec IF encoding rs`); "
    "then reseat the cable.",
    explains=(("ethernet.oversubscription", "names"), ("optics.fec", "cable"), ("switch.bgp", "names")),
    action="fix-site",
    scope="fleet",
    switches=True,
    reads=(
        "redis:STATE_DB PORT_TABLE",
        "redis:APPL_DB PORT_TABLE",
        "eos:show interfaces",
        "nxos:show interface",
        "junos:show interfaces",
        "linux:ip -j -s link",
    ),
    unless=(no_cable,),
)
def speed_fec(net: Ethernet, site: EthernetSite) -> Iterator[Finding]:
    """Compare the speed and the FEC of both ends of each cable.

    ## Why it matters
    With different speeds or FEC settings, the cable passes no traffic, or runs at the lower speed.

    ## Verdicts
    Different speeds fail, and so do different FEC settings. A cable of which only one end is down warns. A cable that
    is down is unknown, and so is an end without a speed; FEC that one end does not show is not compared.

    ## False alarms
    Breakout cables, if a switch shows the combined speed of all lanes. A link that went down or up between the readings
    of its ends. A driver that reports no FEC although the link uses one.
    """
    good = coded = 0
    for cable in net.cables:
        near, far = (cable_ends.speed(net, end) for end in cable.ends)
        keys = [_key(net, cable.near, "ports", ""), _key(net, cable.other, "ports", "dir:/sys/class/infiniband")]
        codes = [cable_ends.fec(net, end) for end in cable.ends]
        up = [port and port.up for port in map(net.port, cable.ends)]
        if False in up and True in up:
            shown = ", but ".join(
                f"{end} is {'up' if its else 'down'}" for end, its in zip(cable.ends, up, strict=True)
            )
            yield warned(f"{shown}{cable.note}", subject=str(cable), found=shown, expected="both up", evidence=keys)
        elif False in up:
            yield unknown(f"{cable}: the port is down", subject=str(cable), evidence=keys,
                          fix="examine both ends: `show interfaces status`, `ip link`")  # fmt: skip
        elif near is None or far is None:
            end = cable.near if near is None else cable.other
            yield unknown(f"{cable}: the speed of {end} is unknown", subject=str(cable), evidence=keys,
                          fix="pass APPL_DB or CONFIG_DB of the switch")  # fmt: skip
        elif near != far:
            shown = f"{cable.near} runs at {near:g} Gb/s, but {cable.other} at {far:g} Gb/s{cable.note}"
            yield failed(shown, subject=str(cable), found=f"{near:g} and {far:g} Gb/s", expected="the same",
                         evidence=keys, action="monitor")  # fmt: skip
        elif None not in codes and codes[0] != codes[1]:
            shown = ", but ".join(f"{end} has FEC {code}" for end, code in zip(cable.ends, codes, strict=True))
            yield failed(f"{shown}{cable.note}", subject=str(cable), found=shown, expected="the same", evidence=keys)
        else:
            good += 1
            coded += None not in codes
    if good:
        yield passed(f"both ends of {counted(good, 'cable')} run at the same speed; {coded} of them show the same FEC",
                     evidence=[net.switches[0].key("ports")])  # fmt: skip
