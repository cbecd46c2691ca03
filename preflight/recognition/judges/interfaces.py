"""Judges of network interfaces: pause, link, module, firmware, bond members."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from preflight._startup.lightclass import replace
from preflight.checks.rdma.counter_totals import TOLERATED
from preflight.checks.rdma.firmware import judge_board
from preflight.checks.rdma.optics import judge_module
from preflight.facts.counter_catalogue import CounterKind
from preflight.model import Finding, all_of, clause, each_of, passed, unknown, verb, warned
from preflight.parsers.host.device_names import is_virtual
from preflight.parsers.network.bonding import Bond
from preflight.parsers.network.ethtool_driver import DriverInfo
from preflight.parsers.network.ethtool_link import EthernetLink
from preflight.parsers.network.ethtool_module import (
    Module,
    bias_ma,
    lanes_without_signal,
    least_received_mw,
    received_mw,
)
from preflight.parsers.network.ethtool_pause import PauseParameters
from preflight.parsers.network.ip_link import Interface
from preflight.recognition.judges import Judges, PastedValue
from preflight.recognition.judges.lists import limited, unsure


def _pause(part: PastedValue) -> Iterator[Finding]:
    pause: PauseParameters = part.value
    name = pause.interface or "the interface"
    ways = ("RX", pause.rx, pause.rx_negotiated), ("TX", pause.tx, pause.tx_negotiated)
    lost = [way for way, is_set, agreed in ways if is_set and agreed is False]
    on = [way for way, is_on in zip(("RX", "TX"), pause.effective, strict=True) if is_on]
    if lost:
        yield unknown(
            f"{name}: global pause is set ({', '.join(lost)}) but not negotiated: the other end does not pause",
            subject=name,
            found=f"{' and '.join(lost)} on, negotiated off",
            expected="off with PFC; else negotiated",
            evidence=part.evidence,
            fix="For lossless RoCE, run `ethtool -A IF rx off tx off` and enable PFC; otherwise check the switch port.",
        )
    if on:
        yield unknown(
            f"{name}: global pause is on ({', '.join(on)}): it stops all priorities and excludes PFC; "
            "the text does not show whether RoCE is used",
            subject=name,
            found=f"{' and '.join(on)} on",
            expected="RX off, TX off with PFC",
            evidence=part.evidence,
            fix="For lossless RoCE, run `ethtool -A IF rx off tx off` and enable PFC for one priority.",
        )
    if pause.effective == (False, False) and not lost and part.complete:
        yield passed(f"{name}: global pause is off, so it does not exclude PFC", evidence=part.evidence)


def _module(part: PastedValue) -> Iterator[Finding]:
    module: Module = part.value
    dark = [flag for flag in module.flags if flag.channel and "rx power" in flag.what.lower() and flag.side == "low"]
    rest = tuple(flag for flag in module.flags if flag not in dark)
    key = part.evidence[0]
    lanes = len({flag.channel for flag in dark})
    if dark and lanes * 2 < len(_lanes(module)):  # with a breakout cable, half of the lanes or more are dark
        yield warned(
            f"the module raises {dark[0]}{f' and {len(dark) - 1} more' if dark[1:] else ''}: too little light on "
            f"{lanes} of its {len(_lanes(module))} lanes", evidence=[key],
            found=f"{', '.join(map(str, dark[:4]))}: on; {module.name}", expected="no alarm",
            fix="Clean the connectors of this port and of its peer; replace the cable if the alarm stays.",
        )  # fmt: skip
    elif dark and lanes * 2 == len(_lanes(module)):
        yield unknown(
            f"the module raises {dark[0]}{f' and {len(dark) - 1} more' if dark[1:] else ''}: half of its lanes "
            "are dark, or a breakout cable does not use them",
            found=f"{', '.join(map(str, dark[:4]))}: on; {module.name}", expected="no alarm", evidence=[key],
        )  # fmt: skip
    elif dark:
        rest = module.flags
    others = [name for name in module.alarms if not any(name.lower().startswith(f.what.lower()) for f in module.flags)]
    if complaint := judge_module("this port", replace(module, flags=rest), key, warned, warned):
        yield complaint
    elif others:
        yield warned(f"the module reports: {', '.join(others[:8])}", found=", ".join(others[:8]), expected="no alarm",
                     evidence=[key])  # fmt: skip
    elif module.measures and not dark and part.complete:
        heat = "" if module.temperature_c is None else f"; {module.temperature_c:.0f} degrees C"
        yield passed(f"the module raises no alarm{heat}", evidence=[key])


#: Receive power in mW of a dark lane (-30 dBm) and of a healthy one (-10 dBm), for modules that show no threshold.
_NO_LIGHT_MW, _LIGHT_MW = 0.001, 0.1
#: Share of the brightest lane's power (20 dB less) below which a lane of such a module is dark: a judgement call.
_WEAK = 0.01
#: Possible numbers of lanes that a breakout cable uses.
_BREAKOUTS = (1, 2, 4)


def _received(part: PastedValue) -> Iterator[Finding]:
    """Compare the light of each lane with the module's own threshold."""
    module: Module = part.value
    powers, least = received_mw(module), least_received_mw(module)
    limit = least or max(_NO_LIGHT_MW, _WEAK * max(powers.values(), default=0.0))
    dark = {lane for lane, power in powers.items() if power < limit} | {*lanes_without_signal(module)}
    lit = [lane for lane in powers if lane not in dark]
    shown = "; ".join(f"lane {lane} {_power(powers.get(lane))}" for lane in sorted(dark)[:8])
    expected = f"at least {least:g} mW" if least else "light on each lane"
    if dark and not lit:
        yield unsure("no lane receives a signal: the other end is off, or the fibre is disconnected", found=shown,
                     expected=expected, evidence=part.evidence)  # fmt: skip
    elif dark and len(lit) in _BREAKOUTS:
        yield unknown(f"{len(dark)} of {len(dark) + len(lit)} lanes receive too little light ({shown}): a faulty "
                      "fibre, or lanes that a breakout cable does not use", found=shown, expected=expected,
                      evidence=part.evidence)  # fmt: skip
    elif dark:
        yield warned(f"{len(dark)} of {len(dark) + len(lit)} lanes receive too little light: {shown}",
                     found=shown, expected=expected, evidence=part.evidence)  # fmt: skip
    elif powers and not module.flags and not module.measures and part.complete:
        weakest = min(powers, key=lambda lane: powers[lane])
        if least or powers[weakest] >= _LIGHT_MW:
            yield passed(f"{each_of(len(powers), 'lane')} receives light", found=f"at least {_power(powers[weakest])}",
                         evidence=part.evidence)  # fmt: skip
        else:
            yield unknown(f"lane {weakest} receives {_power(powers[weakest])}; the text lacks the module's threshold",
                          found=_power(powers[weakest]), expected="the low alarm threshold of the module",
                          evidence=part.evidence)  # fmt: skip


def _lasers(part: PastedValue) -> Iterator[Finding]:
    """Report lanes whose laser is off, unless the module raises a flag for it."""
    module: Module = part.value
    currents = {} if any("laser" in flag.what.lower() for flag in module.flags) else bias_ma(module)
    off = [str(lane) for lane, current in currents.items() if not current]
    if off and len(off) < len(currents):
        lanes = f"lane{'s' if off[1:] else ''} {', '.join(off)}"
        yield unknown(f"the module's laser of {lanes} is off (0 mA): a fault, or a breakout cable does not use it",
                      found="0 mA", expected="a current, as on its other lanes", evidence=part.evidence,
                      fix="Reseat the module; replace it if the laser stays off.")  # fmt: skip


def _power(power_mw: float | None) -> str:
    return "without signal" if power_mw is None else f"{power_mw:g} mW"


def _lanes(module: Module) -> set[str]:
    """Return the lanes with a printed receive power or flag."""
    names = (name for name in module.fields if "rx power" in name.lower() or "rcvr signal" in name.lower())
    return {name.partition("(")[2].rpartition(")")[0].replace("Channel", "Chan") for name in names if "(" in name}


def _ethernet_state(part: PastedValue) -> Iterator[Finding]:
    link: EthernetLink = part.value
    name = link.interface or "the interface"
    if link.link is False:
        yield unsure(f"{name} has no link: {link.link_text}", subject=name, found=link.link_text, expected="yes",
                      evidence=part.evidence)  # fmt: skip


def _ethernet_speed(part: PastedValue) -> Iterator[Finding]:
    link: EthernetLink = part.value
    name = link.interface or "the interface"
    if link.link is False:
        return
    if link.speed_gbps is not None and link.fastest_gbps is not None and link.speed_gbps < link.fastest_gbps:
        yield unsure(f"{name} runs at {link.speed_gbps:g} Gb/s, but its fastest mode is {link.fastest_gbps:g} Gb/s",
                      subject=name, found=f"{link.speed_gbps:g} Gb/s", expected=f"{link.fastest_gbps:g} Gb/s",
                      evidence=part.evidence)  # fmt: skip
    elif link.speed_gbps is None and link.link:
        yield unknown(f"{name} has a link of unknown speed", subject=name, found=link.fields.get("Speed"),
                      evidence=part.evidence, fix="`mlxlink -d DEVICE`")  # fmt: skip
    elif link.speed_gbps is not None and link.link and link.fastest_gbps == link.speed_gbps:
        yield passed(f"{name} runs at {link.speed_gbps:g} Gb/s, its fastest mode", evidence=part.evidence)
    if link.duplex is not None and link.duplex.lower() == "half":
        yield warned(f"{name} runs at half duplex", subject=name, found=link.duplex, expected="Full",
                     evidence=part.evidence)  # fmt: skip


_NO_DIGITS = str.maketrans("", "", "0123456789")


def _unequal_speeds(part: PastedValue) -> Iterator[Finding]:
    """Compare the speed with preceding interfaces whose names differ only in numbers."""
    links: list[EthernetLink] = [*part.earlier, part.value]
    mine: EthernetLink = part.value
    alike = {link.interface: link.speed_gbps for link in links if link.interface and link.speed_gbps and mine.interface
             and link.interface.translate(_NO_DIGITS) == mine.interface.translate(_NO_DIGITS)}  # fmt: skip
    if len(set(alike.values())) > 1:
        fastest = max(alike.values())
        slow = [name for name, speed in alike.items() if speed < fastest]
        listed = ", ".join(f"{name} {speed:g}" for name, speed in list(alike.items())[:8])
        yield unsure(f"{', '.join(slow[:8])} {'run' if len(slow) > 1 else 'runs'} slower than similar interfaces: "
                     f"{listed} Gb/s", subject=slow[0], found=f"{alike[slow[0]]:g} Gb/s", expected=f"{fastest:g} Gb/s",
                     evidence=part.evidence)  # fmt: skip


def _driver(part: PastedValue) -> Iterator[Finding]:
    """Compare the firmware with that of preceding interfaces on the same board type."""
    drivers: list[DriverInfo] = [driver for driver in (*part.earlier, part.value) if driver.psid and driver.firmware]
    mine: DriverInfo = part.value
    versions = {str(driver.bus_info or f"line {driver.line}"): str(driver.firmware) for driver in drivers
                if driver.psid == mine.psid}  # fmt: skip
    if mine.psid and len(set(versions.values())) > 1:
        yield from judge_board(mine.psid, versions, dict.fromkeys(versions, part.evidence[0]))
    elif mine.psid and len(versions) > 1:
        yield passed(f"{len(versions)} interfaces of board {mine.psid} run firmware {mine.firmware}",
                     evidence=part.evidence)  # fmt: skip


# --- ip link, ip addr, bonding -------------------------------------------------------------------------

#: Smallest MTU in bytes of an interface for jumbo frames.
_JUMBO = 4200


@limited
def _carriers(part: PastedValue) -> Iterator[Finding]:
    interfaces: Sequence[Interface] = part.value
    wired = [interface for interface in interfaces if not is_virtual(interface.name)]
    for interface in wired:
        if interface.state == "DOWN" and not interface.flags:  # the text does not show whether it was set down
            yield unsure(f"{interface.name} is DOWN", subject=interface.name, found="DOWN", expected="UP",
                         evidence=part.evidence)  # fmt: skip
        elif interface.is_up and not interface.has_carrier:
            yield unsure(f"{interface.name} is up, but has no link (NO-CARRIER)", subject=interface.name,
                         found=f"NO-CARRIER, state {interface.state}", expected="LOWER_UP",
                         evidence=part.evidence)  # fmt: skip
        elif not interface.is_up and interface.addresses:
            yield unsure(f"{interface.name} has an address, but is down", subject=interface.name, found="DOWN",
                         expected="UP", evidence=part.evidence)  # fmt: skip
    if wired and part.complete and all(item.has_carrier and not item.mtu for item in wired):
        yield passed(f"{clause(len(wired), 'interface', 'is')} up; no MTU is shown", evidence=part.evidence)
    elif wired and part.complete and all(item.has_carrier and item.mtu >= _JUMBO for item in wired):
        least = min(item.mtu for item in wired)
        yield passed(f"{clause(len(wired), 'interface', 'is')} up, with an MTU of {least} or more",
                     evidence=part.evidence)  # fmt: skip
    elif (other := _for_management(wired)) and part.complete and all(item.has_carrier for item in wired):
        yield passed(f"{len(wired)} interfaces are up; all but {other.name}, by its name for management, have an MTU "
                     f"of {min(item.mtu for item in wired if item is not other)} or more",
                     evidence=part.evidence)  # fmt: skip


@limited
def _interface_mtus(part: PastedValue) -> Iterator[Finding]:
    interfaces: Sequence[Interface] = part.value
    wired = [item for item in interfaces if item.has_carrier and item.mac and not is_virtual(item.name)]
    large = [item for item in interfaces if item.is_up and item.mac and item.mtu >= _JUMBO]
    large = [item for item in large if not is_virtual(item.name)]
    for interface in wired if large and not _for_management(wired) else ():
        if interface.mtu < _JUMBO:
            yield unsure(f"{interface.name} has MTU {interface.mtu}, but {large[0].name} has {large[0].mtu}",
                         subject=interface.name, found=f"{interface.mtu} bytes", 
                         expected=f"{large[0].mtu} bytes, for RoCE",
                         evidence=part.evidence)  # fmt: skip


def _for_management(wired: Sequence[Interface]) -> Interface | None:
    """Return the only interface without jumbo frames, if its name differs."""
    small = [item for item in wired if item.mtu < _JUMBO]
    others = {_stem(item.name) for item in wired if item not in small}
    alone = len(small) == 1 and len(wired) > 2 and _stem(small[0].name) not in others
    return small[0] if alone and small[0].mtu else None


def _stem(interface: str) -> str:
    """Return the letters before the first digit of an interface's name."""
    return interface[: next((at for at, letter in enumerate(interface) if letter.isdigit()), None)]


@limited
def _shared_subnets(part: PastedValue) -> Iterator[Finding]:
    """Report interfaces that have addresses in the same IPv4 subnet."""
    interfaces: Sequence[Interface] = part.value
    subnets: dict[str, list[str]] = {}
    for interface in interfaces:
        if interface.has_carrier and not is_virtual(interface.name):
            for subnet in interface.subnets:
                subnets.setdefault(subnet, []).append(interface.name)
    for subnet, names in subnets.items():
        if len(names) > 1:
            yield unsure(
                f"{', '.join(names[:8])} have addresses in one subnet, {subnet}: as rails they need "
                "separate subnets, or ARP settings that separate them",
                subject=subnet,
                found=", ".join(names[:8]),
                expected="a subnet for each rail",
                evidence=part.evidence,
            )


def _interface_errors(part: PastedValue) -> Iterator[Finding]:
    interfaces: Sequence[Interface] = part.value
    for interface in interfaces:
        errors = {"RX errors": interface.rx_errors or 0, "TX errors": interface.tx_errors or 0}
        if high := {name: value for name, value in errors.items() if value > TOLERATED[CounterKind.LINK]}:
            listed = ", ".join(f"{name} {value}" for name, value in high.items())
            yield unknown(
                f"{interface.name}: {listed}; a single reading does not show the period",
                subject=interface.name,
                found=listed,
                expected="no growth between two readings",
                evidence=part.evidence,
                fix="Read the counters again after a minute: `ip -s link show IF`.",
            )


def _interface_drops(part: PastedValue) -> Iterator[Finding]:
    interfaces: Sequence[Interface] = part.value
    for interface in interfaces:
        dropped = (interface.rx_dropped or 0) + (interface.tx_dropped or 0)
        if dropped > TOLERATED[CounterKind.RECEIVER]:
            yield unknown(f"{interface.name} dropped {dropped} packets; a single reading does not show the period",
                          subject=interface.name, found=f"{dropped} dropped", 
                          expected="no growth between two readings", evidence=part.evidence,
                          fix="Read the counters again after a minute: `ip -s link show IF`.")  # fmt: skip


#: Speed of members from which a bond may carry the traffic of GPUs or storage: a judgement call.
_FAST_GBPS = 100


def _bond(part: PastedValue) -> Iterator[Finding]:
    bond: Bond = part.value
    name = bond.name or "the bond"
    down = [member for member in bond.members if member.mii_status not in ("up", None)]
    for member in down:
        yield warned(f"{name}: {member.name} is {member.mii_status}: the bond has {len(bond.members) - len(down)} of "
                     f"its {len(bond.members)} members", subject=member.name, found=str(member.mii_status),
                     expected="up", evidence=part.evidence)  # fmt: skip
    aggregators = Counter(member.aggregator for member in bond.members if member.aggregator and member not in down)
    if bond.is_lacp and len(aggregators) > 1:
        usual = aggregators.most_common(1)[0][0]
        for member in bond.members:
            if member not in down and member.aggregator not in (None, usual):
                yield warned(
                    f"{name}: {member.name} is in aggregator {member.aggregator}, but most are in {usual}: "
                    "LACP did not add it, so it carries no traffic",
                    subject=member.name,
                    found=f"aggregator {member.aggregator}",
                    expected=f"aggregator {usual}",
                    evidence=part.evidence,
                    fix="Compare the LACP settings of the bond's switch ports.",
                )
    speeds = {member.speed_gbps for member in bond.members if member.speed_gbps is not None}
    if len(speeds) > 1:
        listed = ", ".join(f"{member.name} {member.speed_gbps:g}" for member in bond.members if member.speed_gbps)
        yield warned(f"{name} has members with different speeds: {listed} Gb/s", found=listed, expected="one speed",
                     evidence=part.evidence)  # fmt: skip
    if bond.is_lacp and bond.hash_policy == "layer2" and bond.members[1:] and max(speeds, default=0) >= _FAST_GBPS:
        yield unknown(f"{name}: the hash policy is layer2: all traffic with one MAC address, such as a router's, uses "
                      "one member", found="layer2", expected="layer3+4", evidence=part.evidence,
                      fix="If RDMA or storage uses the bond, set `xmit_hash_policy=layer3+4`.")  # fmt: skip
    if bond.members and not down and len(aggregators) <= 1 and part.complete:
        yield passed(
            f"{name}: {all_of(len(bond.members), 'member')} {verb(len(bond.members), 'is')} up", evidence=part.evidence
        )


def _bond_flaps(part: PastedValue) -> Iterator[Finding]:
    bond: Bond = part.value
    for member in bond.members:
        if (member.link_failures or 0) > TOLERATED[CounterKind.FLAP]:
            yield unknown(f"{member.name} lost its link {member.link_failures} times since the bond was created",
                          subject=member.name, found=member.link_failures, expected="no growth between two readings",
                          evidence=part.evidence, fix="`dmesg -T | grep -i 'link'` shows when.")  # fmt: skip


_INTERFACES = (
    ("rdma.port-state", _carriers), ("roce.chain", _interface_mtus), ("counters.link-quality", _interface_errors),
    ("counters.receiver", _interface_drops), ("rails.subnets", _shared_subnets),
)  # fmt: skip

JUDGES: Judges = {
    "ethtool -a": (("roce.chain", _pause),),
    "ethtool -i": (("rdma.firmware", _driver),),
    "ethtool -m": (("optics.module", _module), ("optics.module", _received), ("optics.module", _lasers)),
    "ethtool": (
        ("rdma.port-state", _ethernet_state),
        ("rdma.port-rate", _ethernet_speed),
        ("rdma.port-rate", _unequal_speeds),
    ),
    "ip link": _INTERFACES,
    "ip addr": _INTERFACES,
    "ifconfig": _INTERFACES,
    "ip -br": (("rdma.port-state", _carriers), ("rails.subnets", _shared_subnets)),
    "bonding": (("rdma.port-state", _bond), ("counters.flaps", _bond_flaps)),
}
