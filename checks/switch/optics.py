"""Checks of the modules and the FEC at the switch's end of each cable."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from preflight.checks.switch.common import each_switch, listed
from preflight.expectations.switches_table import EthernetSite
from preflight.facts.switch.ethernet import CableEnd, Ethernet
from preflight.facts.switch.model import Optics, SwitchFacts, SwitchPort, growth
from preflight.model import Finding, check, counted, failed, passed, unknown, warned

#: Wrong symbols of a codeword that RS-FEC corrects: RS(528,514) of lanes up to 28 Gb/s, RS(544,514) of faster ones
#: (IEEE 802.3 clauses 91 and 119). More than half is close to the limit; a judgement call.
_OF_528, _OF_544, _SLOW_LANE_GBPS = 7, 15, 28.0

#: Maximum decibels by which a lane may receive less light than the best lane of its module, unless it exceeds its own
#: warning threshold by the second number: lanes of different wavelengths may differ by 4 dB and more (IEEE 802.3 clause
#: 88). A judgement call.
_UNEVEN_DB, _CLEAR_DB = 3.0, 2.0

#: Bit error ratios before FEC above which a port fails and warns: the limit of RS(544,514), and a judgement call.
_RAW_BER = 2.4e-4, 1e-5


@check(
    "optics.switch-end",
    title="Modules in switches raise no alarm",
    fault="A module in a switch has too little or too much light, or is too hot",
    impact="slows-job",
    owner="network",
    source="SFF-8636 and CMIS (thresholds in the module's memory); SONiC TRANSCEIVER_DOM_SENSOR",
    fix="Clean both ends of the fibre and reseat it; then compare `show interfaces transceiver eeprom --dom`.",
    explains=(
        ("optics.fec-margin", "cable"),
        ("optics.ber", "cable"),
        ("counters.link-quality", "cable"),
        ("counters.flaps", "cable"),
        ("kernel.events", "cable", "*", "the link of *"),
        ("link.flaps", "cable"),
        ("link.errors", "cable"),
    ),
    action="fix-site",
    separate=True,
    scope="fleet",
    switches=True,
    reads=(
        "redis:STATE_DB TRANSCEIVER_DOM_SENSOR",
        "redis:STATE_DB TRANSCEIVER_DOM_THRESHOLD",
        "eos:show interfaces transceiver dom thresholds",
        "nxos:show interface transceiver details",
    ),
)
def switch_end(net: Ethernet, site: EthernetSite) -> Iterator[Finding]:
    """Compare light and temperature of each module with the thresholds in its memory.

    ## Why it matters
    A lane with too little light damages packets, which FEC corrects as long as it can. The far end notices nothing.

    ## Verdicts
    Light received or sent, or a temperature, beyond an alarm threshold of the module fails, and beyond a warning
    threshold warns. A lane that receives 3 dB less than the best one warns too, unless it is 2 dB above its own
    warning threshold. Only the lanes of a breakout port itself are judged; if they are not shown, a weak lane is
    unknown. Ports that are down are not judged. A module without thresholds is unknown. One without sensors, as in
    copper cables, is not judged.

    ## False alarms
    Modules with wrong thresholds in their memory.
    """
    good = dim = 0

    def modules(switch: SwitchFacts) -> Iterator[Finding]:
        nonlocal good, dim
        for name, optics in switch.optics.items():
            port = switch.ports.get(name)
            if port is None or port.up is False or not any(value is not None for value in optics.rx_dbm):
                continue
            finding = _module(net, switch, port, optics)
            if finding is None:
                good += 1
                dim += optics.temperature_c is None and not optics.tx_dbm
            else:
                yield finding

    yield from each_switch(net, site, modules, "optics", "thresholds", lossless=False)
    if good:
        only = f"; {dim} of them show only received light" if dim else ""
        yield passed(f"{good} modules in switches are within their light and temperature thresholds{only}",
                     evidence=[net.switches[0].key("optics")])  # fmt: skip


def _module(net: Ethernet, switch: SwitchFacts, port: SwitchPort, optics: Optics) -> Finding | None:
    where, keys = f"{switch.name} {port.name}", [switch.key("optics"), switch.key("thresholds")]
    far = net.far_ends.get(CableEnd(switch.name, port.name, True))
    to = f" (cable to {far})" if far else ""
    if not optics.thresholds:
        return unknown(f"{where}: the module shows no thresholds", subject=where, evidence=keys,
                       fix="check the module: `show interfaces transceiver eeprom --dom`")  # fmt: skip
    own = _own_lanes(port, len(optics.rx_dbm))
    wrong = _beyond(optics, own or range(len(optics.rx_dbm))) or _uneven(optics, own or range(len(optics.rx_dbm)))
    if wrong is None:
        return None
    report, what, value, expected, of_lane = wrong
    if own is None and of_lane:
        return unknown(f"{where}: {what}; the switch does not show whether the lane belongs to this "
                       "port", subject=where,
                       found=value, expected=expected, evidence=keys,
                       fix="compare `show interfaces breakout` with the lanes of the module")  # fmt: skip
    fix = "" if of_lane else "check the switch's fans and airflow; if only this module is hot, replace it"
    return report(f"{where}: {what}{to}", subject=where, found=value, expected=expected, evidence=keys, fix=fix)


def _own_lanes(port: SwitchPort, lanes: int) -> range | None:
    """Return the module's lanes that belong to a port; None if unknown."""
    if port.lanes is None or port.lanes >= lanes:
        return range(lanes)
    if not port.subport:
        return None
    return range(min((port.subport - 1) * port.lanes, lanes), min(port.subport * port.lanes, lanes))


Report = Callable[..., Finding]

#: Constructor, fault, value, expectation, and whether it applies to one lane.
_Wrong = tuple[Report, str, str, str, bool]


def _beyond(optics: Optics, own: range) -> _Wrong | None:
    """Return the most severe value beyond a threshold of the module, if any."""
    for level, report in (("alarm", failed), ("warning", warned)):
        for way, verb, values in (("rx", "receives", optics.rx_dbm), ("tx", "sends", optics.tx_dbm)):
            light = [(value, lane + 1) for lane in own if lane < len(values) and (value := values[lane]) is not None]
            low, high = (optics.thresholds.get(f"{way} {side} {level}") for side in ("low", "high"))
            if light and low is not None and (least := min(light))[0] < low:
                return (report, f"lane {least[1]} {verb} {least[0]:g} dBm", f"{least[0]:g} dBm",
                        f"at least {low:g} dBm ({level})", True)  # fmt: skip
            if light and high is not None and (most := max(light))[0] > high:
                return (report, f"lane {most[1]} {verb} {most[0]:g} dBm", f"{most[0]:g} dBm",
                        f"at most {high:g} dBm ({level})", True)  # fmt: skip
        hot, celsius = optics.thresholds.get(f"temp high {level}"), optics.temperature_c
        if hot is not None and celsius is not None and celsius > hot:
            return (report, f"the module is at {celsius:g} degrees C", f"{celsius:g} degrees C",
                    f"at most {hot:g} degrees C (the module's {level})", False)  # fmt: skip
    return None


def _uneven(optics: Optics, own: range) -> _Wrong | None:
    """Return a lane that receives much less than the best, near its warning threshold.

    None if there is no such lane.
    """
    light = [(value, lane + 1) for lane in own if (value := optics.rx_dbm[lane]) is not None]
    if not light:
        return None
    (least, lane), (most, _) = min(light), max(light)
    low = optics.thresholds.get("rx low warning")
    if most - least <= _UNEVEN_DB or (low is not None and least >= low + _CLEAR_DB):
        return None
    return (warned, f"lane {lane} receives {most - least:.1f} dB less than the best lane", f"{least:g} dBm",
            f"at least {most - _UNEVEN_DB:g} dBm", True)  # fmt: skip


@check(
    "optics.fec-margin",
    title="FEC corrects all errors at switch ports, with a margin",
    fault="FEC at a switch port loses codewords or is near its limit",
    impact="slows-job",
    owner="network",
    source="IEEE 802.3 clause 91 and 119 (RS(544,514) corrects 15 symbols); SONiC COUNTERS_DB (FEC counters)",
    fix="Clean or replace the cable named; then read the counters twice: `show interfaces counters fec-stats`.",
    explains=(
        ("optics.ber", "cable"),
        ("counters.link-quality", "cable"),
        ("counters.flaps", "cable"),
        ("kernel.events", "cable", "*", "the link of *"),
        ("link.flaps", "cable"),
        ("link.errors", "cable"),
    ),
    action="fix-site",
    separate=True,
    answers=("AN-9",),
    scope="fleet",
    switches=True,
    window=True,
    reads=("redis:COUNTERS_DB ports", "eos:show interfaces phy detail"),
)
def fec_margin(net: Ethernet, site: EthernetSite) -> Iterator[Finding]:
    """Look for FEC codewords with many wrong symbols at each switch port.

    ## Why it matters
    A codeword that cannot be corrected is a lost packet. Before that, the number of wrong symbols rises, which is the
    last chance to replace a cable without an interruption.

    ## Verdicts
    A codeword that was not corrected fails. Codewords with eight or more wrong symbols warn, because RS(544,514)
    corrects at most fifteen; on lanes of 25 Gb/s, four or more warn, because RS(528,514) corrects at most seven.
    A bit error ratio before FEC above 2.4e-4 in both readings fails, because RS(544,514) corrects no more, and above
    1e-5 it warns: a judgement. Corrected codewords alone are normal at 50 Gb/s and more per lane. Ports without such
    counters are unknown. Ports that are down are not judged.

    ## False alarms
    A link that came up within the window, which loses codewords while it trains.
    """
    good = yield from each_switch(
        net, site, lambda switch: _margins(net, switch), growth=["port counters"], lossless=False
    )
    if number := sum(len(_with_fec(switch)) for switch in good):
        yield passed(f"FEC corrected all errors at {counted(number, 'switch port')}",
                     evidence=[good[0].key("port counters")])  # fmt: skip


def _with_fec(switch: SwitchFacts) -> list[SwitchPort]:
    return [port for port in switch.ports.values() if port.up is not False and port.fec != "none"]


def _margins(net: Ethernet, switch: SwitchFacts) -> Iterator[Finding]:
    assert switch.second
    blank: list[str] = []
    for port in _with_fec(switch):
        before, after = switch.first.ports.get(port.name), switch.second.ports.get(port.name)
        where, far = f"{switch.name} {port.name}", net.far_ends.get(CableEnd(switch.name, port.name, True))
        to = f", on the cable to {far}" if far else ""
        lost = growth(before.uncorrectable, after.uncorrectable) if before and after else None
        if before is None or after is None or lost is None:
            blank += [port.name] if port.up is True else []
            continue
        bins = [growth(*pair) or 0 for pair in zip(before.bins, after.bins, strict=False)]
        worst = max((symbols for symbols, number in enumerate(bins) if number), default=0)
        corrected = _corrected(port)
        if lost:
            yield failed(f"{where}: FEC could not correct {lost} codewords{to}", subject=where, found=f"+{lost}",
                         expected="+0", evidence=[switch.key("port counters")])  # fmt: skip
        elif worst > corrected // 2:
            yield warned(
                f"{where}: some codewords had {worst} wrong symbols; FEC corrects at most {corrected}{to}",
                subject=where, found=f"{worst} symbols", expected=f"at most {corrected // 2}",
                evidence=[switch.key("port counters")],
            )  # fmt: skip
        elif (ratio := _least(before.raw_ber, after.raw_ber)) > _RAW_BER[1]:
            report, limit = (failed, _RAW_BER[0]) if ratio > _RAW_BER[0] else (warned, _RAW_BER[1])
            yield report(f"{where}: the bit error ratio before FEC is {ratio:.1e}{to}", subject=where,
                         found=f"{ratio:.1e}", expected=f"at most {limit:.1e}",
                         evidence=[switch.key("codewords")])  # fmt: skip
    if blank:
        yield unknown(f"{switch.name} {listed(blank)}: uncorrectable codewords are not counted", subject=switch.name,
                      evidence=[switch.key("port counters")],
                      fix="read them on the switch: `show interfaces counters fec-stats`")  # fmt: skip


def _least(*ratios: float | None) -> float:
    """Return the lowest ratio; 0 without one."""
    return min((ratio for ratio in ratios if ratio is not None), default=0.0)


def _corrected(port: SwitchPort) -> int:
    """Return how many wrong symbols of a codeword the port's FEC corrects."""
    slow = port.lanes and port.speed_gbps and port.speed_gbps / port.lanes <= _SLOW_LANE_GBPS
    return _OF_528 if slow else _OF_544
