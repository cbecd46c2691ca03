"""Sizes and shares as NHC writes them: ``64``, ``64k``, ``2TB``, ``5%``."""

from __future__ import annotations

import re

_SIZE = re.compile(r"([0-9]{1,15})([kmgtpe]?)b?", re.IGNORECASE)
_SHARE = re.compile(r"([0-9]{1,3})%")

#: Powers of 1024 of a kilobyte.
_SUFFIXES = ("k", "m", "g", "t", "p", "e")


def kilobytes(text: str) -> int | None:
    """Return a size in KiB, the unit of a number without suffix; None if invalid."""
    match = _SIZE.fullmatch(text)
    if match is None:
        return None
    factor: int = 1024 ** _SUFFIXES.index(match[2].lower()) if match[2] else 1
    return int(match[1]) * factor


def count(text: str) -> int | None:
    """Parse a number of inodes: ``1k`` is 1000; None if invalid."""
    match = _SIZE.fullmatch(text)
    if match is None or text[-1:] in "bB":
        return None
    thousands: int = 1000 ** (_SUFFIXES.index(match[2].lower()) + 1) if match[2] else 1
    return int(match[1]) * thousands


def percent(text: str) -> int | None:
    """Parse a percentage of at most 100%; None if invalid."""
    match = _SHARE.fullmatch(text)
    return int(match[1]) if match and int(match[1]) <= 100 else None


def gib(size: int) -> float:
    """Convert KiB to GiB, the unit of a cluster file."""
    return round(size / 2**20, 6)
