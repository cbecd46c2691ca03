"""Facts of a Juniper Junos switch, from answers of its command line in JSON.

Counters, PFC, ECN, buffers, maps, FEC and modules are not read: no recorded answer to these commands in JSON was
available, so they are gaps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from preflight.evidence.document import Evidence
from preflight.facts.switch.answers import Answers
from preflight.facts.switch.model import Counters, Heard, SwitchFacts, SwitchPort
from preflight.facts.switch.values import as_decimal, as_number, as_object, as_text

_INTERFACES, _VERSION = "junos:show interfaces", "junos:show version"

#: The record of each part that is read.
_READ = {
    "ports": _INTERFACES, "settings": _INTERFACES, "lldp": "junos:show lldp neighbors", "about": _VERSION,
    "name": _VERSION,
}  # fmt: skip

#: Parts that are not read, because no answer was available -> the command that shows them.
_QOS, _OPTICS = "junos:show class-of-service interface comprehensive", "junos:show interfaces diagnostics optics"
_UNSEEN = {
    **dict.fromkeys(("pfc", "dscp", "tc", "queues", "groups", "profiles", "pools", "watchdog"), _QOS),
    "ecn": "junos:show class-of-service drop-profile", "queue counters": "junos:show interfaces queue",
    "group counters": "junos:show interfaces queue", "port counters": "junos:show interfaces extensive",
    "codewords": "junos:show interfaces extensive", "optics": _OPTICS, "thresholds": _OPTICS,
    "hash": "junos:show forwarding-options enhanced-hash-key", "bgp": "junos:show bgp summary",
}  # fmt: skip
_WHY_UNSEEN = "this version does not read it: no recorded Junos answer in JSON was available"

KEYS = {**_READ, **_UNSEEN}

_REMEDY = (
    "paste these commands into one file for each switch: show version | display json, show interfaces | display json, "
    "show lldp neighbors | display json"
)

#: Bytes of the Ethernet header, which Junos includes in the MTU of a port.
_HEADER = 14
_STATES = {"up": True, "down": False}


def facts(evidence: Evidence) -> SwitchFacts:
    """Return the facts of a switch; parts that could not be read are in its gaps."""
    answers = Answers(evidence, _READ)
    about, rows = answers.first("about"), answers.table("ports", "interfaces")
    heard = answers.table("lldp", "neighbours")
    ports = {name: _port(name, as_object(rows.get(name)), heard.get(name)) for name in sorted({*rows, *heard})}
    return SwitchFacts(
        name=evidence.node, system_name=as_text(about.get("host_name")), platform=evidence.platform,
        model=as_text(about.get("model")), chassis="", ports=ports, ecn={}, groups={}, pools={}, maps={}, watchdogs={},
        watchdog_poll_ms=None, poll_ms={}, marks_counted=None, optics={}, hash_seed=None, bgp={}, first=Counters(),
        second=None, window_s=None, keys=KEYS, gaps={**answers.gaps, **dict.fromkeys(_UNSEEN, _WHY_UNSEEN)},
        remedy=_REMEDY,
    )  # fmt: skip


def _port(name: str, row: Mapping[str, Any], heard: Any) -> SwitchPort:
    """Return a port; neighbours know it by its name, or by its SNMP index."""
    mtu = as_number(row.get("mtu"))
    return SwitchPort(
        name, alias=as_text(row.get("index")), speed_gbps=as_decimal(row.get("gbps")) or None,
        mtu=mtu - _HEADER if mtu is not None and mtu > _HEADER else None,
        admin_up=_STATES.get(as_text(row.get("admin"))), up=_STATES.get(as_text(row.get("oper"))), heard=_heard(heard),
    )  # fmt: skip


def _heard(neighbours: Any) -> Heard | None:
    """Return the neighbour of a port; None unless it has exactly one."""
    if not isinstance(neighbours, list) or len(neighbours) != 1:
        return None
    row = as_object(neighbours[0])
    return Heard(*(as_text(row.get(name)) for name in ("systemName", "chassis", "port", "description")))
