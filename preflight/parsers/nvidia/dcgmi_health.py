"""The format ``dcgmi health -c``; the parser is in ``dcgmi``."""

from __future__ import annotations

from preflight.parsers.nvidia.dcgmi import health_begins as begins
from preflight.parsers.nvidia.dcgmi import parse_health as parse_lines

__all__ = ["HINTS", "begins", "parse_lines"]

HINTS = ("Health",)
