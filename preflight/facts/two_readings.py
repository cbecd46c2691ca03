"""Two readings of one record in one collector run, and the seconds in between.

A single reading covers the time since boot, driver load or a reset, which is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Generic, TypeVar

from preflight._startup.lightclass import dataclass
from preflight.evidence.document import Evidence, EvidenceError, Record, with_subject

T = TypeVar("T")


@dataclass(frozen=True)
class Readings(Generic[T]):
    """One source at the start and at the end of a window."""

    key: str
    before: T
    after: T
    seconds: float  # between the two, by the node's monotonic clock


def twice(evidence: Evidence, key: str, parse: Callable[[Record], T]) -> Readings[T]:
    """Parse both readings of a record.

    Raises an EvidenceError that names the missing reading and the reason.
    """
    first = evidence.complete_record(key)
    before = _parsed(key, first, parse)
    second = first.again
    if second is None:
        raise EvidenceError(key, "was read once; growth needs a second reading (--window 60)")
    if not second.ok:
        raise EvidenceError(key, with_subject("the second reading", second.describe()))
    after = _parsed(key, second, parse)
    seconds = math.nan if first.at_s is None or second.at_s is None else second.at_s - first.at_s
    if not 0 < seconds < math.inf:
        raise EvidenceError(key, "the time between its two readings is unknown")
    return Readings(key, before, after, seconds)


def output_of(record: Record) -> str:
    """Return the output of a command; raises ValueError if it failed."""
    if record.rc not in (0, None):
        words = (record.err or record.out).strip().splitlines()
        raise ValueError(f"exit status {record.rc}" + (f": {words[0][:200]}" if words else ""))
    return record.out


def _parsed(key: str, record: Record, parse: Callable[[Record], T]) -> T:
    try:
        return parse(record)
    except ValueError as error:
        raise EvidenceError(key, f"cannot be parsed: {error}") from None
