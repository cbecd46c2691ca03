"""Actions in Slurm: drain or undrain this node; requeue, hold or cancel its job.

Apart from comments, nothing else is changed in Slurm. ``apply`` and ``hold_job`` are the entry points. ``scontrol``
runs scontrol, ``scontrol_nodes`` and ``squeue`` parse its output, ``drain_reason`` recognizes the drains of preflight,
``drain_limit`` limits their number, ``drain`` drains and lifts, ``requeue`` requeues a job.
"""

from __future__ import annotations

from preflight.gate.slurm.apply_verdict import SlurmResult, apply, hold_job
from preflight.gate.slurm.drain_settings import Settings

__all__ = ["Settings", "SlurmResult", "apply", "hold_job"]
