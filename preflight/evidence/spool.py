"""Temporary copy of piped input, up to a limit."""

from __future__ import annotations

import errno
import tempfile
from typing import IO, Protocol

from preflight.evidence.safe_read import UnreadableFile

#: Bytes of a pipe that are copied: the longest log that people pipe, and far less than a disk holds.
MOST_SPOOLED = 4 << 30

_CHUNK = 1 << 20


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def spool(stream: _Readable) -> IO[bytes]:
    """Copy a stream to a temporary file; raises OSError.

    UnreadableFile: the stream is longer than the limit.
    """
    spooled = tempfile.NamedTemporaryFile(prefix="preflight-read-", buffering=0)  # noqa: SIM115
    try:
        size = 0
        while data := stream.read(_CHUNK):
            size += len(data)
            if size > MOST_SPOOLED:
                raise UnreadableFile(
                    errno.EFBIG,
                    f"more than {MOST_SPOOLED >> 20} MiB came through the pipe; save a part of it and give that",
                )
            spooled.write(data)
    except BaseException:
        spooled.close()
        raise
    return spooled
