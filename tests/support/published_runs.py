"""Published times of training steps, with their jobs and clusters.

``data/layout/published_runs.json`` has one row for each: the figures of a public table with its title, row and place.
``set`` is *fitted* (dense models on Hopper with NVIDIA's frameworks), *a100* (llm-foundry), *not fitted* (Blackwell,
for which no constant was fitted), *experts* (models with experts, nothing fitted) or *quoted* (papers, read only in
quotations; they do not count). Values missing from a table are the defaults of its framework: NeMo overlaps the
reductions of data and tensor parallelism and divides the sequence; the runs of 2021 and 2022 had no fused attention.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

from preflight.expectations.catalogue import part_by_name
from preflight.layout.hardware import Hardware, hardware_of
from preflight.layout.job import Parallelism, Schedule, TrainingJob, Transformer
from tests.support.paths import DATA

_PARTS = {
    "A100": "HGX A100", "H100": "HGX H100", "H200": "HGX H200", "B200": "HGX B200", "B300": "HGX B300",
    "GB200": "GB200 tray", "GB300": "GB300 tray",
}  # fmt: skip


@dataclass(frozen=True)
class PublishedRun:
    """One row: a job, its cluster and the published seconds of a step."""

    id: str
    set: str
    source: str
    read_at_source: bool
    job: TrainingJob
    hardware: Hardware
    seconds: float


@cache
def published_runs() -> tuple[PublishedRun, ...]:
    """Return all rows."""
    return tuple(map(_run, json.loads((DATA / "layout" / "published_runs.json").read_text())))


def _run(row: dict[str, Any]) -> PublishedRun:
    part = part_by_name(_PARTS[row["gpu"]])
    assert part is not None
    each = row["gpus_per_node"] or part.gpus
    hardware = hardware_of(part, -(-row["gpus"] // each), memory_gib=row.get("memory_gib"))
    job = TrainingJob(
        Transformer(**row["model"]), Parallelism(**row["parallel"]), Schedule(**row["schedule"]), row["gpus"]
    )
    return PublishedRun(
        row["id"], row["set"], f"{row['source']} ({row['at']})", row["read_at_source"], job, hardware, row["step_s"]
    )
