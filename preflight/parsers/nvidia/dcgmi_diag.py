"""``dcgmi diag`` as a format."""

from __future__ import annotations

from preflight.parsers.nvidia.dcgmi import diag_begins as begins
from preflight.parsers.nvidia.dcgmi import parse_diag as parse_lines

__all__ = ["HINTS", "begins", "parse_lines"]

HINTS = ("Diagnostic", "diagnostic")
