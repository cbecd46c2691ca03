"""The newest checkpoint of a directory, from ``find -printf '%T@ %y %P'``."""

from __future__ import annotations

import re
import time
from datetime import datetime, timezone

from preflight._startup.lightclass import dataclass


@dataclass(frozen=True)
class CheckpointEntry:
    """A file or directory below the checkpoint directory."""

    path: str  # relative to the directory
    changed_at_s: float  # seconds since 1970-01-01 UTC

    @property
    def changed_at(self) -> str:
        """The UTC time of the change, to the minute, such as 2026-11-21T02:40Z."""
        return time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime(self.changed_at_s))


def newest(text: str) -> CheckpointEntry | None:
    """Return the entry that changed last; None for an empty directory.

    The files of a sharded checkpoint are deeper than ``find`` searches, so their directory is used. Raises ValueError.
    """
    best: CheckpointEntry | None = None
    for line in text.splitlines():
        match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,12})?) [a-zA-Z?] ?(.*)", line)
        if not match:
            raise ValueError(f"{line.strip()[:80]!r} is not a time, a type and a path")
        if match[2] and (best is None or float(match[1]) > best.changed_at_s):
            best = CheckpointEntry(match[2], float(match[1]))
    return best


def seconds(collected_at: str) -> float:
    """Convert a document's collection time to seconds since 1970; raises ValueError.

    The expected format is ``2026-11-21T03:00:00Z``.
    """
    try:
        at = datetime.strptime(collected_at, "%Y-%m-%dT%H:%M:%SZ")
    except ValueError:
        raise ValueError(f"{collected_at[:40]!r} is not a time such as 2026-11-21T03:00:00Z") from None
    return at.replace(tzinfo=timezone.utc).timestamp()
