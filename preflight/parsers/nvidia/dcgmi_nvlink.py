"""The format ``dcgmi nvlink --link-status``; the parser is in ``dcgmi``."""

from __future__ import annotations

from preflight.parsers.nvidia.dcgmi import links_begins as begins
from preflight.parsers.nvidia.dcgmi import parse_links as parse_lines

__all__ = ["HINTS", "begins", "parse_lines"]

HINTS = ("NvLink Link Status", "gpuId", "physicalId")
