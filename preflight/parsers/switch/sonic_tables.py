"""The tables and fields of SONiC's databases that become records.

This list is closed: users, passwords, SNMP communities and serial numbers are in other tables and fields, and are
never read. Sources: sonic-swss (``orchagent``, ``doc/swss-schema.md``), sonic-utilities (``pfcstat``, ``counterpoll``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from preflight.parsers.switch.redis_dump import Hashes

#: Character between a table and a key of it.
SEPARATOR = {"CONFIG_DB": "|", "STATE_DB": "|", "APPL_DB": ":"}

_LLDP = ("lldp_rem_sys_name", "lldp_rem_port_id", "lldp_rem_port_id_subtype", "lldp_rem_port_desc",
         "lldp_rem_chassis_id")  # fmt: skip
_THRESHOLDS = tuple(f"{what}{side}{level}" for what in ("rxpower", "temp") for side in ("high", "low")
                    for level in ("alarm", "warning"))  # fmt: skip

#: Fields by database and table; no field: all of them.
TABLES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "CONFIG_DB": {
        "DEVICE_METADATA": ("hostname", "hwsku", "platform", "type", "mac"),
        "PORT": ("alias", "speed", "mtu", "fec", "admin_status"),
        "PORT_QOS_MAP": ("dscp_to_tc_map", "tc_to_queue_map", "tc_to_pg_map", "pfc_to_queue_map", "pfc_enable",
                         "pfcwd_sw_enable"),
        "DSCP_TO_TC_MAP": (),
        "TC_TO_QUEUE_MAP": (),
        "TC_TO_PRIORITY_GROUP_MAP": (),
        "MAP_PFC_PRIORITY_TO_QUEUE": (),
        "QUEUE": ("wred_profile",),
        "WRED_PROFILE": ("ecn", "green_min_threshold", "green_max_threshold", "green_drop_probability"),
        "BUFFER_POOL": ("type", "mode", "size", "xoff"),
        "BUFFER_PROFILE": ("pool", "xon", "xoff", "size", "dynamic_th", "static_th"),
        "BUFFER_PG": ("profile",),
        "CABLE_LENGTH": (),
        "PFC_WD": ("action", "detection_time", "restoration_time", "POLL_INTERVAL"),
        "FLEX_COUNTER_TABLE": ("FLEX_COUNTER_STATUS", "POLL_INTERVAL"),
    },
    "APPL_DB": {
        "PORT_TABLE": ("alias", "speed", "mtu", "fec", "oper_status", "admin_status", "flap_count"),
        "LLDP_ENTRY_TABLE": _LLDP,
        "BUFFER_PROFILE_TABLE": ("pool", "xon", "xoff", "size", "dynamic_th", "static_th"),
        "BUFFER_PG_TABLE": ("profile",),
    },
    "STATE_DB": {
        "PORT_TABLE": ("speed", "fec"),
        "QUEUE_COUNTER_CAPABILITIES": ("isSupported",),
        "TRANSCEIVER_DOM_SENSOR": ("temperature", *(f"rx{lane}power" for lane in range(1, 9))),
        "TRANSCEIVER_DOM_THRESHOLD": _THRESHOLDS,
    },
}  # fmt: skip

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

#: Record of counters -> the hash that maps names to objects, and the fields of an object.
COUNTERS = {
    "ports": ("COUNTERS_PORT_NAME_MAP", _PORT_FIELDS),
    "queues": ("COUNTERS_QUEUE_NAME_MAP", _QUEUE_FIELDS),
    "pgs": ("COUNTERS_PG_NAME_MAP", _PG_FIELDS),
}

#: Queues and priority groups of a port that are read: those of unicast traffic.
_MOST_QUEUES = 8


def records(database: str, hashes: Hashes) -> Iterator[tuple[str, Any]]:
    """Yield the record keys of one database with their values.

    An absent table is an empty record: the complete database was read.
    """
    if database == "COUNTERS_DB":
        for what, (names, fields) in COUNTERS.items():
            yield f"redis:COUNTERS_DB {what}", _counters(hashes.get(names, {}), fields, hashes)
        return
    separator, tables = SEPARATOR[database], TABLES[database]
    values: dict[str, dict[str, dict[str, str]]] = {table: {} for table in tables}
    for key, entry in hashes.items():
        table, _, name = key.partition(separator)
        if table in tables:
            wanted = tables[table]
            values[table][name] = {field: text for field, text in entry.items() if not wanted or field in wanted}
    for table, value in values.items():
        yield f"redis:{database} {table}", value


def _counters(names: Mapping[str, str], fields: tuple[str, ...], hashes: Hashes) -> dict[str, Any]:
    """Return the counters of ports or queues: the present fields, a row for each name.

    Numbers are integers, a field that an object lacks is None.
    """
    objects = {name: hashes.get(f"COUNTERS:{oid}", {}) for name, oid in names.items() if _is_read(name)}
    held = set().union(*objects.values()) if objects else set()
    present = [field for field in fields if field in held]
    rows = {name: [_number(entry.get(field)) for field in present] for name, entry in objects.items()}
    return {"fields": present, "rows": rows}


def _is_read(name: str) -> bool:
    """Return whether a port, a queue or a priority group becomes a row."""
    port, _, number = name.partition(":")
    if not (port.startswith("Ethernet") and port[8:].isdecimal()):
        return False
    return not number or (number.isdecimal() and len(number) < 4 and int(number) < _MOST_QUEUES)


def _number(text: str | None) -> int | str | None:
    if text is None or text == "N/A":
        return None
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 21 else text[:60]
