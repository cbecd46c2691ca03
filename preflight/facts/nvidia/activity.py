"""Activity of SMs and tensor cores, as DCGM measures it while a job runs.

Sources: ``dcgmi dmon -e 1002,1004`` and dcgm-exporter. Field identifiers: DCGM's API reference, profiling fields.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import mean

from preflight._startup.lightclass import dataclass
from preflight.parsers.nvidia import dcgm_metrics, monitor_rows
from preflight.parsers.nvidia.dcgm_metrics import DcgmMetrics
from preflight.parsers.nvidia.monitor_rows import MonitorRow
from preflight.textprep.lines import Lines, lines_of
from preflight.textprep.numbered_text import NumberedText


@dataclass(frozen=True)
class GpuActivity:
    """Mean activity of one GPU, from 0 to 1; ``tensor`` is None if not measured."""

    gpu: str
    readings: int
    sm: float
    tensor: float | None


def of_metrics(metrics: DcgmMetrics) -> list[GpuActivity]:
    """Return the activity in one scrape; DCGM averages over its own interval."""
    gpus = []
    for gpu in metrics.gpus:
        sm = gpu.values.get("DCGM_FI_PROF_SM_ACTIVE")
        if sm is not None and 0 <= sm <= 1:
            name = f"GPU{gpu.index}" if gpu.index >= 0 else gpu.uuid
            tensor = gpu.values.get("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE")
            gpus.append(GpuActivity(f"{gpu.host} {name}".strip(), 1, sm, tensor))
    return gpus


def of_rows(rows: Iterable[MonitorRow]) -> list[GpuActivity]:
    """Return the mean activity of each GPU in the readings of ``dcgmi dmon``."""
    readings = ((f"GPU{row.gpu}", _share(row, "smact"), _share(row, "tenso")) for row in rows)
    return _means((gpu, sm, tensor) for gpu, sm, tensor in readings if sm is not None)


def _share(row: MonitorRow, column: str) -> float | None:
    value = row.values.get(column)
    return value if isinstance(value, float) and 0 <= value <= 1 else None


def _means(readings: Iterable[tuple[str, float, float | None]]) -> list[GpuActivity]:
    """Return each GPU once, with the means of its readings."""
    of: dict[str, tuple[list[float], list[float]]] = {}
    for gpu, sm, tensor in readings:
        own = of.setdefault(gpu, ([], []))
        own[0].append(sm)
        if tensor is not None:
            own[1].append(tensor)
    return [GpuActivity(gpu, len(sm), mean(sm), mean(tensor) if tensor else None) for gpu, (sm, tensor) in of.items()]


def parse(text: NumberedText) -> tuple[GpuActivity, ...]:
    """Return the activity of each GPU; readings of several tables are joined."""
    lines = lines_of(text)
    rows: list[MonitorRow] = []
    scrapes: list[GpuActivity] = []
    at = 0
    while at < len(lines):
        at = _take(lines, at, rows, scrapes)
    return (*of_rows(rows), *_means((gpu.gpu, gpu.sm, gpu.tensor) for gpu in scrapes))


def _take(lines: Lines, at: int, rows: list[MonitorRow], scrapes: list[GpuActivity]) -> int:
    """Read the output that begins at a line, if any; return the next line."""
    if monitor_rows.begins(lines, at):
        table = monitor_rows.parse_lines(lines, at)
        rows += table.value
        return table.end
    if dcgm_metrics.begins(lines, at):
        metrics = dcgm_metrics.parse_lines(lines, at)
        scrapes += of_metrics(metrics.value)
        return metrics.end
    return at + 1
