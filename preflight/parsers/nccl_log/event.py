"""Parsed messages, and a factory of parsers for one pattern."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple


class LogEvent(NamedTuple):
    """One parsed message: its kind, and the values that identify it within the kind."""

    kind: str
    values: tuple[object, ...] = ()


def matched(kind: str, pattern: re.Pattern[str]) -> Callable[[str], LogEvent | None]:
    """Return a parser of messages with this pattern, whose groups are the values."""

    def read(message: str) -> LogEvent | None:
        match = pattern.match(message)
        return LogEvent(kind, match.groups()) if match else None

    return read
