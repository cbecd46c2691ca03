"""What a gate changes in Slurm: it drains its own node, lifts its own drain, puts back a job. Nothing else.

``settle`` is the way in. ``controller`` runs scontrol, ``nodes`` reads what it says, ``reason`` tells our drains from
those of others, ``breaker`` says how many there may be, ``manners`` drains and lifts, ``job`` puts a job back.
"""

from __future__ import annotations

from preflight.gate.slurm.apply_verdict import Settled, settle
from preflight.gate.slurm.drain_settings import Settings

__all__ = ["Settings", "Settled", "settle"]
