"""``nvidia-smi --query-compute-apps`` as CSV: the processes that use the GPUs."""

from __future__ import annotations

import re
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import is_prompt
from preflight.textprep.agreement import counted
from preflight.textprep.lines import Lines

HINTS = ("pid, ", "pid,", ", pid")

_NAMES = {
    "pid": "pid", "process_name": "name", "name": "name", "used_memory": "used", "used_gpu_memory": "used",
    "gpu_uuid": "gpu", "gpu_bus_id": "gpu", "gpu_name": "product", "gpu_serial": "serial", "timestamp": "time",
}  # fmt: skip
_COLUMN = re.compile(r"\s*([a-z_]{3,20})(?: \[[A-Za-z]{1,4}\])?\s*")
_MIB = re.compile(r"(\d{1,9})(?: MiB)?")


@dataclass(frozen=True)
class GpuProcess:
    """One process on one GPU; a value that is not shown is None or empty."""

    pid: int | None
    name: str
    used_mib: int | None
    gpu: str  # UUID or PCI address
    line: int


def _columns(text: str) -> list[str] | None:
    """Return the field of each column of a header; None for any other line."""
    if not 1 <= text.count(",") <= 12 or len(text) > 400:
        return None
    matches = [_COLUMN.fullmatch(cell) for cell in text.split(",")]
    names = [_NAMES.get(match[1], "") if match else "" for match in matches]
    return names if "pid" in names and all(names) else None


def begins(lines: Lines, at: int) -> bool:
    """Return whether a CSV table of processes begins at a line."""
    return _columns(lines[at].text) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[tuple[GpuProcess, ...]]:
    """Read the rows below a header; if there are none, no process uses a GPU."""
    columns = _columns(lines[at].text)
    assert columns is not None
    processes: list[GpuProcess] = []
    gaps: list[ParseGap] = []
    end = at + 1
    while end < len(lines):
        text = lines[end].text
        if "," not in text or is_prompt(text) or _columns(text) is not None:
            break
        cells = [cell.strip() for cell in text.split(",")]
        if len(cells) != len(columns):
            gaps.append(ParseGap(lines[end].number, "the row is truncated: it has fewer cells than the header"))
            end += 1
            break
        row = dict(zip(columns, cells, strict=True))
        used = _MIB.fullmatch(row.get("used", ""))
        pid = row["pid"]
        processes.append(
            GpuProcess(int(pid) if pid.isdecimal() and len(pid) < 10 else None, row.get("name", ""),
                       int(used[1]) if used else None, row.get("gpu", ""), lines[end].number)
        )  # fmt: skip
        end += 1
    return Parsed(tuple(processes), tuple(gaps), end)


def facts(processes: tuple[GpuProcess, ...]) -> dict[str, Any]:
    """Return the processes as `preflight read --json` prints them."""
    return {
        "processes": [
            {"pid": item.pid, "name": item.name, "used_memory_mib": item.used_mib, "gpu": item.gpu or None}
            for item in processes
        ]
    }  # fmt: skip


def summary(processes: tuple[GpuProcess, ...]) -> str:
    """Return a one-line summary of the processes."""
    return f"{counted(len(processes), 'process')} on {counted(len({item.gpu for item in processes}), 'GPU')}"
