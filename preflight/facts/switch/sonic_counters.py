"""Counters of a SONiC switch, from the records of its COUNTERS_DB.

Sources: sonic-swss (``orchagent/pfcwdorch.cpp``), sonic-utilities (``counterpoll``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from preflight.evidence.document import Record
from preflight.facts.switch.model import Counters, GroupCounters, PortCounters, QosMaps, QueueCounters, SwitchPort
from preflight.facts.switch.values import number_in

_PORTS = ("SAI_PORT_STAT_PFC_{}_RX_PKTS", "SAI_PORT_STAT_PFC_{}_TX_PKTS")
_PAUSED, _ESTIMATED = "SAI_PORT_STAT_PFC_{}_RX_PAUSE_DURATION_US", "EST_PORT_STAT_PFC_{}_RX_PAUSE_DURATION_US"

#: Queues and priority groups of lossless priorities, by port and number. Only these are read, since a fabric has a
#: million queues and groups.
Places = tuple[set[tuple[str, int]], set[tuple[str, int]]]


def judged_queues(ports: Mapping[str, SwitchPort], maps: Mapping[str, QosMaps]) -> Places:
    """Return the queues and groups of the lossless priorities."""
    places = [(name, maps[name], priority) for name, port in ports.items() for priority in port.pfc or ()]
    groups = {(name, group) for name, of, n in places for group in of.groups(n)}
    return {(name, of.queue(n)) for name, of, n in places}, groups


def readings(
    records: Sequence[Record | None], states: Record | None, places: Places
) -> tuple[Counters, Counters | None, float | None]:
    """Return the counters of one or two readings, and the seconds between them.

    ``records`` have the counters of ports, queues and priority groups, ``states`` the number of link changes.
    """
    first = _counters(places, *records, states=states)
    again = [_again(record) for record in records]
    if not any(again):
        return first, None, None
    times = [
        second.at_s - record.at_s
        for record, second in zip(records, again, strict=True)
        if record and second and record.at_s is not None and second.at_s is not None and second.at_s > record.at_s
    ]
    return first, _counters(places, *again, states=_again(states)), min(times) if times else None


def _again(record: Record | None) -> Record | None:
    """Return the second reading of a record; None if it was not read."""
    return record.again if record and record.again and record.again.ok else None


def _counters(
    places: Places, ports: Record | None, queues: Record | None, groups: Record | None, *, states: Record | None
) -> Counters:
    changes = states.value if states and isinstance(states.value, dict) else {}
    return Counters(
        {name: _port_counters(row) for name, row in _rows(ports)},
        {key: _queue_counters(row) for name, row in _rows(queues) if (key := _place(name)) in places[0] and key},
        {key: GroupCounters(row.number("SAI_INGRESS_PRIORITY_GROUP_STAT_DROPPED_PACKETS"),
                            row.number("SAI_INGRESS_PRIORITY_GROUP_STAT_XOFF_ROOM_WATERMARK_BYTES"))
         for name, row in _rows(groups) if (key := _place(name)) in places[1] and key},
        {name: number for name, row in changes.items()
         if isinstance(row, dict) and (number := number_in(row.get("flap_count"))) is not None},
    )  # fmt: skip


class _Row:
    """The counters of one object; a field that it lacks is None."""

    def __init__(self, places: Mapping[str, int], row: list[Any]) -> None:
        self._places, self._row = places, row

    def value(self, field: str) -> Any:
        at = self._places.get(field)
        return self._row[at] if at is not None and at < len(self._row) else None

    def number(self, field: str) -> int | None:
        """Return the number of a field, or None."""
        value = self.value(field)
        return value if isinstance(value, int) and not isinstance(value, bool) else None


def _rows(record: Record | None) -> Iterator[tuple[str, _Row]]:
    value = record.value if record else None
    if not isinstance(value, dict) or not isinstance(value.get("fields"), list):
        return
    places = {str(field): place for place, field in enumerate(value["fields"])}
    rows = value.get("rows")
    for name, row in rows.items() if isinstance(rows, dict) else ():
        if isinstance(row, list):
            yield name, _Row(places, row)


def _place(name: str) -> tuple[str, int] | None:
    port, _, number = name.rpartition(":")
    return (port, int(number)) if port and number.isdecimal() and len(number) < 4 else None


def _port_counters(row: _Row) -> PortCounters:
    paused = tuple(row.number(_PAUSED.format(priority)) for priority in range(8))
    estimated = all(value is None for value in paused)
    if estimated:
        paused = tuple(row.number(_ESTIMATED.format(priority)) for priority in range(8))
    bins = tuple(row.number(f"SAI_PORT_STAT_IF_IN_FEC_CODEWORD_ERRORS_S{symbols}") for symbols in range(16))
    received, sent = (tuple(row.number(field.format(priority)) for priority in range(8)) for field in _PORTS)
    traffic = [row.number(f"SAI_PORT_STAT_IF_{what}") for what in (
        "IN_OCTETS", "OUT_OCTETS", "IN_ERRORS", "OUT_ERRORS", "IN_DISCARDS", "OUT_DISCARDS",
        "IN_FEC_NOT_CORRECTABLE_FRAMES", "IN_FEC_CORRECTABLE_FRAMES")]  # fmt: skip
    in_octets, out_octets, in_errors, out_errors, in_discards, out_discards, uncorrectable, corrected = traffic
    return PortCounters(
        received, sent, paused, estimated and any(value is not None for value in paused), in_octets, out_octets,
        in_errors, out_errors, in_discards, out_discards, uncorrectable, corrected,
        () if all(value is None for value in bins) else bins,
    )  # fmt: skip


def _queue_counters(row: _Row) -> QueueCounters:
    packets, octets, drops, marked, wred_drops, watermark = [row.number(f"SAI_QUEUE_STAT_{what}") for what in (
        "PACKETS", "BYTES", "DROPPED_PACKETS", "WRED_ECN_MARKED_PACKETS", "WRED_DROPPED_PACKETS",
        "SHARED_WATERMARK_BYTES")]  # fmt: skip
    storm = row.value("PFC_WD_STATUS")
    return QueueCounters(
        packets, octets, drops, marked, wred_drops, watermark, storm if isinstance(storm, str) else "",
        row.number("PFC_WD_QUEUE_STATS_DEADLOCK_DETECTED"), row.number("PFC_WD_QUEUE_STATS_DEADLOCK_RESTORED"),
    )  # fmt: skip
