"""One run of a group of nodes: its ends, its GPUs, what was measured."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from preflight.parsers.nccl_tests.model import RankDevice, Report

#: Single nodes that are compared with each other: fewer are a benchmark of each.
_FEWEST_ALONE = 8

#: How a run ended.
RAN, FAILED, UNFINISHED = "ran", "failed", "unfinished"


@dataclass(frozen=True)
class RunEnd:
    """One node of a run."""

    node: str
    gpus: tuple[str, ...] = ()  # PCI addresses of the GPUs with traffic beyond the node
    leaf: str | None = None  # the leaf switch; None where no topology was given


@dataclass(frozen=True)
class RunKind:
    """What makes two runs comparable."""

    collective: str
    ranks: int
    nodes: int
    load: str = ""  # "", "quiet" or "loaded": whether other runs used the same uplinks


@dataclass(frozen=True)
class Observation:
    """One run of a group of nodes."""

    kind: RunKind
    ends: tuple[RunEnd, ...]
    busbw: Mapping[int, float] = field(default_factory=dict)  # bytes -> GB/s, the better half of each row
    outcome: str = RAN
    why: str = ""  # of a run that failed: the first error
    source: str = ""  # the file, or the launch
    uplinks: tuple[str, ...] = ()  # links between switches on its path, where the routes are known

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of its nodes."""
        return tuple(end.node for end in self.ends)

    @property
    def complete(self) -> bool:
        """Whether it came to its end."""
        return self.outcome == RAN


def observations(reports: Mapping[str, Sequence[Report]], leaves: Mapping[str, str] | None = None) -> list[Observation]:
    """Return the runs in reports by source; ``leaves`` is node -> leaf switch.

    Left out are runs of which no list of devices shows where they ran, and those of a binary without MPI. Where a later
    report of one source lacks the list, it ran where the one before it did: one launch, several collectives.
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
    """Return the runs of kinds that were run over several groups of nodes."""
    groups: dict[RunKind, set[frozenset[str]]] = {}
    for run in runs:
        groups.setdefault(run.kind, set()).add(frozenset(run.nodes))
    return [run for run in runs if len(groups[run.kind]) >= (2 if run.kind.nodes > 1 else _FEWEST_ALONE)]


def _groups(
    source: str, report: Report, devices: Sequence[RankDevice], leaves: Mapping[str, str]
) -> Iterator[Observation]:
    """Yield a run, or each communicator of a run that was split."""
    groups: dict[int, list[RankDevice]] = {}
    for device in devices:
        groups.setdefault(device.group, []).append(device)
    outcome, why = _outcome(report)
    if len(groups) > 1:
        return  # the table holds the slowest rank of all of them
    for own in groups.values():
        ends = _ends(report.collective or "", own, leaves)
        kind = RunKind(report.collective or "unnamed", len(own), len(ends))
        yield Observation(kind, ends, _busbw(report), outcome, why, source)


def _outcome(report: Report) -> tuple[str, str]:
    if report.failures:
        return FAILED, report.failures[0].text[:200]
    if not report.finished:
        return UNFINISHED, f"it stopped after {len(report.rows)} sizes" if report.rows else "it stopped before a size"
    return RAN, ""


def _busbw(report: Report) -> dict[int, float]:
    sizes: dict[int, float] = {}
    for row in report.rows:
        values = [half.busbw_gbytes_s for half in row.halves if 0 < half.busbw_gbytes_s < math.inf]
        if row.bytes > 0 and values:
            sizes[row.bytes] = max(values)
    return sizes


def _ends(collective: str, devices: Iterable[RankDevice], leaves: Mapping[str, str]) -> tuple[RunEnd, ...]:
    """Return the nodes of a run by rank, each with the GPUs that send beyond it.

    sendrecv passes data from each rank to the next: of a node's GPUs the first and the last one cross its border.
    """
    hosts: dict[str, list[str]] = {}
    for device in sorted(devices, key=lambda device: device.rank):
        hosts.setdefault(device.host, []).append(device.bus.lower())
    crossing = {host: [own[0], own[-1]] if collective == "sendrecv" else own for host, own in hosts.items()}
    return tuple(RunEnd(host, tuple(dict.fromkeys(crossing[host])), leaves.get(host)) for host in hosts)
