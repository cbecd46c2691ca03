"""Facts of a SONiC switch, from the records of its databases.

Sources: sonic-swss (``doc/swss-schema.md``, ``orchagent/pfcwdorch.cpp``), sonic-utilities (``counterpoll``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping

from preflight.evidence.document import Evidence, EvidenceError, Record
from preflight.facts.steps_in_window import seconds_since_1970
from preflight.facts.switch.model import (
    BgpSession,
    Heard,
    Optics,
    PfcWatchdog,
    PriorityGroup,
    QosMaps,
    QueueMarking,
    SwitchFacts,
    SwitchPort,
)
from preflight.facts.switch.sonic_counters import judged_queues, readings
from preflight.facts.switch.values import number_in

Table = Mapping[str, Mapping[str, str]]

#: The record of each part of the facts.
KEYS = {
    "ports": "redis:APPL_DB PORT_TABLE", "settings": "redis:CONFIG_DB PORT", "pfc": "redis:CONFIG_DB PORT_QOS_MAP",
    "dscp": "redis:CONFIG_DB DSCP_TO_TC_MAP", "tc": "redis:CONFIG_DB TC_TO_QUEUE_MAP",
    "queues": "redis:CONFIG_DB QUEUE", "ecn": "redis:CONFIG_DB WRED_PROFILE", "groups": "redis:CONFIG_DB BUFFER_PG",
    "profiles": "redis:CONFIG_DB BUFFER_PROFILE", "pools": "redis:APPL_DB BUFFER_POOL_TABLE",
    "cables": "redis:CONFIG_DB CABLE_LENGTH", "watchdog": "redis:CONFIG_DB PFC_WD",
    "polling": "redis:CONFIG_DB FLEX_COUNTER_TABLE", "lldp": "redis:APPL_DB LLDP_ENTRY_TABLE",
    "optics": "redis:STATE_DB TRANSCEIVER_DOM_SENSOR", "thresholds": "redis:STATE_DB TRANSCEIVER_DOM_THRESHOLD",
    "port counters": "redis:COUNTERS_DB ports", "queue counters": "redis:COUNTERS_DB queues",
    "group counters": "redis:COUNTERS_DB pgs", "hash": "redis:APPL_DB SWITCH_TABLE",
    "neighbours": "redis:CONFIG_DB BGP_NEIGHBOR", "bgp": "redis:STATE_DB NEIGH_STATE_TABLE",
}  # fmt: skip

#: Groups of counters by their name in FLEX_COUNTER_TABLE, and their default interval in ms (counterpoll).
_POLLED = {"PORT": ("port", 1000), "QUEUE": ("queue", 10_000), "PG_DROP": ("group", 10_000),
           "WRED_ECN_QUEUE": ("marks", 10_000)}  # fmt: skip

_APPLIED_GROUPS = "redis:APPL_DB BUFFER_PG_TABLE"

_LENGTH = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)m")

#: Times above this are seconds since 1970, not since a start of the switch.
_LONG_AGO = 1e9

#: How to collect what is missing.
REMEDY = "pass the complete databases: `show techsupport`, or `sonic-db-dump -n CONFIG_DB -y > CONFIG_DB.json`"


def facts(evidence: Evidence) -> SwitchFacts:
    """Return the facts of a switch; unreadable parts are in its gaps."""
    tables = _Tables(evidence)
    ports = _ports(tables)
    maps = dict(_maps(tables, ports))
    counters = [tables.record(KEYS[f"{what} counters"]) for what in ("port", "queue", "group")]
    first, second, window_s = readings(counters, tables.record(KEYS["ports"]), judged_queues(ports, maps))
    about = tables["redis:CONFIG_DB DEVICE_METADATA"].get("localhost", {})
    return SwitchFacts(
        name=evidence.node, system_name=about.get("hostname", ""), platform=evidence.platform,
        model=about.get("hwsku", ""), chassis=about.get("mac", ""),
        ports=ports, ecn=dict(_ecn(tables)), groups=dict(_groups(tables)), buffered=_buffered(tables),
        pools=_pools(tables), hash_seed=tables[KEYS["hash"]].get("switch", {}).get("ecmp_hash_seed"),
        maps=maps, watchdogs=dict(_watchdogs(tables)),
        watchdog_poll_ms=number_in(tables[KEYS["watchdog"]].get("GLOBAL", {}).get("POLL_INTERVAL")),
        poll_ms=dict(_polling(tables)), marks_counted=_marks_counted(tables), optics=dict(_optics(tables)),
        bgp=dict(_bgp(tables)), first=first, second=second, window_s=window_s, keys=KEYS, gaps=tables.gaps,
        remedy=REMEDY, began=_began(evidence, tables.record(KEYS["port counters"])),
    )  # fmt: skip


def _began(evidence: Evidence, counters: Record | None) -> float | None:
    """Return the time of the first reading, in dumps from ``at_s``; None if unknown."""
    if evidence.collector.get("via") != "file":
        return seconds_since_1970(evidence.collected_at)
    at_s = counters.at_s if counters else None
    return at_s if at_s is not None and at_s > _LONG_AGO else None


class _Tables:
    """The tables of a switch by record; an unread table is empty, and a gap."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._parts = {key: part for part, key in KEYS.items()}
        self.gaps: dict[str, str] = {}

    def __getitem__(self, key: str) -> Table:
        record = self.record(key)
        rows = record.value if record else None
        if not isinstance(rows, dict):
            return {}
        return {
            str(name): {field: text for field, text in row.items() if isinstance(text, str)}
            for name, row in rows.items()
            if isinstance(row, dict)
        }

    def record(self, key: str) -> Record | None:
        """Return a complete record that holds an object; or None, after noting a gap."""
        try:
            record = self._evidence.complete_record(key)
        except EvidenceError as error:
            self.gaps[self._parts.get(key, key)] = error.why
            return None
        if not isinstance(record.value, dict):
            self.gaps[self._parts.get(key, key)] = "the record has no table"
            return None
        return record


def _decimal(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None and len(text) < 40 else None
    except ValueError:
        return None
    return value if value is not None and math.isfinite(value) else None


def _named(reference: str) -> str:
    """Return the name in a reference; old configurations write ``[TABLE|NAME]``."""
    match = re.fullmatch(r"\[[A-Z_]{1,60}[|:]([^\]|]{1,200})\]", reference)
    return match[1] if match else reference


def _numbers(text: str) -> frozenset[int]:
    """Return the priorities in a list such as ``3,4``."""
    return frozenset(int(part) for part in text.split(",") if part.strip() in set("01234567"))


def _spread(table: Table) -> Iterator[tuple[str, int, Mapping[str, str]]]:
    """Yield port, number and fields of rows such as ``Ethernet0,Ethernet4|3-4``."""
    for key, row in table.items():
        ports, _, numbers = key.replace(":", "|").rpartition("|")
        match = re.fullmatch(r"([0-9]{1,2})(?:-([0-9]{1,2}))?", numbers)
        if match is None:
            continue
        for port in ports.split(","):
            for number in range(int(match[1]), int(match[2] or match[1]) + 1):
                yield port, number, row


def _ports(tables: _Tables) -> dict[str, SwitchPort]:
    settings, applied = tables[KEYS["settings"]], tables[KEYS["ports"]]
    states, heard = tables["redis:STATE_DB PORT_TABLE"], tables[KEYS["lldp"]]
    cables = {port: length for row in tables[KEYS["cables"]].values() for port, length in row.items()}
    qos = _qos(tables)
    ports = {}
    for name in sorted({*settings, *applied}, key=_order):
        if re.fullmatch(r"Ethernet[0-9]{1,5}", name):
            row = {**settings.get(name, {}), **applied.get(name, {})}
            state = states.get(name, {})
            speed = number_in(state.get("speed")) or number_in(row.get("speed"))
            length = _LENGTH.fullmatch(cables.get(name, ""))
            fec = state.get("fec", row.get("fec"))
            ports[name] = SwitchPort(
                name, row.get("alias", ""), speed / 1000 if speed else None, number_in(row.get("mtu")),
                fec if fec in ("rs", "fc", "none") else None,
                _is_up(row.get("admin_status")), _is_up(row.get("oper_status")),
                float(length[1]) if length else None,
                None if "pfc" in tables.gaps else _numbers(qos.get(name, {}).get("pfc_enable", "")),
                _heard(heard.get(name)), len(lanes.split(",")) if (lanes := row.get("lanes")) else None,
                number_in(row.get("subport")),
            )  # fmt: skip
    return ports


def _heard(row: Mapping[str, str] | None) -> Heard | None:
    if row is None:
        return None
    return Heard(*(row.get(f"lldp_rem_{what}", "") for what in ("sys_name", "chassis_id", "port_id", "port_desc")))


def _order(name: str) -> tuple[int, str]:
    number = name.removeprefix("Ethernet")
    return (int(number), "") if number.isdecimal() and len(number) < 6 else (1 << 30, name)


def _is_up(text: str | None) -> bool | None:
    return {"up": True, "down": False}.get(text or "")


def _qos(tables: _Tables) -> dict[str, Mapping[str, str]]:
    """Return the QoS settings by port; one row may apply to several ports."""
    return {port: row for ports, row in tables[KEYS["pfc"]].items() for port in ports.split(",")}


def _maps(tables: _Tables, ports: Iterable[str]) -> Iterator[tuple[str, QosMaps]]:
    qos, common = _qos(tables), _qos(tables).get("global", {})
    named = {
        "dscp_to_tc_map": tables[KEYS["dscp"]], "tc_to_queue_map": tables[KEYS["tc"]],
        "tc_to_pg_map": tables["redis:CONFIG_DB TC_TO_PRIORITY_GROUP_MAP"],
        "pfc_to_queue_map": tables["redis:CONFIG_DB MAP_PFC_PRIORITY_TO_QUEUE"],
    }  # fmt: skip
    read: dict[tuple[str, str], Mapping[int, int] | None] = {}

    def chosen(row: Mapping[str, str], field: str) -> Mapping[int, int] | None:
        name = _named(row.get(field, common.get(field, "")))
        if (field, name) not in read:
            read[field, name] = _map(named[field].get(name, {})) if name else None
        return read[field, name]

    for port in ports:
        yield port, QosMaps(*(chosen(qos.get(port, {}), field) for field in named))


def _map(row: Mapping[str, str]) -> Mapping[int, int]:
    pairs = ((number_in(key), number_in(value)) for key, value in row.items())
    return {key: value for key, value in pairs if key is not None and value is not None}


def _ecn(tables: _Tables) -> Iterator[tuple[tuple[str, int], QueueMarking]]:
    profiles = tables[KEYS["ecn"]]
    for port, queue, row in _spread(tables[KEYS["queues"]]):
        name = _named(row.get("wred_profile", ""))
        if (profile := profiles.get(name)) is not None:
            yield (port, queue), QueueMarking(
                name, profile.get("ecn", "ecn_none") in ("ecn_all", "ecn_green", "ecn_green_yellow", "ecn_green_red"),
                *(number_in(profile.get(f"green_{what}"))
                  for what in ("min_threshold", "max_threshold", "drop_probability")),
            )  # fmt: skip


def _groups(tables: _Tables) -> Iterator[tuple[tuple[str, int], PriorityGroup]]:
    """Yield the priority groups; an applied profile overrides a configured one."""
    profiles = {**tables[KEYS["profiles"]], **tables["redis:APPL_DB BUFFER_PROFILE_TABLE"]}
    for place, row in _group_rows(tables):
        name = re.split(r"[|:]", _named(row.get("profile", "")))[-1]
        profile = profiles.get(name)
        if profile is not None:
            numbers = (_integer(profile.get(what)) for what in ("xoff", "xon", "size", "dynamic_th", "static_th"))
            yield place, PriorityGroup(name, _named(profile.get("pool", "")), *numbers)


def _buffered(tables: _Tables) -> frozenset[tuple[str, int]] | None:
    """Return the ports and groups with a buffer.

    Its profile may be unknown. None if some may not be shown.
    """
    places = frozenset(place for place, _ in _group_rows(tables))
    return None if {"groups", _APPLIED_GROUPS} & set(tables.gaps) else places


def _group_rows(tables: _Tables) -> Iterator[tuple[tuple[str, int], Mapping[str, str]]]:
    """Yield the configured rows, then the applied or computed ones."""
    for table in (tables[KEYS["groups"]], tables[_APPLIED_GROUPS]):
        for port, group, row in _spread(table):
            yield (port, group), row


def _integer(text: str | None) -> int | None:
    negative = text is not None and text.startswith("-")
    number = number_in(text[1:] if text and negative else text)
    return -number if number is not None and negative else number


def _pools(tables: _Tables) -> dict[str, dict[str, int | None]]:
    """Return size and shared headroom of each pool, as applied or configured."""
    rows = {**tables["redis:CONFIG_DB BUFFER_POOL"], **tables[KEYS["pools"]]}
    return {name: {field: number_in(row.get(field)) for field in ("size", "xoff")} for name, row in rows.items()}


def _watchdogs(tables: _Tables) -> Iterator[tuple[str, PfcWatchdog]]:
    for port, row in tables[KEYS["watchdog"]].items():
        if port != "GLOBAL":
            times = (number_in(row.get("detection_time")), number_in(row.get("restoration_time")))
            yield port, PfcWatchdog(row.get("action", ""), *times)


def _polling(tables: _Tables) -> Iterator[tuple[str, int | None]]:
    table = tables[KEYS["polling"]]
    for name, (group, usual) in _POLLED.items():
        row = table.get(name)
        if row is not None:
            on = row.get("FLEX_COUNTER_STATUS", "disable") == "enable"
            yield group, (number_in(row.get("POLL_INTERVAL")) or usual) if on else None


def _marks_counted(tables: _Tables) -> bool | None:
    row = tables["redis:STATE_DB QUEUE_COUNTER_CAPABILITIES"].get("WRED_ECN_QUEUE_ECN_MARKED_PKT_COUNTER")
    return None if row is None else row.get("isSupported") == "true"


def _bgp(tables: _Tables) -> Iterator[tuple[str, BgpSession]]:
    """Yield the configured sessions, and those of dynamic peers.

    Some configurations name the VRF of a session; the states are those of the default VRF, without its name.
    """
    states = tables[KEYS["bgp"]]
    configured = {key.removeprefix("default|"): row for key, row in tables[KEYS["neighbours"]].items()}
    for key in sorted({*configured, *states}):
        row = configured.get(key, {})
        yield key, BgpSession(states.get(key, {}).get("state", ""), row.get("name", ""), _is_up(row.get("admin_status"))
                              is False)  # fmt: skip


def _optics(tables: _Tables) -> Iterator[tuple[str, Optics]]:
    limits = tables[KEYS["thresholds"]]
    for port, row in tables[KEYS["optics"]].items():
        thresholds = {}
        for what, field in (("rx", "rxpower"), ("tx", "txpower"), ("temp", "temp")):
            for side in ("low", "high"):
                for level in ("alarm", "warning"):
                    value = _decimal(limits.get(port, {}).get(f"{field}{side}{level}"))
                    if value is not None:
                        thresholds[f"{what} {side} {level}"] = value
        yield port, Optics(_lanes(row, "rx"), _lanes(row, "tx"), _decimal(row.get("temperature")), thresholds)


def _lanes(row: Mapping[str, str], way: str) -> tuple[float | None, ...]:
    """Return the power of each lane, up to the last lane with a value."""
    values = [_decimal(row.get(f"{way}{lane}power")) for lane in range(1, 9)]
    while values and values[-1] is None:
        values.pop()
    return tuple(values)
