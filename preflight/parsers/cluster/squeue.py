"""The format ``squeue``; the parser is in ``slurm_jobs``."""

from __future__ import annotations

from preflight.parsers.cluster.slurm_jobs import parse_queue as parse_lines
from preflight.parsers.cluster.slurm_jobs import queue_begins as begins

__all__ = ["HINTS", "begins", "parse_lines"]

HINTS = ("JOBID", "ARRAY_JOB_ID", "{")
