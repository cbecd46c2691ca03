"""Sorted views of a log's counters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from preflight.parsers.nccl_log.counters import Key, LogCounters, Occurrence
from preflight.parsers.nccl_log.model import Use


class Tables:
    """The counted facts of a log by kind, sorted by their first lines."""

    def __init__(self, tally: LogCounters) -> None:
        self.tally = tally
        self.files: dict[str, int] = {}
        for table in tally.seen.values():
            for seen in table.values():
                self.files.setdefault(seen.first.file, len(self.files))
        self.cache: dict[str, list[tuple[Any, Occurrence]]] = {}

    def rows(self, kind: str) -> list[tuple[Any, Occurrence]]:
        """Return (key, occurrence) of all facts of a kind, earliest first."""
        if kind not in self.cache:
            items: Iterable[tuple[Key, Occurrence]] = self.tally.seen.get(kind, {}).items()
            self.cache[kind] = sorted(items, key=lambda row: (self.files[row[1].first.file], row[1].first.number))
        return self.cache[kind]

    @property
    def last_line(self) -> int:
        """The number of the last line of the log, which may be truncated."""
        return self.tally.all_lines

    def uses(self, kind: str) -> tuple[Use, ...]:
        """Return the facts of a kind that has a name as its key."""
        return tuple(Use(str(key[0]), seen.count, seen.first) for key, seen in self.rows(kind))

    def via(self, transport: str) -> list[tuple[Any, Occurrence]]:
        """Return (key, occurrence) of all channels over a transport.

        A key has host, transport, network, device, proxied and gpudirect.
        """
        return [(key, seen) for key, seen in self.rows("via") if key[1] == transport]
