"""Draining in Slurm: drain or resume this node, requeue its job.

No other state is changed in Slurm. ``apply`` is the entry point. ``scontrol`` runs scontrol, ``scontrol_nodes`` and
``squeue`` parse its output, ``drain_reason`` recognizes the drains of preflight, ``drain_limit`` limits their number,
``drain`` drains and lifts, ``requeue`` requeues a job.
"""

from __future__ import annotations

from preflight.gate.slurm.apply_verdict import SlurmResult, apply
from preflight.gate.slurm.drain_settings import Settings

__all__ = ["Settings", "SlurmResult", "apply"]
