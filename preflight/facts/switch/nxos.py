"""Facts of a Cisco NX-OS switch, from answers of its command line as text or JSON.

PFC, ECN, buffers, maps and the watchdog are not read: no recorded answer to these commands was available, so they are
gaps. The window between two readings is measured by the kernel's uptime in ``show version``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from preflight.evidence.document import Evidence
from preflight.facts.switch.answers import Answers
from preflight.facts.switch.eos import dotted_address
from preflight.facts.switch.model import Counters, Heard, Optics, PortCounters, SwitchFacts, SwitchPort
from preflight.facts.switch.values import as_decimal, as_number, as_object, as_text

_INTERFACES, _VERSION = "nxos:show interface", "nxos:show version"
_DOM = "nxos:show interface transceiver details"

#: The record of each part that is read.
_READ = {
    "ports": _INTERFACES, "settings": _INTERFACES, "port counters": _INTERFACES, "optics": _DOM, "thresholds": _DOM,
    "lldp": "nxos:show lldp neighbors detail", "about": _VERSION, "name": _VERSION,
}  # fmt: skip

#: Parts that are not read, because no answer was available -> the command that shows them.
_UNSEEN = {
    "pfc": "nxos:show interface priority-flow-control", "watchdog": "nxos:show queuing pfc-queue detail",
    "dscp": "nxos:show class-map type qos", "tc": "nxos:show policy-map type network-qos",
    "queues": "nxos:show policy-map type queuing", "ecn": "nxos:show policy-map type queuing",
    "groups": "nxos:show queuing interface", "profiles": "nxos:show queuing interface",
    "pools": "nxos:show queuing interface", "queue counters": "nxos:show queuing tabular",
    "group counters": "nxos:show queuing interface", "codewords": "nxos:show interface fec",
    "hash": "nxos:show port-channel load-balance", "bgp": "nxos:show ip bgp summary",
}  # fmt: skip
_WHY_UNSEEN = "this version does not read it: no recorded NX-OS answer was available"

KEYS = {**_READ, **_UNSEEN}

_REMEDY = (
    "paste these commands into one file for each switch: show version, show interface, "
    "show interface transceiver details, show lldp neighbors detail"
)

#: MTU that switches other than the Nexus 9000 show for every port, even if a network-qos policy admits larger frames.
_SMALL_MTU = 1500

_STATES = {"up": True, "down": False}
#: Thresholds, from the lowest to the highest.
_LEVELS = {"low alarm": "alrm_lo", "low warning": "warn_lo", "high warning": "warn_hi", "high alarm": "alrm_hi"}


def facts(evidence: Evidence) -> SwitchFacts:
    """Return the facts of a switch; parts that could not be read are in its gaps."""
    answers = Answers(evidence, _READ)
    about = answers.first("about")
    before, after = answers.both("port counters")
    model = as_text(about.get("chassis_id"))
    heard = answers.table("lldp", "neighbours")
    modules = answers.table("optics", "interfaces")
    rows = answers.table("ports", "interfaces")
    ports = {  # `show interface` may lack some, for example if its output was truncated
        name: _port(name, as_object(rows.get(name)), heard.get(name), model)
        for name in sorted({*rows, *heard, *modules})
    }
    return SwitchFacts(
        name=evidence.node, system_name=as_text(about.get("host_name")), platform=evidence.platform, model=model,
        chassis="", ports=ports, ecn={}, groups={}, pools={}, maps={}, watchdogs={}, watchdog_poll_ms=None, poll_ms={},
        marks_counted=None, optics={name: _optics(lanes) for name, lanes in modules.items() if lanes}, hash_seed=None,
        bgp={}, first=_counters(before), second=_counters(after) if after else None,
        window_s=answers.window("about"), keys=KEYS, gaps={**answers.gaps, **dict.fromkeys(_UNSEEN, _WHY_UNSEEN)},
        remedy=_REMEDY,
    )  # fmt: skip


def _port(name: str, row: Mapping[str, Any], heard: Any, model: str) -> SwitchPort:
    up = _STATES.get(as_text(row.get("state")))
    admin = _STATES.get(as_text(row.get("admin_state")), up or None)
    mtu = as_number(row.get("mtu")) or None
    if mtu == _SMALL_MTU and "9000" not in model:
        mtu = None
    return SwitchPort(
        name, speed_gbps=as_decimal(row.get("gbps")) or None, mtu=mtu, admin_up=admin, up=up, heard=_heard(heard),
        lanes=1 if name.count("/") == 2 else None,  # a breakout port; which lane of the module it uses is not shown
    )  # fmt: skip


def _heard(neighbours: Any) -> Heard | None:
    """Return the neighbour of a port; None unless it has exactly one."""
    if not isinstance(neighbours, list) or len(neighbours) != 1:
        return None
    system, chassis, port, description = (
        as_text(as_object(neighbours[0]).get(name)) for name in ("sys_name", "chassis_id", "port_id", "port_desc")
    )
    return Heard(system, dotted_address(chassis), dotted_address(port), description)


def _optics(lanes: Any) -> Optics:
    """Return a module, with the temperature and thresholds of its first lanes.

    A lane may have neither. Thresholds that are not in ascending order are dropped: the table has other columns.
    """
    rows = [as_object(lane) for lane in lanes] if isinstance(lanes, list) else []
    shown = {key: value for row in reversed(rows) for key, value in row.items() if value is not None}
    named = {
        f"{short} {level}": as_decimal(shown.get(f"{long}_{field}"))
        for short, long in (("rx", "rx_pwr"), ("tx", "tx_pwr"), ("temp", "temp"))
        for level, field in _LEVELS.items()
    }
    for short in ("rx", "tx", "temp"):
        limits = [limit for level in _LEVELS if (limit := named[f"{short} {level}"]) is not None]
        if limits != sorted(limits):
            named |= dict.fromkeys((f"{short} {level}" for level in _LEVELS), None)
    return Optics(
        tuple(as_decimal(row.get("rx_pwr")) for row in rows), tuple(as_decimal(row.get("tx_pwr")) for row in rows),
        as_decimal(shown.get("temperature")),
        {name: value for name, value in named.items() if value is not None},
    )  # fmt: skip


def _counters(answer: Mapping[str, Any]) -> Counters:
    return Counters({name: _port_counters(as_object(row)) for name, row in as_object(answer.get("interfaces")).items()})


def _port_counters(row: Mapping[str, Any]) -> PortCounters:
    unknown = (None,) * 8
    in_octets, out_octets, in_errors, out_errors, in_discards, out_discards = (
        as_number(row.get(f"eth_{name}"))
        for name in ("inbytes", "outbytes", "inerr", "outerr", "indiscard", "outdiscard")
    )
    return PortCounters(
        unknown, unknown, unknown, False, in_octets, out_octets, in_errors, out_errors, in_discards, out_discards,
        None, None, (),
    )  # fmt: skip
