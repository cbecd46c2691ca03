"""Checks of the modules and the FEC at the switch's end of each cable."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.checks.switch.common import listed, unread
from preflight.checks.switch.traffic import unusable
from preflight.expectations.switches_table import EthernetSite
from preflight.facts.switch.ethernet import CableEnd, Ethernet
from preflight.facts.switch.model import Optics, SwitchFacts, growth
from preflight.model import Finding, check, failed, passed, unknown, warned

#: Wrong symbols of a codeword from which few remain: RS(544,514) corrects 15 (IEEE 802.3 clause 91). A judgement.
_FEW_REMAIN = 8

#: Decibels by which a lane may receive less light than the best lane of its module. A judgement.
_UNEVEN_DB = 3.0


@check(
    "optics.switch-end",
    title="Modules in switches raise no alarm",
    fault="A module in a switch receives too little light or is too hot",
    impact="slows-job",
    owner="network",
    source="SFF-8636 and CMIS (thresholds in the module's memory); SONiC TRANSCEIVER_DOM_SENSOR",
    fix="Clean both ends of the fibre and reseat it; then compare `show interfaces transceiver eeprom --dom`.",
    action="fix-site",
    scope="fleet",
    switches=True,
    reads=("redis:STATE_DB TRANSCEIVER_DOM_SENSOR", "redis:STATE_DB TRANSCEIVER_DOM_THRESHOLD"),
)
def switch_end(net: Ethernet, site: EthernetSite) -> Iterator[Finding]:
    """Compare light and temperature of each module with the thresholds in its memory.

    ## Why it matters
    A lane with too little light damages packets; FEC corrects them until it cannot. The far end sees nothing.

    ## Verdicts
    A value beyond an alarm of the module fails, beyond a warning warns, and so does a lane that receives 3 dB less than
    the best one of its module. Ports that are down are not judged. A module without thresholds is unknown, one without
    sensors, as in copper cables, is not judged.

    ## False alarms
    Modules with wrong thresholds in their memory.
    """
    good = 0
    for switch in net.switches:
        if results := [*unread(switch, "optics", "thresholds")]:
            yield from results
            continue
        for name, optics in switch.optics.items():
            port = switch.ports.get(name)
            values = [value for value in optics.rx_dbm if value is not None]
            if port is None or port.up is False or not values:
                continue
            finding = _module(net, switch, name, optics, values)
            if finding is None:
                good += 1
            else:
                yield finding
    if good:
        yield passed(f"{good} modules in switches are within their own thresholds",
                     evidence=[net.switches[0].key("optics")])  # fmt: skip


def _module(net: Ethernet, switch: SwitchFacts, name: str, optics: Optics, values: list[float]) -> Finding | None:
    limits, where = optics.thresholds, f"{switch.name} {name}"
    keys = [switch.key("optics"), switch.key("thresholds")]
    far = net.far_ends.get(CableEnd(switch.name, name, True))
    to = f", cable to {far}" if far else ""
    if not limits:
        return unknown(f"{where}: the module shows no thresholds", subject=where, evidence=keys,
                       fix="look at the module: `show interfaces transceiver eeprom --dom`")  # fmt: skip
    for level, report in (("alarm", failed), ("warning", warned)):
        low, hot = limits.get(f"rx low {level}"), limits.get(f"temp high {level}")
        lane = optics.rx_dbm.index(min(values)) + 1
        if low is not None and min(values) < low:
            return report(f"{where} lane {lane} receives {min(values):g} dBm{to}", subject=where, evidence=keys,
                          found=f"{min(values):g} dBm", expected=f"at least {low:g} dBm ({level})")  # fmt: skip
        if hot is not None and optics.temperature_c is not None and optics.temperature_c > hot:
            return report(f"{where}: the module is at {optics.temperature_c:g} degrees C{to}", subject=where,
                          found=f"{optics.temperature_c:g} degrees C", expected=f"at most {hot:g} degrees C (the "
                          f"module's {level})", evidence=keys)  # fmt: skip
    if max(values) - min(values) > _UNEVEN_DB:
        lane = optics.rx_dbm.index(min(values)) + 1
        least = f"at least {max(values) - _UNEVEN_DB:g} dBm"
        return warned(f"{where} lane {lane} receives {max(values) - min(values):.1f} dB less than the best lane{to}",
                      subject=where, found=f"{min(values):g} dBm", expected=least,
                      evidence=keys)  # fmt: skip
    return None


@check(
    "optics.fec-margin",
    title="FEC corrects all errors of the cables at switches, with a margin",
    fault="FEC at a switch port loses codewords or is near its limit",
    impact="slows-job",
    owner="network",
    source="IEEE 802.3 clause 91 and 119 (RS(544,514) corrects 15 symbols); SONiC COUNTERS_DB (FEC counters)",
    fix="Clean or replace the cable named; then read the counters twice again: `show interfaces counters fec-stats`.",
    action="fix-site",
    answers=("AN-9",),
    scope="fleet",
    switches=True,
    window=True,
    reads=("redis:COUNTERS_DB ports",),
)
def fec_margin(net: Ethernet, site: EthernetSite) -> Iterator[Finding]:
    """Compare the FEC codewords of each switch port in a window.

    ## Why it matters
    A codeword that cannot be corrected is a lost packet. Before that, the number of wrong symbols rises: the last
    time to replace a cable without an interruption.

    ## Verdicts
    A codeword that was not corrected fails. Codewords with eight or more wrong symbols of the fifteen that can be
    corrected warn. Corrected codewords alone are normal at 50 Gb/s and more per lane. Ports that count no uncorrectable
    codewords are unknown.

    ## False alarms
    A link that came up within the window, which loses codewords while it trains.
    """
    good = 0
    for switch in net.switches:
        results = [*unusable(switch, "port counters")] or [*_margins(net, switch)]
        yield from results
        good += not results
    if good:
        yield passed(f"FEC corrected all errors at the ports of {good} switches",
                     evidence=[net.switches[0].key("port counters")])  # fmt: skip


def _margins(net: Ethernet, switch: SwitchFacts) -> Iterator[Finding]:
    assert switch.second
    blank: list[str] = []
    for name, after in switch.second.ports.items():
        port, before = switch.ports.get(name), switch.first.ports.get(name)
        if port is None or before is None or port.up is not True or port.fec == "none":
            continue
        where, far = f"{switch.name} {name}", net.far_ends.get(CableEnd(switch.name, name, True))
        to = f" on the cable to {far}" if far else ""
        lost = growth(before.uncorrectable, after.uncorrectable)
        bins = [growth(*pair) or 0 for pair in zip(before.bins, after.bins, strict=False)]
        worst = max((symbols for symbols, number in enumerate(bins) if number), default=0)
        if lost is None:
            blank.append(name)
        elif lost:
            yield failed(f"{where}: FEC could not correct {lost} codewords{to}", subject=where, found=f"+{lost}",
                         expected="+0", evidence=[switch.key("port counters")])  # fmt: skip
        elif worst >= _FEW_REMAIN:
            yield warned(
                f"{where}: codewords with {worst} wrong symbols, of 15 that can be corrected{to}", subject=where,
                found=f"{worst} symbols", expected=f"fewer than {_FEW_REMAIN}", evidence=[switch.key("port counters")],
            )  # fmt: skip
    if blank:
        yield unknown(f"{switch.name} {listed(blank)}: uncorrectable codewords are not counted", subject=switch.name,
                      evidence=[switch.key("port counters")],
                      fix="read them on the switch: `show interfaces counters fec-stats`")  # fmt: skip
