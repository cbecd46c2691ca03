"""Verdicts that nodes publish in the folder ``[gate] publish``, one for each node."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Sequence
from pathlib import Path

from preflight.archive.directory import file_name
from preflight.evidence import json_limits
from preflight.gate.verdict import UnusableVerdict, Verdict, from_document
from preflight.schemas.conform import find_error

_MOST_BYTES = 1 << 20
#: Maximum seconds by which a node's clock may be ahead: MUNGE's default TTL, beyond which Slurm starts no job.
MAX_CLOCK_SKEW_S = 300


def collect(folder: Path, nodes: Sequence[str], most_s: float) -> dict[str, Verdict | str]:
    """Return each node's verdict, at most ``most_s`` seconds old, or why it has none."""
    if why := _untrusted(folder):
        return dict.fromkeys(nodes, why)
    return {node: _read(folder / file_name(node), node, most_s) for node in nodes}


def _untrusted(folder: Path) -> str:
    """Return why a directory is not trusted, or "".

    Only root and this user may have write access.
    """
    try:
        info = os.stat(folder)
    except OSError as error:
        return f"{folder}: {error.strerror}"
    if info.st_uid not in (0, os.geteuid()):
        return f"{folder} belongs to user {info.st_uid}"
    return f"{folder} is writable by others" if info.st_mode & 0o022 else ""


def _read(path: Path, node: str, most_s: float) -> Verdict | str:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as stream:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return f"{path} is not a regular file"
            document = json_limits.decoded(stream.read(_MOST_BYTES), once=True)
        if wrong := find_error(document, "verdict-1", exact=True):
            raise UnusableVerdict(wrong)
        verdict = from_document(document)
    except FileNotFoundError:
        return "it has published no verdict"
    except OSError as error:
        return f"{path}: {error.strerror}"
    except (UnusableVerdict, ValueError) as error:
        return f"{path} is not a verdict: {error}"
    age_s = time.time() - verdict.at
    if verdict.node != node:
        return f"{path} is for node {verdict.node}"
    if age_s < -MAX_CLOCK_SKEW_S:
        return f"its verdict is {-age_s:.0f} s in the future: synchronise the clocks of the node and of this machine"
    if age_s > most_s:
        return f"its verdict is {age_s:.0f} s old, but valid for only {most_s:.0f} s"
    return verdict
