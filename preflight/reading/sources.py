"""Where a pasted text comes from: a file, plain or compressed, or standard input."""

from __future__ import annotations

import io
import sys
from pathlib import Path

from preflight.facts.nccl_log.source import opened

#: Bytes of a source that are read as text; what is longer can only be a log, and those are read in chunks.
MOST_BYTES = 64_000_000


class SourceError(Exception):
    """A source cannot be opened or unpacked; the text says which and why."""


def load(name: str) -> tuple[str, str]:
    """Return a source's name and text; ``-`` is standard input. Raises SourceError."""
    if name == "-":
        return "-", _text(sys.stdin.buffer.read(MOST_BYTES), "standard input")
    try:
        with Path(name).open("rb") as stream:
            return name, _text(stream.read(MOST_BYTES), name)
    except OSError as error:
        raise SourceError(f"{name}: cannot be read: {error.strerror}") from None


def _text(data: bytes, name: str) -> str:
    try:
        reader = opened(io.BytesIO(data), lambda remark: None)
        whole = b"".join(iter(lambda: reader.read(1 << 20), b""))
    except ValueError as error:
        raise SourceError(f"{name}: {error}") from None
    return whole[:MOST_BYTES].decode("utf-8", "backslashreplace")
