"""The format ``scontrol show job``; the parser is in ``slurm_jobs``."""

from __future__ import annotations

from preflight.parsers.cluster.slurm_jobs import job_begins as begins
from preflight.parsers.cluster.slurm_jobs import parse_job as parse_lines

__all__ = ["HINTS", "begins", "parse_lines"]

HINTS = ("JobId=",)
