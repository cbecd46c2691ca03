"""The lock of a host, which allows one campaign at a time, for all users.

It is an abstract socket: it needs no file, is released when its process ends, and is visible to all users of the
network namespace.
"""

from __future__ import annotations

import os
import pwd
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from preflight.terminal import UsageError

_NAME = "\0preflight-bench"


@contextmanager
def held() -> Iterator[None]:
    """Hold the lock. Raises UsageError, naming the holder, if it is taken."""
    with socket.socket(socket.AF_UNIX) as lock:
        try:
            lock.bind(_NAME)
            lock.listen(8)
        except OSError:
            raise UsageError(f"another campaign is running on this host: {_holder()}; wait until it ends") from None
        yield


def _holder() -> str:
    """Describe the process that holds the lock, as reported by the kernel."""
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(2)
            client.connect(_NAME)
            raw = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    except OSError:
        return "its owner is unknown"
    pid, uid, _ = struct.unpack("3i", raw)
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = "unknown"
    owner = "yours" if uid == os.getuid() else "of another user"
    return f"process {pid} of user {name} ({uid}), {owner}"
