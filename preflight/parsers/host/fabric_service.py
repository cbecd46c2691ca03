"""``systemctl status`` of the fabric manager and of IMEX."""

from __future__ import annotations

from preflight.parsers.host import service_status
from preflight.parsers.host.service_status import parse_lines
from preflight.textprep.lines import Lines

__all__ = ["HINTS", "begins", "parse_lines"]

HINTS = ("nvidia-fabricmanager.service", "nvidia-imex.service")


def begins(lines: Lines, at: int) -> bool:
    """Return whether the status of the fabric manager or of IMEX begins at a line."""
    return service_status.unit_of(lines, at) in HINTS
