"""Facts of a switch with Linux and FRRouting, such as Cumulus Linux.

PFC, ECN, buffers, maps, modules and the watchdog are shown only by NVUE, no recorded answer of which was available, so
they are gaps. The window between two readings is measured by the kernel's uptime.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from preflight.evidence.document import Evidence
from preflight.facts.switch import sonic
from preflight.facts.switch.answers import Answers
from preflight.facts.switch.model import BgpSession, Counters, Heard, PortCounters, SwitchFacts, SwitchPort
from preflight.facts.switch.values import as_number, as_object, as_text
from preflight.parsers.switch.linux_answers import BGP, LINK, NEIGHBOURS, SPEED, UPTIME

#: The record of each part that is read.
_READ = {part: f"linux:{command}" for part, command in (
    ("ports", LINK), ("settings", LINK), ("port counters", LINK), ("lldp", NEIGHBOURS), ("neighbours", BGP),
    ("bgp", BGP), ("speed", SPEED), ("uptime", UPTIME),
)}  # fmt: skip

#: Parts that are not read, because no answer was available -> the command that shows them.
_ROCE, _COUNTERS = "linux:nv show qos roce -o json", "linux:nv show interface swp1 qos roce counters -o json"
_MODULE = "linux:nv show interface swp1 transceiver -o json"
_UNSEEN = {
    **dict.fromkeys(("pfc", "dscp", "tc", "queues", "ecn", "groups", "profiles", "pools", "watchdog"), _ROCE),
    "queue counters": _COUNTERS, "group counters": _COUNTERS, "codewords": _COUNTERS,
    "optics": _MODULE, "thresholds": _MODULE, "hash": "linux:nv show router adaptive-routing -o json",
}  # fmt: skip
_WHY_UNSEEN = "this version does not read it: no recorded answer of NVUE was available"

KEYS = {**_READ, **_UNSEEN}

#: A port of SONiC, whose databases show what the kernel does not.
_SONIC_PORT = "Ethernet"
_KEYS_OF_SONIC = {**KEYS, **{part: sonic.KEYS.get(part, sonic.KEYS["port counters"]) for part in _UNSEEN}}
_WHY_SONIC = "the kernel does not show it; on SONiC, its databases do"

_REMEDY = (
    f"paste these commands into one file for each switch: {UPTIME}; {LINK}; {SPEED}; sudo {NEIGHBOURS}; sudo {BGP}"
)

_STATES = {"UP": True, "DOWN": False, "LOWERLAYERDOWN": False}
#: States of a session that is switched off in the configuration.
_OFF = ("idle (admin)",)


def facts(evidence: Evidence) -> SwitchFacts:
    """Return the facts of a switch; parts that could not be read are in its gaps."""
    answers = Answers(evidence, _READ)
    rows, rates = answers.table("ports", "interfaces"), answers.table("speed", "mbps")
    neighbours = answers.table("lldp", "neighbours")
    heard = {name: _heard(as_object(row)) for name, row in neighbours.items() if name in rows}
    before, after = answers.both("port counters")
    of_sonic = any(name.startswith(_SONIC_PORT) for name in rows)
    return SwitchFacts(
        name=evidence.node, system_name="", platform=evidence.platform, model="", chassis="",
        ports={name: _port(name, as_object(row), rates.get(name), heard.get(name)) for name, row in rows.items()},
        ecn={}, groups={}, pools={}, maps={}, watchdogs={}, watchdog_poll_ms=None, poll_ms={}, marks_counted=None,
        optics={}, hash_seed=None, bgp=dict(_bgp(answers.table("bgp", "peers"), heard)), first=_counters(before),
        second=_counters(after) if after else None, window_s=answers.window("uptime"),
        keys=_KEYS_OF_SONIC if of_sonic else KEYS,
        gaps={**answers.gaps, **dict.fromkeys(_UNSEEN, _WHY_SONIC if of_sonic else _WHY_UNSEEN)},
        remedy=sonic.REMEDY if of_sonic else _REMEDY,
    )  # fmt: skip


def _port(name: str, row: Mapping[str, Any], mbps: Any, heard: Heard | None) -> SwitchPort:
    rate, admin = as_number(mbps), row.get("admin_up")
    return SwitchPort(
        name, speed_gbps=rate / 1000 if rate else None, mtu=as_number(row.get("mtu")) or None,
        admin_up=admin if isinstance(admin, bool) else None, up=_STATES.get(as_text(row.get("operstate"))), heard=heard,
    )  # fmt: skip


def _heard(row: Mapping[str, Any]) -> Heard:
    return Heard(*(as_text(row.get(name)) for name in ("systemName", "chassis", "port", "description")))


def _bgp(peers: Mapping[str, Any], heard: Mapping[str, Heard]) -> Iterator[tuple[str, BgpSession]]:
    """Yield the sessions by address, or by port if they have none."""
    for address, row in peers.items():
        state = as_text(as_object(row).get("state"))
        named = as_text(as_object(row).get("hostname"))
        if not named and address in heard:
            named = heard[address].system_name
        yield address, BgpSession(state, named, state.lower() in _OFF)


def _counters(answer: Mapping[str, Any]) -> Counters:
    return Counters({name: _port_counters(as_object(row)) for name, row in as_object(answer.get("interfaces")).items()})


def _port_counters(row: Mapping[str, Any]) -> PortCounters:
    none = (None,) * 8
    received, sent, in_errors, out_errors, in_dropped, out_dropped = (
        as_number(row.get(f"{way}_{what}")) for what in ("bytes", "errors", "dropped") for way in ("rx", "tx")
    )
    return PortCounters(
        none, none, none, False, received, sent, in_errors, out_errors, in_dropped, out_dropped, None, None, (),
    )  # fmt: skip
