"""``scontrol show node`` as a format."""

from __future__ import annotations

from preflight.parsers.cluster.slurm_nodes import nodes_begins as begins
from preflight.parsers.cluster.slurm_nodes import parse_nodes as parse_lines

__all__ = ["HINTS", "begins", "parse_lines"]

HINTS = ("NodeName=",)
