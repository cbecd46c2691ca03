"""``ip addr`` (iproute2): the output of ``ip link`` with IP addresses."""

from __future__ import annotations

from preflight.parsers.network.ip_link import HINTS, facts, has_addresses, is_head, parse_lines, summary
from preflight.textprep.lines import Lines

__all__ = ["HINTS", "begins", "facts", "parse_lines", "summary"]


def begins(lines: Lines, at: int) -> bool:
    """Return whether a list of interfaces with addresses begins at a line."""
    return is_head(lines[at].text) and has_addresses(lines, at)
