"""Published memory of a GPU in training: peaks in logs, and runs that ran out of memory.

``data/layout/published_memory.json`` has one row for each with its title, table and row, and the settings that it
states under the names of ``preflight plan --set``. ``peak_gib`` is the printed peak, ``peak_is`` what the log counts; a
row without one ran out of memory. NVFP4 is treated as FP8. Settings that the source does not state are left out.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache

from preflight.layout.description import Described, describe
from preflight.parsers.job_config.settings import JobSetting, JobSettings
from tests.support.paths import DATA


@dataclass(frozen=True)
class PublishedMemory:
    """One row: a job, the memory of its GPU, and the peak or None."""

    id: str
    source: str
    read_at_source: bool
    described: Described
    gpu_gib: float | None
    peak_gib: float | None


@cache
def published_memory() -> tuple[PublishedMemory, ...]:
    """Return all rows."""
    return tuple(
        PublishedMemory(
            row["id"], f"{row['source']} ({row['at']})", row["read_at_source"],
            describe(JobSettings({name: JobSetting(value, "row") for name, value in row["settings"].items()})),
            row["gpu_gib"], row.get("peak_gib"),
        )
        for row in json.loads((DATA / "layout" / "published_memory.json").read_text())
    )  # fmt: skip
