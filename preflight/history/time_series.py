"""Metrics with a trend: errors, spare rows, thermal headroom, congestion."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, overload

from preflight._startup.lightclass import dataclass, replace
from preflight.evidence.document import COURSE, NODE, Evidence, EvidenceError
from preflight.facts import counter_growth
from preflight.facts.node import NodeFacts
from preflight.facts.nvidia import link_errors
from preflight.facts.time_series import JOBS
from preflight.history.store import HistoryStore
from preflight.parsers.network import ethtool_module

#: Days of history by which a node's trend is judged.
LOOK_BACK_DAYS = 30

#: Recorded fields of a GPU's health, and counters of a port.
_GPU = (
    "ecc_aggregate_sram_corrected", "ecc_aggregate_dram_corrected", "remapped_corrected", "remapped_uncorrected",
    "temperature_margin_c", "pcie_replays",
)  # fmt: skip
_PORT = ("symbol_error", "link_error_recovery", "link_downed")

#: Counters of a port's traffic and congestion.
_TRAFFIC = (
    "port_rcv_packets", "port_xmit_packets", "port_rcv_data", "port_xmit_data", "port_xmit_wait",
    "np_ecn_marked_roce_packets", "rp_cnp_handled",
)  # fmt: skip
_PAUSED_US = "_pause_duration"

Course = Mapping[tuple[str, str], Sequence[tuple[str, float]]]

_FORM = "%Y-%m-%dT%H:%M:%SZ"


def samples(node: NodeFacts) -> Iterator[tuple[str, str, float]]:
    """Yield the name, subject and value of each metric; missing values are left out."""
    yield from _of_gpus(node)
    yield from _of_ports(node)


def _of_gpus(node: NodeFacts) -> Iterator[tuple[str, str, float]]:
    try:
        gpus = node.gpu_health.gpus if node.gpus_on_bus else ()
    except EvidenceError:
        return
    for gpu in gpus:
        for field in _GPU:
            if (value := getattr(gpu, field)) is not None:
                yield f"gpu.{field}", gpu.uuid or gpu.address, float(value)
    try:
        counts = link_errors.totals(node.evidence)
    except EvidenceError:
        return
    for uuid, links in counts.items():
        if links:
            yield "gpu.nvlink_errors", uuid, float(sum(sum(kinds.values()) for kinds in links.values()))


def _of_ports(node: NodeFacts) -> Iterator[tuple[str, str, float]]:
    try:
        ports = node.rdma_ports
    except EvidenceError:
        return
    for port in ports:
        read = counter_growth.totals(node.evidence, port)
        for name in (*_PORT, *_TRAFFIC):
            if name in read:
                yield f"port.{name}", port.name, float(read[name])
        for way in ("rx", "tx"):
            paused = [number for name, number in read.items() if name.startswith(way) and name.endswith(_PAUSED_US)]
            if paused:  # priorities are paused at the same time, so their times are not added
                yield f"port.{way}_paused_us", port.name, float(max(paused))
        try:
            link = node.parsed(f"cmd:mlxlink -d {port.device} -m -c", ethtool_module.parse_mlxlink)
        except EvidenceError:
            continue
        if link.raw_ber is not None:
            yield "port.raw_ber", port.name, link.raw_ber


class Remembered(Sequence[Evidence]):
    """Documents with the history of their metrics (``history:course``), read lazily."""

    remembered = True

    def __init__(self, sources: Sequence[_Known], large: bool = False) -> None:
        self.sources = sources
        self.large = large

    def __len__(self) -> int:
        return len(self.sources)

    @overload
    def __getitem__(self, place: int) -> Evidence: ...
    @overload
    def __getitem__(self, place: slice) -> Remembered: ...
    def __getitem__(self, place: int | slice) -> Evidence | Remembered:
        if isinstance(place, slice):
            return Remembered(self.sources[place], self.large)
        return self.sources[place].read()


@dataclass(frozen=True)
class _Known:
    """A document, and the history of its node."""

    source: Any  # Evidence, or its reader
    courses: Mapping[str, Course]
    jobs: Mapping[str, Sequence[tuple[str, float]]]

    @property
    def kind(self) -> str:
        """The kind of the document."""
        return str(self.source.kind)

    @property
    def bytes(self) -> int:
        """The document's size in memory in bytes; 0 if unknown."""
        return int(getattr(self.source, "bytes", 0))

    def read(self) -> Evidence:
        """Return the evidence with its history up to the time of collection."""
        evidence = self.source if isinstance(self.source, Evidence) else self.source.read()
        if evidence.no_answer is not None or not evidence.records or evidence.kind != NODE:
            return evidence
        value: dict[str, dict[str, Any]] = {}
        for (metric, subject), points in self.courses.get(evidence.node, {}).items():
            if before := [list(point) for point in points if point[0] < evidence.collected_at]:
                value.setdefault(metric, {})[subject] = before
        for metric, subject, last in samples(NodeFacts(evidence)):
            value.setdefault(metric, {}).setdefault(subject, []).append([evidence.collected_at, last])
        for name, ended in self.jobs.items():
            if before := [list(point) for point in ended if point[0] < evidence.collected_at]:
                value.setdefault(JOBS, {})[name] = before
        return replace(evidence, records={**evidence.records, COURSE: {"status": "ok", "value": value}})


def with_past(evidences: Sequence[Evidence], store: HistoryStore) -> Remembered:
    """Return the documents with their metrics of the last thirty days."""
    sources, large = getattr(evidences, "sources", evidences), getattr(evidences, "large", False)
    jobs: dict[str, list[tuple[str, float]]] = {}
    for _, ended, seconds, nodes, name, outcome in reversed(store.jobs()):
        if outcome == "completed":
            jobs.setdefault(f"{name} on {nodes} nodes" if nodes else name, []).append((ended, seconds))
    newest = max((run.at for run in store.runs()), default="")
    try:
        moment = datetime.strptime(newest, _FORM).replace(tzinfo=timezone.utc)
    except ValueError:
        return Remembered([_Known(source, {}, jobs) for source in sources], large)
    since = (moment - timedelta(days=LOOK_BACK_DAYS)).strftime(_FORM)
    courses = store.course(since)
    return Remembered([_Known(source, _of(source, courses), jobs) for source in sources], large)


def _of(source: Any, courses: Mapping[str, Course]) -> Mapping[str, Course]:
    """Return the history of this document's node only, for the judging process."""
    return {source.node: courses[source.node]} if source.node in courses else {}
