"""Other costs of a run: a lost run, checkpoints, the smallest batch.

Sources: J. Young, A first order approximation to the optimum checkpoint interval, 1974, and J. Daly, 2006 (checkpoint
interval); J. Austin et al., How to Scale Your Model, chapter on GPUs (smallest batch).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite, sqrt
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.expectations.roofline import batch
from preflight.layout.hardware import Hardware
from preflight.layout.job import TrainingJob

#: Inputs of the costs, with their descriptions; none has a default.
INPUTS = {
    "watts": "power of a GPU under load, in W",
    "hours": "hours of the run that are lost",
    "price": "price of a kWh",
    "checkpoint_seconds": "time to write a checkpoint, in s",
    "mtbf_hours": "hours between failures that stop the job",
}


@dataclass(frozen=True)
class Cost:
    """A computed cost, or the names of its missing inputs."""

    name: str
    value: float | None
    unit: str
    origin: str
    missing: tuple[str, ...] = ()


def number(word: str) -> float | None:
    """Parse a positive number; return None for anything else."""
    try:
        value = float(word) if len(word) <= 24 and word.isascii() else 0.0
    except ValueError:
        return None
    return value if isfinite(value) and value > 0 else None


def lost_run(watts: float, gpus: int, hours: float, price: float) -> float:
    """Return the energy cost of a run: W x GPUs x h / 1000 x price of a kWh."""
    return watts * gpus * hours / 1000 * price


def checkpoint_interval(write: float, between_failures: float) -> float:
    """Return the seconds between checkpoints that minimise the lost time.

    This is the square root of 2 x write time x MTBF, all in seconds.
    """
    return sqrt(2 * write * between_failures)


def lost_share(write: float, between_failures: float, interval: float) -> float:
    """Return the share of time that checkpoints and repeated work take.

    After a failure, half an interval is repeated on average (Young's model). Times are in seconds.
    """
    return write / interval + interval / (2 * between_failures)


def costs(values: Mapping[str, Any], gpus: int) -> tuple[Cost, ...]:
    """Return the cost of a lost run and the checkpoint interval of a job."""
    energy, interval = ("watts", "hours", "price"), ("checkpoint_seconds", "mtbf_hours")
    return (
        _cost("a lost run", "", values, energy, "{watts:g} W x " f"{gpus:,} GPUs" " x {hours:g} h x {price:g} per kWh",
              lambda own: lost_run(own["watts"], gpus, own["hours"], own["price"])),
        _cost("checkpoint interval", "s", values, interval,
              "sqrt(2 x {checkpoint_seconds:g} s x {mtbf_hours:g} h) (Young, Daly)",
              lambda own: checkpoint_interval(own["checkpoint_seconds"], 3600 * own["mtbf_hours"])),
    )  # fmt: skip


def _cost(name: str, unit: str, values: Mapping[str, Any], inputs: tuple[str, ...], origin: str, compute: Any) -> Cost:
    if missing := tuple(wanted for wanted in inputs if values.get(wanted) is None):
        return Cost(name, None, unit, "", missing)
    return Cost(name, compute(values), unit, origin.format(**{wanted: values[wanted] for wanted in inputs}))


@dataclass(frozen=True)
class LevelBatch:
    """Tokens per GPU at which arithmetic hides the gradients on a level of links."""

    level: str
    bandwidth: float  # bandwidth of an all-reduce in GB/s
    least: float  # minimum tokens per GPU
    tokens: float  # tokens per GPU of the job

    @property
    def busy(self) -> bool:
        """Whether the job has enough tokens."""
        return self.tokens >= self.least


def level_batches(job: TrainingJob, hardware: Hardware) -> tuple[LevelBatch, ...]:
    """Return the smallest batch for each level of links that the gradients cross.

    In-network reduction is assumed for NVLink from Hopper on, and elsewhere only with SHARP. Tokens are counted per GPU
    between two exchanges: of a microbatch with full sharding, otherwise of a step.
    """
    flops, machine = hardware.flops(job.schedule.precision), hardware.machine
    if flops is None or job.data * job.parallel.context == 1:
        return ()
    full = job.parallel.sharding == "full"
    tokens = job.schedule.micro_batch * job.schedule.sequence if full else job.tokens / job.data
    tokens /= job.parallel.tensor * job.parallel.context
    rates = [("NVLink", machine.nvlink, machine.gpu.generation not in ("Volta", "Ampere"))]
    if job.gpus > hardware.domain and machine.node_nics is not None:
        # the GPUs of a domain send their parts at the same time, each over its own NIC
        nics = machine.node_nics * machine.domain / machine.gpus
        unit = hardware.fabric.unit_nodes
        rates.append(("leaf", nics, machine.sharp is True))
        if unit is None or job.gpus > unit * hardware.each:
            rates.append(("spine", nics / (hardware.fabric.oversubscription or 1.0), machine.sharp is True))
    experts = job.model.experts if job.parallel.expert < job.model.experts else 0
    batches = []
    for level, rate, reduced in rates:
        reduction = rate if reduced else rate / 2
        inside = job.parallel.expert / (1 if level == "NVLink" else hardware.domain)
        least = batch.least(
            flops, reduction * 1e9, sharded=full, experts=experts, active=job.model.active_experts,
            speedup=max(1.0, inside),
        )  # fmt: skip
        batches.append(LevelBatch(level, reduction, least, tokens))
    return tuple(batches)
