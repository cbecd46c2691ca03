"""What one message says, and how a reader of one pattern is made."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple


class Event(NamedTuple):
    """What a message says: a kind, and the values that tell it from others of its kind."""

    kind: str
    values: tuple[object, ...] = ()


def matched(kind: str, pattern: re.Pattern[str]) -> Callable[[str], Event | None]:
    """Return a reader of messages that begin with a pattern; its groups are the values."""

    def read(message: str) -> Event | None:
        match = pattern.match(message)
        return Event(kind, match.groups()) if match else None

    return read
