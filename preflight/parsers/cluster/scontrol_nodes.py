"""The format ``scontrol show node``; the parser is in ``slurm_nodes``."""

from __future__ import annotations

from preflight.parsers.cluster.slurm_nodes import nodes_begins as begins
from preflight.parsers.cluster.slurm_nodes import parse_nodes as parse_lines

__all__ = ["HINTS", "begins", "parse_lines"]

HINTS = ("NodeName=", "ThreadsPerCore=")
