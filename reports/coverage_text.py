"""Text on checks that were not planned, shared by all reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from preflight._startup.lightclass import dataclass


@dataclass(frozen=True)
class Waiting:
    """Checks that were not planned, their missing input, and how to provide it."""

    needs: str
    command: str
    ids: Sequence[str]


_NEEDS = {
    "without_logs": ("a log", "--log FILE"),
    "without_sweep": ("a sweep of the fabric", "--fabric"),
    "without_switches": ("files of the Ethernet switches", "preflight judge DIR --switch-files DIR"),
    "without_pair": ("a test between two nodes", "preflight pair HOST HOST --save DIR"),
    "without_window": ("a second reading of the counters", "--window 60"),
    "without_history": ("a history", "--history FILE"),
}


def waiting(coverage: Mapping[str, Any]) -> Iterator[Waiting]:
    """Yield the groups of checks that were not planned."""
    for key, (needs, command) in _NEEDS.items():
        if ids := coverage.get(key):
            yield Waiting(needs, command, ids)
