"""Readings of RDMA port error counters before and after a round."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from preflight._startup.lightclass import replace
from preflight.bench.port_readings import GrownCounter, NodeReading, PortReading
from preflight.evidence.document import Evidence, EvidenceError
from preflight.facts.campaign_ports import ERRORS
from preflight.facts.counter_growth import PortGrowth
from preflight.facts.node import NodeFacts
from preflight.facts.rdma_ports import ROOT, is_software
from preflight.probes.node import PROBES
from preflight.probes.probe import Probe

#: Records of the clock and of the counters, which are read before and after a round.
_CLOCK = "file:/proc/uptime"
_COUNTERS = (f"files:{ROOT}/", "cmd:ethtool -S ", "file:/sys/class/net/")

#: Keys of the probes that read the ports and their counters.
_PROBES = (
    f"dir:{ROOT}",
    f"dir:{ROOT}/*/ports",
    f"dir:{ROOT}/*/device/net",
    f"file:{ROOT}/*/ports/*/{{state,phys_state,rate,link_layer,lid,sm_lid,gid_attrs/ndevs/0}}",
    f"files:{ROOT}/*/ports/*/{{counters,hw_counters}}",
    "cmd:ethtool -S {}",
    "file:/sys/class/net/*/carrier_changes",
)

#: Start of a record's key -> source of the counter.
_SOURCES = {"cmd:": "ethtool", "file:": "carrier"}


def port_probes() -> list[Probe]:
    """Return the probes for the ports, their counters and the clock."""
    by_key = {probe.key: probe for probe in PROBES}
    return [*(by_key[key] for key in _PROBES), Probe("file", "/proc/uptime", "time between two readings")]


def reading(number: int, before: Evidence | None, after: Evidence) -> NodeReading:
    """Return the errors that a node's ports counted, or the reason if unknown."""
    made = NodeReading(number, after.node)
    if before is None or before.no_answer is not None or after.no_answer is not None:
        silent = after.no_answer or (before.no_answer if before else None) or {}
        return replace(made, why=f"no answer: {silent.get('reason', 'not read before the round')}"[:300])
    try:
        node = NodeFacts(_joined(before, after))
        ports = tuple(
            _port(growth) for growth in node.port_growth.values()
            if not is_software(node.evidence, growth.port.device)
        )  # fmt: skip
    except EvidenceError as error:
        return replace(made, why=str(error)[:300])
    return replace(made, ports=ports)


def _port(growth: PortGrowth) -> PortReading:
    grown = tuple(
        GrownCounter(_source(each.key), each.counter.name, each.before, each.after) for each in growth.grown(*ERRORS)
    )
    unread = [str(error) for error in growth.refused.values()]
    unread += [f"{each.counter.name} {each.why}" for each in growth.unclear if each.counter.kind in ERRORS]
    return PortReading(growth.port.device, growth.port.number, round(growth.seconds, 3), growth.packets, grown,
                       "; ".join(unread)[:300])  # fmt: skip


def _source(key: str) -> str:
    return next((source for start, source in _SOURCES.items() if key.startswith(start)), key.rpartition("/")[2])


def _joined(before: Evidence, after: Evidence) -> Evidence:
    """Return evidence with both readings of each counter. Raises EvidenceError."""
    began, ended = _uptime(before), _uptime(after)
    records: dict[str, Any] = {**after.records}
    for key, second in _counters(after):
        with contextlib.suppress(EvidenceError):
            if before.record(key).ok and isinstance(second, Mapping):
                records[key] = {**before.records[key], "at_s": began, "again": {**second, "at_s": ended}}
    return replace(after, records=records)


def _counters(evidence: Evidence) -> Iterator[tuple[str, Any]]:
    yield from ((key, raw) for key, raw in evidence.records.items() if key.startswith(_COUNTERS))


def _uptime(evidence: Evidence) -> float:
    try:
        return float(evidence.text(_CLOCK).split()[0])
    except (ValueError, IndexError):
        raise EvidenceError(_CLOCK, "is not a time") from None
