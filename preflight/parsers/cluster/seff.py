"""The format ``seff``; the parser is in ``slurm_jobs``."""

from __future__ import annotations

from preflight.parsers.cluster.slurm_jobs import parse_seff as parse_lines
from preflight.parsers.cluster.slurm_jobs import seff_begins as begins

__all__ = ["HINTS", "begins", "parse_lines"]

HINTS = ("Job ID: ",)
