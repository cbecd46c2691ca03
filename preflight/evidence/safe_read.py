"""Reading of untrusted files: regular files only, and bounded in size.

This module is imported before every job, so it must stay small.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

from preflight.errors import PreflightError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Maximum bytes of a document: several logs and a sweep of ``probes.SWEEP_CAP`` bytes, each read twice.
DOCUMENT = 512 << 20

#: Maximum bytes of a report: ten thousand nodes with different findings.
REPORT = 2_000_000_000

#: Maximum bytes of a file that people write. A cluster file with ten thousand node names has less than 1 MB.
BY_HAND = 16 << 20

_CHUNK = 1 << 20
_HEAD = 1024
_HANDED_OVER = ("/dev/", "/proc/self/")

#: Major number of Linux's memory devices, such as /dev/zero, and minor number of /dev/null, the only one that is not
#: endless (Documentation/admin-guide/devices.txt).
_MEMORY, _NULL = 1, 3


class UnreadableFile(PreflightError, OSError):
    """Raised for a file that is not read; ``strerror`` is the reason."""


def require_regular_file(path: str | Path) -> None:
    """Raise UnreadableFile for a pipe, socket or device, which may be endless.

    A pipe passed in by the shell (``<(…)``, ``/dev/stdin``) and /dev/null are allowed.
    """
    found = os.stat(path)
    mode, handed_over = found.st_mode, os.fspath(path).startswith(_HANDED_OVER)
    if is_endless(found) or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or handed_over):
        raise UnreadableFile(errno.EINVAL, "it is not a regular file")


def is_endless(found: os.stat_result) -> bool:
    """Return whether a file is an endless device or a block device."""
    device = found.st_rdev
    memory = stat.S_ISCHR(found.st_mode) and os.major(device) == _MEMORY and os.minor(device) != _NULL
    return memory or stat.S_ISBLK(found.st_mode)


def content(path: str | Path, most: int, begins: bytes = b"") -> bytes:
    """Return the content of a file; raises OSError.

    Raises UnreadableFile if the file is not regular, or has more than ``most`` bytes. If it does not start with
    ``begins``, after white space, only its first bytes are returned. A file passed in by the shell (``<(…)``,
    ``/dev/stdin``) may be a pipe; any other pipe is rejected.
    """
    found = list(pieces(path, most, begins, at_once=True))
    return found[0] if len(found) == 1 else b"".join(found)


def pieces(path: str | Path, most: int, begins: bytes = b"", at_once: bool = False) -> Iterator[bytes]:
    """Yield the content of a file in pieces, limited like ``content``; raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode, size = os.fstat(fd).st_mode, os.fstat(fd).st_size
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(mode):
            if not os.fspath(path).startswith(_HANDED_OVER):
                raise UnreadableFile(errno.EINVAL, "it is not a regular file")
            os.set_blocking(fd, True)
        left, first = most + 1, True
        while left > 0 and size <= most:
            piece = os.read(fd, min(left, max(_CHUNK, size + 1) if at_once and not (begins and first) else _CHUNK))
            if not piece:
                break
            if first and not piece[:_HEAD].lstrip().startswith(begins):
                yield piece[:_HEAD]
                return
            yield piece
            left, first = left - len(piece), False
        if size > most or left <= 0:
            raise UnreadableFile(errno.EFBIG, f"it is longer than {most >> 20} MiB")
    finally:
        os.close(fd)
