"""Benchmark runs on groups of nodes: their ends, GPUs and measurements."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

from preflight.parsers.nccl_tests import collective

if TYPE_CHECKING:
    from preflight.parsers.nccl_tests.model import Measurement, RankDevice, Report

#: Minimum number of nodes for a comparison of their single-node runs.
_FEWEST_ALONE = 8

#: Bandwidth below which two decimals are too coarse, and tolerance of a recomputed bandwidth, in GB/s.
_PRECISE, _ROUNDING = 1.0, 0.011

#: Outcomes of a run.
RAN, FAILED, UNFINISHED, WRONG = "ran", "failed", "unfinished", "wrong"

#: Loads of runs between leaves: a pair has the uplinks to itself, or all nodes of the leaves run at once.
QUIET, SHARED = "quiet", "loaded"


@dataclass(frozen=True)
class RunEnd:
    """One node of a run."""

    node: str
    gpus: tuple[str, ...] = ()  # PCI addresses of the GPUs with traffic beyond the node
    leaf: str | None = None  # leaf switch; None if no topology was given


@dataclass(frozen=True)
class RunKind:
    """The properties that runs must have in common to be comparable."""

    collective: str
    ranks: int
    nodes: int
    load: str = ""  # QUIET or SHARED; empty within a leaf, or if leaves are unknown


@dataclass(frozen=True)
class Observation:
    """One benchmark run on a group of nodes."""

    kind: RunKind
    ends: tuple[RunEnd, ...]
    busbw: Mapping[int, float] = field(default_factory=dict)  # bytes -> GB/s of the better half
    outcome: str = RAN
    why: str = ""  # first error of a failed run
    source: str = ""  # file or launch from which it was read
    models: tuple[str, ...] = ()  # GPU models, each once; empty if unknown
    uplinks: tuple[str, ...] = ()  # links between switches on its path, if the routes are known

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of the nodes."""
        return tuple(end.node for end in self.ends)

    @property
    def complete(self) -> bool:
        """Whether the run completed."""
        return self.outcome == RAN


@dataclass(frozen=True)
class PairTimes:
    """Times of single iterations between two nodes, for one message size."""

    collective: str
    ranks: int
    nodes: tuple[str, ...]
    bytes: int
    iterations: int
    middle_us: float  # median; mean if the output has no median
    p99_us: float
    source: str


def pair_times(reports: Mapping[str, Sequence[Report]]) -> list[PairTimes]:
    """Return the times of single iterations of all pairs of nodes, by size.

    A launch with several communicators needs the times of every process, which the JSON output of ``-I`` has.
    """
    return [
        times for source, own in reports.items() for report in own
        if report.copies == 1 and outcome_of(report)[0] == RAN for times in _pair_times(source, report)
    ]  # fmt: skip


def _pair_times(source: str, report: Report) -> Iterator[PairTimes]:
    places: dict[int, list[int]] = {}
    for place, device in enumerate(report.devices):
        places.setdefault(device.group, []).append(place)
    for own in places.values():
        nodes = tuple(dict.fromkeys(report.devices[place].host for place in own))
        if len(nodes) != 2:
            continue
        for row in report.rows:
            halves = [half for half in row.halves if half.iterations is not None]
            measured = [_percentiles(report, half, own, len(places)) for half in halves]
            complete = [times for times in measured if times is not None]
            if complete and len(complete) == len(measured):
                count, middle, p99 = max(complete, key=lambda times: times[2] / times[1])
                yield PairTimes(report.collective or "unnamed", len(own) * report.gpus_per_device, nodes, row.bytes,
                                count, middle, p99, source)  # fmt: skip


def _percentiles(report: Report, half: Measurement, own: Sequence[int], groups: int) -> tuple[int, float, float] | None:
    """Return (number of iterations, median µs, 99th percentile µs), or None."""
    times = half.iterations
    if times is None:
        return None
    each = _slowest_times(half, own, len(report.devices)) if groups > 1 else list(times.times_us)
    if each:
        middle, p99 = median(each), sorted(each)[math.ceil(0.99 * len(each)) - 1]
        return (len(each), middle, p99) if middle > 0 else None
    if groups > 1 or times.p99_us is None or report.iterations is None:
        return None
    middle = times.p50_us or half.time_us
    return (report.iterations, middle, times.p99_us) if 0 < middle < math.inf else None


def observations(reports: Mapping[str, Sequence[Report]], leaves: Mapping[str, str] | None = None) -> list[Observation]:
    """Return the runs in reports by source; ``leaves`` maps a node to its leaf.

    Runs without a device list are left out, because their nodes are unknown, and so are runs of a binary without MPI.
    If a later report of the same source lacks the list, it is from the same launch, and has the nodes of the previous
    one.
    """
    runs: list[Observation] = []
    for source, own in reports.items():
        devices: tuple[RankDevice, ...] = ()
        for report in own:
            if report.devices and report.nranks is not None:
                devices = report.devices
            elif not devices:
                continue
            if report.copies == 1:
                runs += _groups(source, report, devices, leaves or {})
    return runs


def comparable(runs: Sequence[Observation]) -> list[Observation]:
    """Return the runs of each kind that ran on enough different groups of nodes."""
    groups: dict[RunKind, set[frozenset[str]]] = {}
    for run in runs:
        groups.setdefault(run.kind, set()).add(frozenset(run.nodes))
    return [run for run in runs if len(groups[run.kind]) >= (2 if run.kind.nodes > 1 else _FEWEST_ALONE)]


def group_runs(report: Report) -> list[Observation]:
    """Return the runs of a report's communicators whose times are known."""
    return list(_groups("", report, report.devices, {}))


def _groups(
    source: str, report: Report, devices: Sequence[RankDevice], leaves: Mapping[str, str]
) -> Iterator[Observation]:
    """Yield the run, or the communicators of a split run if their times are known."""
    groups: dict[int, list[RankDevice]] = {}
    for device in devices:
        groups.setdefault(device.group, []).append(device)
    outcome, why = outcome_of(report)
    if len(groups) > 1 and outcome != RAN:
        return  # the report does not show which of the communicators failed
    rates = _group_rates(report, devices) if len(groups) > 1 else {}
    for group, own in groups.items():
        ends = ends_of(report.collective or "", own, leaves, report.gpus_per_device)
        kind = RunKind(report.collective or "unnamed", len(own) * report.gpus_per_device, len(ends))
        busbw = rates.get(group) if len(groups) > 1 else busbw_of(report)
        if busbw is not None:
            yield Observation(kind, ends, busbw, outcome, why, source, models_of(own))


def _group_rates(report: Report, devices: Sequence[RankDevice]) -> dict[int, dict[int, float]]:
    """Return the bandwidth in GB/s of each communicator of a split run, by size.

    A row of the table combines all communicators. The JSON output of ``-I`` also has the times of each process, of
    which the slowest one determines the rate of a communicator. Empty unless the report has the times of every process.
    """
    groups = {device.group for device in devices}
    places = {group: [place for place, device in enumerate(devices) if device.group == group] for group in groups}
    rates: dict[int, dict[int, float]] = {}
    for group, own in places.items():
        share = collective.factor(report.collective or "", len(own) * report.gpus_per_device)
        sizes: dict[int, float] = {}
        for row in report.rows:
            times = [time for half in row.halves if (time := _slowest(half, own, len(devices))) is not None]
            if share and row.bytes > 0 and times:
                sizes[row.bytes] = row.bytes / min(times) / 1e3 * share
        rates[group] = sizes
    return rates if all(rates.values()) else {}


def _slowest(half: Measurement, processes: Sequence[int], count: int) -> float | None:
    """Return the mean over iterations of the slowest process's time, µs, or None."""
    slowest = _slowest_times(half, processes, count)
    return sum(slowest) / len(slowest) if slowest else None


def _slowest_times(half: Measurement, processes: Sequence[int], count: int) -> list[float]:
    """Return the time in µs of the slowest process in each iteration; may be empty."""
    rows = half.iterations.processes if half.iterations is not None else ()
    lengths = {len(row) for row in rows}
    if len(rows) != count or len(lengths) != 1:
        return []
    return [max(times) for times in zip(*(rows[place] for place in processes), strict=True)]


def outcome_of(report: Report) -> tuple[str, str]:
    """Return the outcome of a run, and the reason if it failed.

    Wrong values take precedence, since the rates of such a run are meaningless.
    """
    if report.wrong_rows or report.out_of_bounds_ok is False:
        sizes = ", ".join(f"{row.bytes:,}" for row in report.wrong_rows[:4])
        return WRONG, f"wrong values at {sizes} bytes" if sizes else "wrong values"
    if report.failures:
        return FAILED, report.failures[0].text[:200]
    if not report.finished:
        after = f"after {len(report.rows)} sizes" if report.rows else "before the first size"
        return UNFINISHED, f"it stopped {after}"
    return RAN, ""


def models_of(devices: Iterable[RankDevice]) -> tuple[str, ...]:
    """Return the GPU models, each once, sorted."""
    return tuple(sorted({device.name for device in devices if device.name}))


def busbw_of(report: Report) -> dict[int, float]:
    """Return the bandwidth of the better half by size, in GB/s.

    nccl-tests prints two decimals, so a low bandwidth is computed from the time.
    """
    sizes: dict[int, float] = {}
    share = collective.factor(report.collective or "", report.nranks or 0) if report.nranks else None
    for row in report.rows:
        values = [_precise(row.bytes, half, share) for half in row.halves if 0 <= half.busbw_gbytes_s < math.inf]
        values = [value for value in values if value > 0]
        if row.bytes > 0 and values:
            sizes[row.bytes] = max(values)
    return sizes


def _precise(size: int, half: Measurement, share: float | None) -> float:
    printed = half.busbw_gbytes_s
    if share is None or printed >= _PRECISE or not 0 < half.time_us < math.inf:
        return printed
    computed = size / half.time_us / 1e3 * share
    return computed if abs(computed - printed) <= _ROUNDING else printed


def ends_of(
    name: str, devices: Iterable[RankDevice], leaves: Mapping[str, str], gpus_per_device: int = 1
) -> tuple[RunEnd, ...]:
    """Return the nodes of a run in rank order, each with its GPUs that send off-node.

    sendrecv passes data from each rank to the next, so only the first and the last GPU of a node exchange data
    with other nodes. If only the first of several GPUs is listed, no GPUs are returned.
    """
    hosts: dict[str, list[str]] = {}
    for device in sorted(devices, key=lambda device: device.rank):
        hosts.setdefault(device.host, []).append(device.bus.lower())
    crossing = {host: [own[0], own[-1]] if name == "sendrecv" else own for host, own in hosts.items()}
    if gpus_per_device > 1:
        return tuple(RunEnd(host, (), leaves.get(host)) for host in hosts)
    return tuple(RunEnd(host, tuple(dict.fromkeys(crossing[host])), leaves.get(host)) for host in hosts)
