"""Answers of a switch as objects, with the parts that could not be read as gaps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from preflight.evidence.document import Evidence, EvidenceError
from preflight.facts.switch.values import as_decimal, as_object


class Answers:
    """The answers of a switch by part; an unread part is empty, and a gap."""

    def __init__(self, evidence: Evidence, keys: Mapping[str, str]) -> None:
        self.gaps: dict[str, str] = {}
        self._values: dict[str, tuple[Mapping[str, Any], Mapping[str, Any] | None]] = {}
        for part, key in keys.items():
            try:
                record = evidence.complete_record(key)
            except EvidenceError as error:
                self.gaps[part] = error.why
                continue
            again = record.again.value if record.again and record.again.ok else None
            self._values[part] = as_object(record.value), again if isinstance(again, dict) else None

    def first(self, part: str) -> Mapping[str, Any]:
        """Return the answer; empty if there is none."""
        return self.both(part)[0]

    def both(self, part: str) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
        """Return the answer, and that of the second reading; None if absent."""
        return self._values.get(part, ({}, None))

    def table(self, part: str, name: str) -> Mapping[str, Any]:
        """Return the object of that name in an answer."""
        return as_object(self.first(part).get(name))

    def window(self, part: str) -> float | None:
        """Return the seconds between two readings, by the switch's uptime, or None."""
        before, after = self.both(part)
        first, second = as_decimal(before.get("uptime_s")), as_decimal((after or {}).get("uptime_s"))
        return second - first if first is not None and second is not None and second > first else None
