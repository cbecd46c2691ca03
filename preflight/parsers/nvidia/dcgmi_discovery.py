"""The format ``dcgmi discovery -l``; the parser is in ``dcgmi``."""

from __future__ import annotations

from preflight.parsers.nvidia.dcgmi import discovery_begins as begins
from preflight.parsers.nvidia.dcgmi import parse_discovery as parse_lines

__all__ = ["HINTS", "begins", "parse_lines"]

HINTS = ("found",)
