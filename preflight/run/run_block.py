"""The ``run`` block of a report: command, time, cluster file."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from preflight.version import VERSION

if TYPE_CHECKING:
    from typing import Any


def run_block(command: str, at: float, seconds: float, cluster_file: str) -> dict[str, Any]:
    """Return the ``run`` block.

    ``at`` is in seconds since 1970 UTC, ``seconds`` the duration of the run.
    """
    return {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at)),
        "version": VERSION,
        "command": command,
        "seconds": round(seconds, 3),
        "cluster_file": cluster_file or None,
    }
