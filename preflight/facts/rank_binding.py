"""The rank of the collector's process in a job, and its GPUs.

Sources: sbatch(1) and srun(1), "OUTPUT ENVIRONMENT VARIABLES"; torchrun; Open MPI's mpirun(1); CUDA C++ programming
guide, CUDA_VISIBLE_DEVICES. A batch script also has SLURM_LOCALID but is not a rank: only a step has SLURM_STEP_ID.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from preflight._startup.lightclass import dataclass

if TYPE_CHECKING:
    from preflight.facts.nvidia.query import GpuIdentity

_LOCAL_RANK = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
_LOCAL_SIZE = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_STEP_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE")
_WORLD = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")


@dataclass(frozen=True)
class Rank:
    """The rank of a process on its node."""

    local: int  # number of the rank on this node, from 0
    local_size: int | None  # number of ranks on this node; None: unknown
    variable: str  # the variable that holds ``local``


def rank(environment: Mapping[str, str]) -> Rank | None:
    """Return the rank of a process by its environment; None if it is not a rank."""
    for name in _LOCAL_RANK:
        if name == "SLURM_LOCALID" and "SLURM_STEP_ID" not in environment:
            continue
        if (local := _number(environment.get(name))) is not None:
            return Rank(local, first_count(environment, _LOCAL_SIZE), name)
    return None


def world_size(environment: Mapping[str, str]) -> int | None:
    """Return the number of ranks in the job; None if unknown."""
    return first_count(environment, _WORLD)


def first_count(environment: Mapping[str, str], names: Sequence[str]) -> int | None:
    """Return the first positive count among these variables; None without one."""
    numbers = (_number(environment.get(name)) for name in names)
    return next((number for number in numbers if number), None)


def _number(text: str | None) -> int | None:
    """Parse a count; Slurm writes ``8(x2)`` for eight tasks on each of two nodes."""
    match = re.fullmatch(r"\s*(\d{1,9})(?:\(x\d{1,9}\))?\s*", text or "")
    return int(match[1]) if match else None


def own_gpus(environment: Mapping[str, str], gpus: Sequence[GpuIdentity]) -> tuple[GpuIdentity, ...]:
    """Return the GPUs that this process uses: the visible ones, or a rank's own.

    Identical GPUs are numbered by CUDA in the order of their bus addresses, as by NVML.
    """
    visible = _visible(environment.get("CUDA_VISIBLE_DEVICES"), gpus)
    mine = rank(environment)
    if mine is not None and mine.local_size == len(visible) and mine.local < len(visible):
        return (visible[mine.local],)
    return visible


def _visible(value: str | None, gpus: Sequence[GpuIdentity]) -> tuple[GpuIdentity, ...]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES selects.

    A list that cannot be resolved (MIG, another host's indices) selects all GPUs.
    """
    if value is None or not value.strip():
        return tuple(gpus)
    chosen = []
    for item in value.split(","):
        found = [gpu for gpu in gpus if item.strip() == str(gpu.index) or _is_uuid(item.strip(), gpu)]
        if len(found) != 1:
            return tuple(gpus)
        chosen += found
    return tuple(chosen)


def _is_uuid(item: str, gpu: GpuIdentity) -> bool:
    return len(item) > 4 and item.startswith("GPU-") and gpu.uuid.startswith(item)
