"""Published times of training steps, with their jobs and clusters.

``data/layout/published_runs.json`` has one row for each: the figures of a public table with its title, row and place.
``set`` is *fitted* (dense models on Hopper with NVIDIA's frameworks), *a100* (llm-foundry), *not fitted* (Blackwell,
for which no constant was fitted), *experts* (models with experts, nothing fitted) or *quoted* (papers, read only in
quotations; they do not count). Two more files have runs of other frameworks, to which nothing is fitted: small models
and long sequences of llm-foundry (*foundry*), and *torchtitan*. Values missing from a table are the defaults of its
framework: NeMo overlaps the reductions of data and tensor parallelism and divides the sequence; the runs of 2021 and
2022 had no fused attention.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from preflight._startup.lightclass import replace
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
    return (*map(_run, _read("published_runs.json")), *_foundry(_read("llm_foundry_runs.json")),
            *_torchtitan(_read("torchtitan_runs.json")))  # fmt: skip


def _read(name: str) -> Any:
    return json.loads((DATA / "layout" / name).read_text())


def _foundry(table: dict[str, Any]) -> Iterator[PublishedRun]:
    for values in table["rows"]:
        row = dict(zip(table["columns"], values, strict=True))
        layers, hidden, heads = table["models"][row["model"]]
        model = Transformer(layers, hidden, 4 * hidden, heads, heads, 50368, hidden // heads)
        batch = row["micro_batch"] * row["accumulation"] * row["gpus"]
        recompute, gradient_bytes = "full" if row["recomputed"] else "none", 2 if row["pure"] else 4
        schedule = Schedule(row["sequence"], row["micro_batch"], batch, recompute=recompute,
                            gradient_bytes=gradient_bytes, attention_kernel=table["attention_kernel"])  # fmt: skip
        job = TrainingJob(model, Parallelism(sharding="full"), schedule, row["gpus"])
        part = part_by_name(_PARTS[row["gpu"]])
        assert part is not None
        hardware = hardware_of(part, job.gpus // 8, memory_gib=float(row["memory_gib"]))
        yield _added(table, "foundry", values, job, hardware, job.tokens / row["tokens_per_s"])


def _torchtitan(table: dict[str, Any]) -> Iterator[PublishedRun]:
    part = part_by_name(_PARTS["H100"])
    assert part is not None
    for values in table["rows"]:
        row = dict(zip(table["columns"], values, strict=True))
        layers, hidden, width, heads = table["models"][row["model"]]
        model = Transformer(layers, hidden, width, heads, 8, 128256, 128, True, False)
        sizes = {name: row[name] for name in ("tensor", "pipeline", "virtual_stages", "context")}
        parallel = Parallelism(**sizes, sequence_parallel=row["tensor"] > 1, sharding="full")
        stated = {name: row[name] for name in ("sequence", "micro_batch", "global_batch", "precision", "recompute")}
        schedule = Schedule(**stated, framework="torchtitan", fused_kernels=row["fused_kernels"],
                            overlap_tensor=row["async_tensor"])  # fmt: skip
        job = TrainingJob(model, parallel, schedule, row["gpus"])
        seconds = job.tokens / row["gpus"] / row["tokens_per_s_gpu"]
        hardware = replace(hardware_of(part, job.gpus // 8, memory_gib=96.0), **table["hardware"])
        yield _added(table, "torchtitan", values, job, hardware, seconds)


def _added(
    table: dict[str, Any], name: str, values: list[Any], job: TrainingJob, hardware: Hardware, seconds: float
) -> PublishedRun:
    shown = " ".join(map(str, values))
    return PublishedRun(f"{name} {shown}", name, f"{table['source']} ({table['at']})", True, job,
                        hardware, seconds)  # fmt: skip


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
