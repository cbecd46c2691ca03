"""``sinfo -R`` as a format."""

from __future__ import annotations

from preflight.parsers.cluster.slurm_nodes import parse_reasons as parse_lines
from preflight.parsers.cluster.slurm_nodes import reasons_begins as begins

__all__ = ["HINTS", "begins", "parse_lines"]

HINTS = ("REASON",)
