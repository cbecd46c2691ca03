"""Saved evidence, logs and cluster files given to a command."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from preflight.terminal import UsageError, print_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from preflight.collect.request import Collected
    from preflight.evidence.document import Evidence

#: Bytes kept of a log that is handed over with --log.
LOG_CAP = 64_000_000


def load_evidence(paths: Sequence[Path]) -> Collected:
    """Read saved documents of nodes, many of them on first use, and of a job's logs."""
    from preflight.archive.directory import ArchiveError
    from preflight.archive.lazy import load
    from preflight.collect.request import Collected

    try:
        return Collected(*load(paths))
    except ArchiveError as error:
        raise UsageError(str(error)) from None


def read_logs(paths: Sequence[Path]) -> Evidence | None:
    """Read the given logs; None without any."""
    if not paths:
        return None
    from preflight.archive.directory import ArchiveError, logs

    try:
        return logs(paths, LOG_CAP)
    except ArchiveError as error:
        raise UsageError(str(error)) from None


def find_cluster(paths: Sequence[Path]) -> Path | None:
    """Return the cluster file that was saved with evidence.

    Where it cannot be used, a warning gives the reason.
    """
    from preflight.evidence.bundle import BundleError
    from preflight.run import saved_cluster

    try:
        path, why = saved_cluster.found(paths)
    except BundleError as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        path, why = None, f"it cannot be unpacked: {error.strerror}"
    if why:
        print_text(f"warning: judged without the saved cluster file: {why}; give --cluster FILE\n", sys.stderr)
    return path
