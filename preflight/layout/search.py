"""Search for the fastest layouts of a job that fit the cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.layout.hardware import Hardware
from preflight.layout.job import LayoutError, TrainingJob
from preflight.layout.memory import GIB, memory, most
from preflight.layout.step import Step, step

#: Group sizes, micro-batch sizes and numbers of virtual stages to try.
_SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 15, 16, 18, 20, 24, 28, 32, 36, 40, 48, 64, 72, 96, 126, 128)
_MICRO_BATCHES = (1, 2, 4, 8)
_VIRTUAL = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)

#: Maximum number of layouts to try.
MOST = 20_000


@dataclass(frozen=True)
class Candidate:
    """A layout that fits, with its step and memory."""

    job: TrainingJob
    step: Step
    memory_gib: float

    def difference(self, given: TrainingJob) -> str:
        """Return the differences from a given layout, as one line."""
        old, new = _shown(given), _shown(self.job)
        changed = [f"{name} {value} (was {old[name]})" for name, value in new.items() if value != old[name]]
        return ", ".join(changed) or "as given"


def _shown(job: TrainingJob) -> dict[str, str]:
    parallel, schedule = job.parallel, job.schedule
    return {
        "tp": str(parallel.tensor), "cp": str(parallel.context), "ep": str(parallel.expert),
        "etp": str(parallel.expert_tensor if job.model.experts else ""),
        "pp": str(parallel.pipeline), "vp": str(parallel.virtual_stages), "micro-batch": str(schedule.micro_batch),
        "recompute": schedule.recompute,
    }  # fmt: skip


def search(job: TrainingJob, hardware: Hardware, best: int = 5) -> list[Candidate]:
    """Return the ``best`` fastest layouts of a job that fit in GPU memory.

    The number of GPUs, the global batch, the sharding and the overlaps remain as given. Tensor parallelism remains
    within an NVLink domain. Raises LayoutError if the memory of a GPU is unknown.
    """
    if hardware.memory_gib is None:
        raise LayoutError("the memory of a GPU is not known; state it: --on '…, 80 GB'")
    fastest: dict[tuple[Any, ...], Candidate] = {}
    for tried in _candidates(job, hardware):
        if most(tried) <= hardware.memory_gib * GIB:
            own = Candidate(tried, step(tried, hardware), memory(tried).total / GIB)
            layout = (tried.parallel.tensor, tried.parallel.pipeline, tried.parallel.context, tried.parallel.expert,
                      tried.parallel.expert_tensor, tried.schedule.micro_batch)  # fmt: skip
            if layout not in fastest or own.step.seconds < fastest[layout].step.seconds:
                fastest[layout] = own
    return sorted(fastest.values(), key=lambda own: own.step.seconds)[:best]


def _candidates(job: TrainingJob, hardware: Hardware) -> Iterator[TrainingJob]:
    """Yield the layouts that divide the model, the ranks and the batch."""
    number = 0
    model, schedule, gpus = job.model, job.schedule, job.gpus
    domain = hardware.domain
    for tensor in (size for size in _SIZES if size <= domain and model.heads % size == 0 and domain % size == 0):
        for pipeline in (size for size in _SIZES if model.layers % size == 0):
            for context in (size for size in (1, 2, 4, 8, 16) if schedule.sequence % (2 * size) == 0):
                ranks = tensor * pipeline * context
                if gpus % ranks or (context > 1 and schedule.sequence < 16384 and context != job.parallel.context):
                    continue
                for expert, expert_tensor in _expert_sizes(job, tensor, gpus // pipeline):
                    for micro in _MICRO_BATCHES:
                        if schedule.global_batch % (micro * gpus // ranks):
                            continue
                        for virtual, recompute in _schedules(job, pipeline, gpus // ranks, micro):
                            number += 1
                            if number > MOST:
                                return
                            yield job.changed(
                                tensor=tensor, pipeline=pipeline, context=context, expert=expert, micro_batch=micro,
                                virtual_stages=virtual, recompute=recompute,
                                expert_tensor=expert_tensor, first_layers=0, last_layers=0, stage_layout="",
                                sequence_parallel=job.parallel.sequence_parallel and tensor > 1,
                            )  # fmt: skip


def _expert_sizes(job: TrainingJob, tensor: int, ranks: int) -> Iterator[tuple[int, int]]:
    """Yield (expert, expert-tensor) sizes that divide the experts and the ranks."""
    if not job.model.experts:
        yield 1, tensor
        return
    for size in _SIZES:
        for divided in sorted({1, tensor, job.parallel.expert_tensor}):
            if job.model.experts % size == 0 and ranks % (size * divided) == 0:
                yield size, divided


def _schedules(job: TrainingJob, pipeline: int, replicas: int, micro: int) -> Iterator[tuple[int, str]]:
    """Yield the possible (virtual stages, recomputation) of a pipeline."""
    microbatches = job.schedule.global_batch // (micro * replicas)
    for virtual in _VIRTUAL:
        if virtual > 1 and (pipeline == 1 or microbatches % pipeline or job.model.layers % (pipeline * virtual)):
            continue
        for recompute in ("none", "selective", "full"):
            if recompute != "selective" or not job.schedule.fused_attention:
                yield virtual, recompute
