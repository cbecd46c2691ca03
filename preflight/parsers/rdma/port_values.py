"""Parsers of an RDMA port's values in the formats of sysfs and rdma-core."""

from __future__ import annotations

import re

_STATE = re.compile(r"\d{1,3}: ?(\w[\w ]*)")
_RATE = re.compile(r"(\d{1,4}(?:\.\d{1,3})?)\s*(?:G[bB](?:it)?(?:/s(?:ec)?|ps)?)?\b.*")


def state(text: str) -> str | None:
    """Return the word of ``4: ACTIVE``; None for any other text."""
    return match[1].strip() if (match := _STATE.fullmatch(text.strip())) else None


def rate(text: str | None) -> float | None:
    """Return a rate in Gb/s; None for any other text.

    The text is like ``400``, ``400 Gb/sec (4X NDR)`` or ``25.0 Gbps (32)``.
    """
    match = _RATE.fullmatch(text.strip()) if text else None
    return float(match[1]) if match else None
