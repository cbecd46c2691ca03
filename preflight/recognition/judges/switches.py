"""Judges of single answers of switches.

The text does not show which ports a job uses, nor when a counter grew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from preflight._startup.lightclass import replace
from preflight.checks.rdma import counter_totals
from preflight.model import Finding, Status, all_of, clause, counted, failed, passed, unknown, warned
from preflight.parsers.switch.printed_ports import PrintedAnswer, PrintedPort, count, pfc_is_off
from preflight.recognition.judges import MOST_NAMED, Judge, Judges, PastedValue
from preflight.recognition.judges.lists import limited, unsure

#: Maximum number of pauses on a healthy port: a judgement call.
_USUAL_PAUSES = 10_000
#: Least MTU in bytes for RoCE's 4096.
_ROCE_MTU = 4200
#: Receive power in dBm of a dark port, and of a healthy one.
_DARK_DBM, _LIGHT_DBM = -30.0, -10.0
_AGAIN = (
    "Show the counters again after a minute under traffic; if they grow, clean or replace the module and the cable, "
    "and run `ethtool -S` on the host at the other end."
)
_FIX = "Compare with the other end of the cable; `preflight check --switches` reads all switches."


def _totals(check: str) -> Judge:
    def report(part: PastedValue) -> Iterator[Finding]:
        answer: PrintedAnswer = part.value
        places = {answer.place(port): _sums(answer, port) for port in answer.ports if port.counters}
        for finding in counter_totals.judge_totals(check, places, part.evidence, part.in_full):
            yield replace(finding, fix=_AGAIN) if finding.status is Status.UNKNOWN else finding

    return limited(report)


def _sums(answer: PrintedAnswer, port: PrintedPort) -> Mapping[str, int]:
    """Return a port's counters; none of drops by priority group, judged separately."""
    return {} if _drops_of_groups(answer) else port.counters


def _drops_of_groups(answer: PrintedAnswer) -> bool:
    return "drop" in answer.title.lower()


@limited
def _links(part: PastedValue) -> Iterator[Finding]:
    """Report ports without a link, unless they were switched off or hold no module."""
    answer: PrintedAnswer = part.value
    shown = [port for port in answer.ports if port.up is not None]
    empty: list[str] = []
    for port in shown:
        if port.up or port.admin_up is False:
            continue
        where = answer.place(port)
        details: dict[str, Any] = {"subject": where, "found": port.state, "expected": "up", "evidence": part.evidence}
        if "err" in port.state.lower() or "flap" in port.state.lower():
            yield failed(f"{where}: the switch disabled the port after an error: {port.state} (line {port.line})",
                         fix="`show interfaces status err-disabled` names the reason; repair the cable, then "
                         "enable the port.", **details)  # fmt: skip
        elif port.about:
            yield warned(f"{where}: no link ({port.state}), but it is described as {port.about!r} (line {port.line})",
                         fix="Check cable, modules and the NIC at the other end.", **details)  # fmt: skip
        elif port.module == "":
            empty.append(where)
        else:
            yield unsure(f"{where}: no link ({port.state}), and the port is enabled (line {port.line})",
                         fix="If a device is connected, check cable, modules and its NIC; else shut the port down.",
                         **details)  # fmt: skip
    if empty:
        more = ", …" if empty[MOST_NAMED:] else ""
        yield unknown(f"{counted(len(empty), 'enabled port')} without a module: {', '.join(empty[:MOST_NAMED])}{more}",
                      found="no module", evidence=part.evidence,
                      fix="If a device should be connected, insert the module.")  # fmt: skip
    if shown and all(port.up or port.admin_up is False for port in shown) and part.in_full:
        off = sum(port.admin_up is False for port in shown)
        yield passed(f"{sum(bool(port.up) for port in shown)} ports have a link"
                     f"{f', {off} are switched off' if off else ''}", evidence=part.evidence)  # fmt: skip


def _compared(value_of: Callable[[PrintedPort], Any], what: str, report: Callable[..., Finding]) -> Judge:
    """Return a judge of linked ports that differ from most enabled ports."""

    @limited
    def judge_ports(part: PastedValue) -> Iterator[Finding]:
        answer: PrintedAnswer = part.value
        enabled = [port for port in answer.ports if port.admin_up is not False and not port.management]
        values = {port.name: value for port in enabled if (value := value_of(port)) not in (None, "")}
        usual, number = Counter(values.values()).most_common(1)[0] if values else (None, 0)
        odd = {name: value for name, value in values.items() if value != usual}
        if number < 2 or len(odd) * 2 > number:
            return
        for port in answer.ports:
            if port.up and port.name in odd and (isinstance(usual, str) or odd[port.name] < usual):
                where = answer.place(port)
                yield report(f"{where}: {what.format(odd[port.name])}, {what.format(usual)} on {number} other ports "
                             f"(line {port.line})", subject=where, found=str(odd[port.name]), expected=str(usual),
                             evidence=part.evidence, fix=_FIX)  # fmt: skip
        if not odd and part.in_full:
            yield passed(f"{what.format(usual)} on all {number} ports that show it", evidence=part.evidence)

    return judge_ports


def _small_mtu(part: PastedValue) -> Iterator[Finding]:
    answer: PrintedAnswer = part.value
    mtus = {port.mtu for port in answer.ports if port.up and port.mtu and not port.management}
    if mtus and max(mtus) < _ROCE_MTU:
        yield unknown(f"no port has an MTU above {max(mtus)}: RoCE with MTU 4096 needs {_ROCE_MTU}", found=max(mtus),
                      expected=f"at least {_ROCE_MTU}, usually 9000 or more", evidence=part.evidence,
                      fix="Set the MTU of the ports to the largest value of the switch.")  # fmt: skip


@limited
def _pauses(part: PastedValue) -> Iterator[Finding]:
    answer: PrintedAnswer = part.value
    number, calm = 0, True
    for port in answer.ports:
        for name, received, priority, value in port.pauses:
            number += 1
            if value <= _USUAL_PAUSES:
                continue
            calm = False
            on = f" on priority {priority}" if priority else ""
            who = "the device behind the port stopped the switch" if received else "the switch stopped the device"
            yield unknown(
                f"{answer.place(port)}: {name} {value}: {who} this often{on}, if it still grows (line {port.line})",
                subject=answer.place(port), found=f"{name} {value}", expected="little growth between two readings",
                evidence=part.evidence, fix="Read it again after a minute; received pauses come from a slow NIC or the "
                "next switch, sent ones from congestion in this switch.",
            )  # fmt: skip
    if number and calm and part.in_full:
        yield passed(f"{number} pause counters are at most {_USUAL_PAUSES:,}", evidence=part.evidence)


#: Columns of PFC's state, by the kind of table.
_PFC = ("Lossless priorities", "Priorities", "Active", "Oper(VL")


@limited
def _pfc(part: PastedValue) -> Iterator[Finding]:
    """Compare the PFC settings of ports; whether PFC is needed is unknown."""
    answer: PrintedAnswer = part.value
    column = next(
        (name for name in _PFC if any(name in port.fields or name in port.counters for port in answer.ports)), ""
    )
    if not column:
        return
    values = {
        port.name: str(port.fields.get(column, port.counters.get(column, "")))
        for port in answer.ports if not port.management
    }  # fmt: skip
    on = {name: value for name, value in values.items() if not pfc_is_off(value)}
    if not on:
        yield unknown("PFC is off on all ports: a fault if RoCE needs a lossless priority", found="off",
                      evidence=part.evidence, fix="Compare with `mlnx_qos` of the hosts.")  # fmt: skip
        return
    usual = Counter(on.values()).most_common(1)[0][0]
    for port in answer.ports:
        where, value = answer.place(port), values.get(port.name, usual)
        if value == usual:
            continue
        if pfc_is_off(value) and port.fields.get("Mode", "").lower() == "on":
            yield warned(f"{where}: PFC is set to on, but is off in operation (line {port.line})", subject=where,
                         found=value or "off", expected=usual, evidence=part.evidence, fix=_FIX)  # fmt: skip
        elif len(on) == 1:
            yield unknown(f"{where}: PFC {value or 'off'}, {usual} on {next(iter(on))} (line {port.line}): a fault if "
                          "RoCE uses the port", subject=where, found=value or "off", expected=usual,
                          evidence=part.evidence, fix=_FIX)  # fmt: skip
        else:
            yield warned(f"{where}: PFC {values[port.name] or 'off'}, {usual} on most other ports (line {port.line})",
                         subject=where, found=values[port.name] or "off", expected=usual, evidence=part.evidence,
                         fix=_FIX)  # fmt: skip
    if len(set(values.values())) == 1 and part.in_full:
        yield passed(f"PFC is {usual} on {all_of(len(values), 'port')}", evidence=part.evidence)


@limited
def _storms(part: PastedValue) -> Iterator[Finding]:
    answer: PrintedAnswer = part.value
    rows = [port for port in answer.ports if "STORM DETECTED/RESTORED" in port.fields]
    calm = True
    for port in rows:
        detected, _, restored = port.fields["STORM DETECTED/RESTORED"].partition("/")
        state = port.fields.get("STATUS", "")
        if not count(detected) and state != "stormed":
            continue
        calm = False
        report = failed if state == "stormed" else warned
        now = ", and it still drops" if state == "stormed" else ""
        yield report(f"{answer.place(port)}: the PFC watchdog stopped storms (detected {detected}, ended {restored})"
                     f"{now} (line {port.line})", subject=answer.place(port), found=f"{detected}/{restored}",
                     expected="0/0", evidence=part.evidence)  # fmt: skip
    if rows and calm and part.in_full:
        yield passed(f"the PFC watchdog stopped no storm on {counted(len(rows), 'queue')}", evidence=part.evidence)


@limited
def _lossless_drops(part: PastedValue) -> Iterator[Finding]:
    answer: PrintedAnswer = part.value
    if not _drops_of_groups(answer):
        return
    number, calm = 0, True
    for port in answer.ports:
        for name, value in port.counters.items():
            number += 1
            if value:
                calm = False
                yield unknown(f"{answer.place(port)}: {value} packets dropped in {name} (line {port.line}): a fault if "
                              "the priority is lossless and the counter grows", subject=answer.place(port),
                              found=f"{name} {value}", expected="0", evidence=part.evidence,
                              fix="`show pfc priority`; read the counter again under load.")  # fmt: skip
    if number and calm and part.in_full:
        yield passed(f"{number} priority groups dropped no packet", evidence=part.evidence)


@limited
def _light(part: PastedValue) -> Iterator[Finding]:
    answer: PrintedAnswer = part.value
    rows = [port for port in answer.ports if port.received_dbm]
    bright = True
    for port in rows:
        least = min(port.received_dbm)
        where = answer.place(port)
        if least <= _DARK_DBM:
            bright = False
            yield unsure(f"{where} receives no light ({least:g} dBm, line {port.line})", subject=where,
                         fix="Check fibre, connectors and the module at the other end.", found=f"{least:g} dBm",
                         expected="light", evidence=part.evidence)  # fmt: skip
        elif least < _LIGHT_DBM:
            bright = False
            yield unknown(f"{where} receives {least:g} dBm (line {port.line}); the table lacks the module's threshold",
                          subject=where, found=f"{least:g} dBm", expected="the low warning threshold of the module",
                          evidence=part.evidence, fix="`show interfaces transceiver dom thresholds`")  # fmt: skip
    if rows and bright and part.in_full:
        yield passed(
            f"{clause(len(rows), 'module', 'receives')} more than {_LIGHT_DBM:g} dBm",
            evidence=part.evidence,
        )


# --- settings of NVUE, ports of Onyx ---------------------------------------------------------------------


def _setting(answer: PrintedAnswer, name: str) -> str:
    return next((value for key, value in answer.settings.items() if key.endswith(name)), "").lower()


def _roce(part: PastedValue) -> Iterator[Finding]:
    answer: PrintedAnswer = part.value
    mode, priority = _setting(answer, "mode"), _setting(answer, "pfc-priority")
    if not priority and "qos" not in " ".join(answer.settings) and mode not in ("lossless", "lossy"):
        return
    sides = {way: _setting(answer, f"{way}-enabled") for way in ("rx", "tx")}
    off = [way for way, value in sides.items() if value in ("no", "off", "disabled")]
    if mode == "lossy" or not priority:
        yield unknown("RoCE mode is lossy, without PFC, which is a fault if the hosts expect a lossless "
                      "priority", found=mode,
                      expected="lossless, if the hosts use PFC", evidence=part.evidence,
                      fix="Compare with `mlnx_qos` of the hosts.")  # fmt: skip
    elif off:
        yield warned(f"PFC of priority {priority} is off for {' and '.join(off)}", found=f"{', '.join(off)} off",
                     expected="rx and tx on", evidence=part.evidence,
                     fix="`nv set qos roce mode lossless`")  # fmt: skip
    else:
        yield passed(f"PFC is on for priority {priority}", evidence=part.evidence)


def _marking(part: PastedValue) -> Iterator[Finding]:
    answer: PrintedAnswer = part.value
    mode = _setting(answer, "congestion-mode")
    if mode:
        shown = f"{mode.upper()} on traffic classes {_setting(answer, 'enabled-tc') or 'not shown'}"
        if "ecn" in mode:
            yield passed(f"the switch marks packets: {shown}", evidence=part.evidence)
        else:
            yield warned(f"the switch does not mark packets (congestion mode {mode})", found=mode, expected="ECN",
                         evidence=part.evidence)  # fmt: skip


def _trust(part: PastedValue) -> Iterator[Finding]:
    answer: PrintedAnswer = part.value
    trust = _setting(answer, "trust-mode")
    if trust and "dscp" not in trust:
        yield warned(f"the switch trusts {trust}, but RoCE v2 packets are classified by DSCP", found=trust,
                     expected="dscp",
                     evidence=part.evidence)  # fmt: skip
    elif trust:
        yield passed(f"the switch trusts {trust}", evidence=part.evidence)


def _width(part: PastedValue) -> Iterator[Finding]:
    answer: PrintedAnswer = part.value
    for port in answer.ports:
        fields = {name.lower(): value for name, value in port.fields.items()}
        for name, supported in (("width", "supported widths"), ("speed", "supported speeds")):
            best = fields.get(supported, "").split(",")[-1].strip()
            if port.up and best and (value := fields.get(name, best)).lower() != best.lower():
                report = warned if name == "width" else unsure
                yield report(f"{answer.place(port)} runs at {name} {value}, but supports {best}",
                             subject=answer.place(port), found=value, expected=best, evidence=part.evidence,
                             fix="Reseat or replace the cable; compare with the port at its other end.")  # fmt: skip


JUDGES: Judges = {
    "switch show": (
        *((check, _totals(check)) for check in counter_totals.CHECKS),
        ("rdma.port-state", _links),
        ("switch.mtu", _compared(lambda port: port.mtu, "MTU {}", warned)), ("switch.mtu", _small_mtu),
        ("fabric.link-speed", _compared(lambda port: port.speed_gbps, "{:g} Gb/s", unsure)),
        ("fabric.link-speed", _width),
        ("optics.fec", _compared(lambda port: port.fec, "FEC {}", warned)),
        ("optics.switch-end", _light),
        ("fabric.pause-root", _pauses), ("link.pfc", _pfc), ("switch.pfc", _roce), ("switch.ecn", _marking),
        ("switch.dscp", _trust), ("switch.watchdog-fired", _storms), ("switch.lossless-drops", _lossless_drops),
    ),
}  # fmt: skip
