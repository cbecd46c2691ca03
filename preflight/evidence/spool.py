"""Temporary copies of piped input, up to a limit."""

from __future__ import annotations

import errno
import tempfile
from typing import IO, Protocol

from preflight.evidence.safe_read import UnreadableFile

#: Maximum bytes that are copied from a pipe: more than the longest usual log, but far less than a disk.
MOST_SPOOLED = 4 << 30

_CHUNK = 1 << 20


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def spool(stream: _Readable) -> IO[bytes]:
    """Copy a stream to a temporary file; raises OSError.

    Raises UnreadableFile if the stream is longer than the limit.
    """
    spooled = tempfile.NamedTemporaryFile(prefix="preflight-read-", buffering=0)  # noqa: SIM115
    try:
        size = 0
        while data := stream.read(_CHUNK):
            size += len(data)
            if size > MOST_SPOOLED:
                raise UnreadableFile(
                    errno.EFBIG,
                    f"the pipe has more than {MOST_SPOOLED >> 20} MiB; save a part of it to a file and pass that",
                )
            spooled.write(data)
    except BaseException:
        spooled.close()
        raise
    return spooled
