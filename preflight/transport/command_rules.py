"""Rules for commands that are sent to a device without a shell."""

from __future__ import annotations

from collections.abc import Callable

from preflight._startup.lightclass import dataclass


@dataclass(frozen=True)
class CommandRules:
    """How commands are sent, one after the other.

    ``gap_s`` are the seconds between two commands, ``most_bytes`` is the maximum size of an output. Each output is
    given to ``heard``, or None if it is too long; ``heard`` may raise NoAnswer, which ends the list.
    """

    gap_s: float
    most_bytes: int
    heard: Callable[[bytes | None], None]
