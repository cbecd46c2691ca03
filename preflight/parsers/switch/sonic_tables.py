"""The tables and fields of SONiC's databases that are read into records.

Nothing outside this list is read. Users, passwords, SNMP communities and serial numbers are in other tables and fields.
Sources: sonic-swss (``orchagent``, ``doc/swss-schema.md``), sonic-utilities (``pfcstat``, ``counterpoll``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from preflight.collector import redis_rows
from preflight.parsers.switch.redis_dump import Hashes

#: Database -> separator between the name of a table and the rest of a key.
SEPARATOR = {"CONFIG_DB": "|", "STATE_DB": "|", "APPL_DB": ":"}

_LLDP = ("lldp_rem_sys_name", "lldp_rem_port_id", "lldp_rem_port_id_subtype", "lldp_rem_port_desc",
         "lldp_rem_chassis_id")  # fmt: skip
_THRESHOLDS = tuple(f"{what}{side}{level}" for what in ("rxpower", "txpower", "temp") for side in ("high", "low")
                    for level in ("alarm", "warning"))  # fmt: skip

#: Database -> table -> purpose and fields that are read; no fields means all of them.
TABLES: Mapping[str, Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "CONFIG_DB": {
        "DEVICE_METADATA": (
            "name, model and address of the switch",
            ("hostname", "hwsku", "platform", "type", "mac"),
        ),
        "PORT": (
            "configured speed, MTU, FEC and lanes",
            ("alias", "speed", "mtu", "fec", "admin_status", "lanes", "subport"),
        ),
        "PORT_QOS_MAP": (
            "priorities with PFC, and the maps of each port",
            ("dscp_to_tc_map", "tc_to_queue_map", "tc_to_pg_map", "pfc_to_queue_map", "pfc_enable", "pfcwd_sw_enable"),
        ),
        "DSCP_TO_TC_MAP": ("traffic class of each DSCP", ()),
        "TC_TO_QUEUE_MAP": ("queue of each traffic class", ()),
        "TC_TO_PRIORITY_GROUP_MAP": ("ingress buffer of each traffic class", ()),
        "MAP_PFC_PRIORITY_TO_QUEUE": ("queue that a PFC priority pauses", ()),
        "QUEUE": ("ECN profile of each queue", ("wred_profile",)),
        "WRED_PROFILE": (
            "ECN thresholds",
            ("ecn", "green_min_threshold", "green_max_threshold", "green_drop_probability"),
        ),
        "BUFFER_POOL": ("sizes of the buffer pools", ("type", "mode", "size", "xoff")),
        "BUFFER_PROFILE": ("sizes of the buffers", ("pool", "xon", "xoff", "size", "dynamic_th", "static_th")),
        "BUFFER_PG": ("buffer of each priority group", ("profile",)),
        "CABLE_LENGTH": ("declared length of each cable", ()),
        "BGP_NEIGHBOR": ("configured BGP sessions", ("name", "admin_status")),
        "PFC_WD": ("PFC watchdog", ("action", "detection_time", "restoration_time", "POLL_INTERVAL")),
        "FLEX_COUNTER_TABLE": ("polled counters and intervals", ("FLEX_COUNTER_STATUS", "POLL_INTERVAL")),
    },
    "APPL_DB": {
        "PORT_TABLE": (
            "state, speed, MTU and flaps of each port",
            ("alias", "speed", "mtu", "fec", "oper_status", "admin_status", "flap_count"),
        ),
        "LLDP_ENTRY_TABLE": ("neighbour of each port", _LLDP),
        "BUFFER_POOL_TABLE": ("applied sizes of the buffer pools", ("type", "mode", "size", "xoff")),
        "SWITCH_TABLE": ("seed of the hash that spreads flows", ("ecmp_hash_seed",)),
        "BUFFER_PROFILE_TABLE": (
            "applied sizes of the buffers",
            ("pool", "xon", "xoff", "size", "dynamic_th", "static_th"),
        ),
        "BUFFER_PG_TABLE": ("applied buffer of each priority group", ("profile",)),
    },
    "STATE_DB": {
        "PORT_TABLE": ("speed and FEC of each link", ("speed", "fec")),
        "QUEUE_COUNTER_CAPABILITIES": ("whether ECN marks are counted", ("isSupported",)),
        "NEIGH_STATE_TABLE": ("state of each BGP session", ("state",)),
        "TRANSCEIVER_DOM_SENSOR": (
            "light and temperature of each module",
            ("temperature", *(f"{way}{lane}power" for way in ("rx", "tx") for lane in range(1, 9))),
        ),
        "TRANSCEIVER_DOM_THRESHOLD": ("thresholds in the memory of each module", _THRESHOLDS),
    },
}  # fmt: skip

#: Tables with counters, which are read again at the end of a window.
TWICE = {("APPL_DB", "PORT_TABLE")}

_PORT = "SAI_PORT_STAT_"
_PORT_FIELDS = (
    *(f"{_PORT}IF_{way}_{what}" for what in ("OCTETS", "ERRORS", "DISCARDS") for way in ("IN", "OUT")),
    *(f"{_PORT}PFC_{priority}_{way}_PKTS" for way in ("RX", "TX") for priority in range(8)),
    *(f"{_PORT}PFC_{priority}_RX_PAUSE_DURATION_US" for priority in range(8)),
    *(f"EST_PORT_STAT_PFC_{priority}_RX_PAUSE_DURATION_US" for priority in range(8)),
    f"{_PORT}IF_IN_FEC_CORRECTABLE_FRAMES",
    f"{_PORT}IF_IN_FEC_NOT_CORRECTABLE_FRAMES",
    *(f"{_PORT}IF_IN_FEC_CODEWORD_ERRORS_S{symbols}" for symbols in range(16)),
)
_QUEUE = "SAI_QUEUE_STAT_"
_QUEUE_FIELDS = (
    *(f"{_QUEUE}{what}" for what in ("PACKETS", "BYTES", "DROPPED_PACKETS", "SHARED_WATERMARK_BYTES",
                                     "WRED_ECN_MARKED_PACKETS", "WRED_DROPPED_PACKETS")),
    "PFC_WD_STATUS", "PFC_WD_QUEUE_STATS_DEADLOCK_DETECTED", "PFC_WD_QUEUE_STATS_DEADLOCK_RESTORED",
)  # fmt: skip
_PG = "SAI_INGRESS_PRIORITY_GROUP_STAT_"
_PG_FIELDS = (f"{_PG}DROPPED_PACKETS", f"{_PG}XOFF_ROOM_WATERMARK_BYTES")

#: Record of counters -> purpose, hash that maps names to objects, and fields of each object.
COUNTERS = {
    "ports": ("bytes, errors, pauses and FEC of each port", "COUNTERS_PORT_NAME_MAP", _PORT_FIELDS),
    "queues": ("packets, drops, ECN marks and PFC watchdog of each queue", "COUNTERS_QUEUE_NAME_MAP", _QUEUE_FIELDS),
    "pgs": ("drops and headroom of each priority group", "COUNTERS_PG_NAME_MAP", _PG_FIELDS),
}


_NAMES = (*(table for tables in TABLES.values() for table in tables), *(names for _, names, _ in COUNTERS.values()))


def may_be_dump(text: str) -> bool:
    """Return whether a text may be a dump; this is cheaper than decoding it."""
    return text.lstrip()[:1] == "{" and any(f'"{name}' in text for name in _NAMES)


def database(hashes: Hashes) -> str | None:
    """Return the database that a dump's keys belong to; None if none or several fit."""
    fitting = [
        name
        for name, tables in TABLES.items()
        if any(SEPARATOR[name] in key and key.partition(SEPARATOR[name])[0] in tables for key in hashes)
    ]
    if any(names in hashes for _, names, _ in COUNTERS.values()):
        fitting.append("COUNTERS_DB")
    return fitting[0] if len(fitting) == 1 else None


def records(database: str, hashes: Hashes) -> Iterator[tuple[str, Any]]:
    """Yield the keys and values of the records of one database.

    A dump contains the complete database, so an absent table becomes an empty record.
    """
    if database == "COUNTERS_DB":
        for what, (_, names, fields) in COUNTERS.items():
            objects = {name: hashes.get(f"COUNTERS:{oid}", {}) for name, oid in hashes.get(names, {}).items()}
            rows = {name: [entry.get(field) for field in fields] for name, entry in objects.items()
                    if redis_rows.is_read(name)}  # fmt: skip
            yield f"redis:COUNTERS_DB {what}", redis_rows.counters(fields, rows)
        return
    separator, tables = SEPARATOR[database], TABLES[database]
    values: dict[str, dict[str, dict[str, str]]] = {table: {} for table in tables}
    for key, entry in hashes.items():
        table, _, name = key.partition(separator)
        if table in tables:
            values[table][name] = redis_rows.chosen(entry, tables[table][1])
    for table, value in values.items():
        yield f"redis:{database} {table}", redis_rows.table(value)
