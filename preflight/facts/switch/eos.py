"""Facts of an Arista EOS switch, from the JSON answers of its command line.

PFC, ECN, buffers, maps and the watchdog are not read: no recorded answer to these commands was available, so they are
gaps. Times are the switch's own (``counterRefreshTime``), so the window does not depend on how an answer was obtained.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from preflight.evidence.document import Evidence
from preflight.facts.switch.answers import Answers
from preflight.facts.switch.model import Counters, Heard, Optics, PortCounters, SwitchFacts, SwitchPort
from preflight.facts.switch.values import as_decimal, as_number, as_text

_INTERFACES, _PHY = "eos:show interfaces", "eos:show interfaces phy detail"
_DOM = "eos:show interfaces transceiver dom thresholds"

#: The record of each part that is read.
_READ = {
    "ports": _INTERFACES, "settings": _INTERFACES, "port counters": _INTERFACES, "codewords": _PHY, "optics": _DOM,
    "thresholds": _DOM, "lldp": "eos:show lldp neighbors detail", "about": "eos:show version",
    "name": "eos:show hostname",
}  # fmt: skip

#: Parts that are not read, because no answer was available -> the command that shows them.
_UNSEEN = {
    "pfc": "eos:show priority-flow-control", "watchdog": "eos:show priority-flow-control counters watchdog",
    "dscp": "eos:show qos maps", "tc": "eos:show qos maps", "queues": "eos:show qos interfaces",
    "ecn": "eos:show qos interfaces ecn", "groups": "eos:show qos interfaces",
    "profiles": "eos:show qos interfaces", "pools": "eos:show qos interfaces",
    "queue counters": "eos:show qos interfaces ecn counters queue",
    "group counters": "eos:show priority-flow-control counters detail",
    "hash": "eos:show load-balance profile", "bgp": "eos:show bgp summary vrf all",
}  # fmt: skip
_WHY_UNSEEN = "this version does not read it: no recorded EOS answer was available"

KEYS = {**_READ, **_UNSEEN}

_REMEDY = (
    "paste these commands with `| json` into one file for each switch: show version, show hostname, show interfaces, "
    "show interfaces phy detail, show interfaces transceiver dom thresholds, show lldp neighbors detail"
)


def facts(evidence: Evidence) -> SwitchFacts:
    """Return the facts of a switch; parts that could not be read are in its gaps."""
    answers = Answers(evidence, _READ)
    about, named = answers.first("about"), answers.first("name")
    heard = dict(_heard(_rows(answers.first("lldp"), "lldpNeighbors")))
    before, after = answers.both("port counters")
    first = _counters(before, answers.both("codewords")[0])
    second = _counters(after, answers.both("codewords")[1]) if after is not None else None
    return SwitchFacts(
        name=evidence.node, system_name=as_text(named.get("hostname")), platform=evidence.platform,
        model=as_text(about.get("modelName")), chassis=as_text(about.get("systemMacAddress")),
        ports={name: _port(name, row, heard.get(name)) for name, row in _rows(before, "interfaces")},
        ecn={}, groups={}, pools={}, maps={}, watchdogs={}, watchdog_poll_ms=None, poll_ms={}, marks_counted=None,
        optics=dict(_optics(_rows(answers.first("optics"), "interfaces"))), hash_seed=None, bgp={},
        first=first, second=second, window_s=_window(before, after) if after is not None else None,
        keys=KEYS, gaps={**answers.gaps, **dict.fromkeys(_UNSEEN, _WHY_UNSEEN)}, remedy=_REMEDY,
        began=_refreshed(before) or None,
    )  # fmt: skip


def _rows(answer: Any, name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the object of each interface, ordered by the interface's numbers."""
    rows = answer.get(name) if isinstance(answer, dict) else None
    if isinstance(rows, dict):
        for port in sorted(rows, key=lambda port: [int(number) for number in re.findall(r"[0-9]{1,6}", port)]):
            if isinstance(rows[port], dict):
                yield port, rows[port]


def _object(value: Any, name: str) -> Mapping[str, Any]:
    entry = value.get(name) if isinstance(value, dict) else None
    return entry if isinstance(entry, dict) else {}


def _objects(value: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    entries = value.get(name)
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def _port(name: str, row: Mapping[str, Any], heard: Heard | None) -> SwitchPort:
    """Return a port; ``mtu`` is in bytes of payload, and ``bandwidth`` in bit/s."""
    rate, mtu = as_number(row.get("bandwidth")), as_number(row.get("mtu"))
    status, line = as_text(row.get("interfaceStatus")), as_text(row.get("lineProtocolStatus"))
    return SwitchPort(
        name, speed_gbps=rate / 1e9 if rate else None, mtu=mtu or None,
        admin_up=status not in ("disabled", "adminDown") if status else None, up=line == "up" if line else None,
        heard=heard,
    )  # fmt: skip


def _heard(table: Iterator[tuple[str, Mapping[str, Any]]]) -> Iterator[tuple[str, Heard]]:
    """Yield the neighbour of each port that has exactly one."""
    for port, row in table:
        neighbours = _objects(row, "lldpNeighborInfo")
        if len(neighbours) == 1:
            far, device = _object(neighbours[0], "neighborInterfaceInfo"), neighbours[0]
            name = (as_text(far.get("interfaceId_v2")) or as_text(far.get("interfaceId"))).strip('"')
            chassis, port_id = dotted_address(as_text(device.get("chassisId"))), dotted_address(name)
            yield port, Heard(as_text(device.get("systemName")), chassis, port_id,
                              as_text(far.get("interfaceDescription")).strip('"'))  # fmt: skip


def dotted_address(text: str) -> str:
    """Return ``0200.5e10.0001`` as ``02:00:5e:10:00:01``, and other text unchanged."""
    if not re.fullmatch(r"[0-9a-f]{4}\.[0-9a-f]{4}\.[0-9a-f]{4}", text):
        return text
    digits = text.replace(".", "")
    return ":".join(digits[at : at + 2] for at in range(0, 12, 2))


def _optics(table: Iterator[tuple[str, Mapping[str, Any]]]) -> Iterator[tuple[str, Optics]]:
    """Yield the light received by each module, in dBm."""
    for port, row in table:
        power = _object(_object(row, "parameters"), "rxPower")
        if power.get("unit") == "dBm" and (channels := _object(power, "channels")):
            lanes = tuple(as_decimal(channels[lane]) for lane in sorted(channels, key=lambda lane: (len(lane), lane)))
            limits = _object(power, "threshold")
            named = {
                f"rx {side} {level}": as_decimal(limits.get(f"{side}{short}"))
                for side in ("low", "high")
                for level, short in (("alarm", "Alarm"), ("warning", "Warn"))
            }
            yield port, Optics(lanes, (), None, {name: dbm for name, dbm in named.items() if dbm is not None})


def _counters(interfaces: Any, phys: Any) -> Counters:
    words = dict(_rows(phys, "interfacePhyStatuses"))
    rows = [(name, _object(row, "interfaceCounters")) for name, row in _rows(interfaces, "interfaces")]
    changes = {name: as_number(counters.get("linkStatusChanges")) for name, counters in rows}
    return Counters({name: _port_counters(counters, words.get(name, {})) for name, counters in rows},
                    link_changes={name: number for name, number in changes.items() if number is not None})  # fmt: skip


def _port_counters(row: Mapping[str, Any], phy: Mapping[str, Any]) -> PortCounters:
    """Return the counters of a port.

    Codewords are summed over all of its chips on the cable side; the highest bit error ratio of them counts.
    """
    chips = [chip for chip in _objects(phy, "phyStatuses") if _object(chip, "description").get("location") == "line"]
    fec = [_object(chip, "fec") for chip in chips]
    ratios = [as_decimal(_object(chip, "preFecBer").get("value")) for chip in chips]

    def words(name: str) -> int | None:
        values = [number for chip in fec if (number := as_number(_object(chip, name).get("value"))) is not None]
        return sum(values) if values else None

    in_octets, out_octets, in_errors, out_errors, in_discards, out_discards = (
        as_number(row.get(name))
        for name in ("inOctets", "outOctets", "totalInErrors", "totalOutErrors", "inDiscards", "outDiscards")
    )
    unknown = (None,) * 8
    return PortCounters(
        unknown, unknown, unknown, False, in_octets, out_octets, in_errors, out_errors, in_discards, out_discards,
        words("uncorrectedCodewords"), words("correctedCodewords"), (),
        max((ratio for ratio in ratios if ratio is not None), default=None),
    )  # fmt: skip


def _window(before: Any, after: Any) -> float | None:
    """Return the seconds between two answers, by the switch's clock, or None."""
    times = [_refreshed(answer) for answer in (before, after)]
    return times[1] - times[0] if times[0] and times[1] > times[0] else None


def _refreshed(answer: Any) -> float:
    """Return when the counters were read, by the switch's clock; 0 if not shown."""
    rows = (_object(row, "interfaceCounters") for _, row in _rows(answer, "interfaces"))
    return max((as_decimal(row.get("counterRefreshTime")) or 0.0 for row in rows), default=0.0)
