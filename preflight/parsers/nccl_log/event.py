"""Parsed messages, and a factory of parsers for simple patterns."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple


class LogEvent(NamedTuple):
    """A parsed message: its kind, and the values by which it is counted."""

    kind: str
    values: tuple[object, ...] = ()


def matched(kind: str, pattern: re.Pattern[str]) -> Callable[[str], LogEvent | None]:
    """Return a parser of messages that match; the groups are the values."""

    def read(message: str) -> LogEvent | None:
        match = pattern.match(message)
        return LogEvent(kind, match.groups()) if match else None

    return read
