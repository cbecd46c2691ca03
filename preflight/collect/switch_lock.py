"""A lock for each switch, so that several runs do not read it at the same time."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from preflight.transport.errors import NoAnswer, utc_now

if TYPE_CHECKING:
    from preflight.collect.scheduler import NodeTransport

#: Folder of the locks of this user.
FOLDER = Path(tempfile.gettempdir()) / f"preflight-switches-{os.getuid()}"


class LockedSwitches:
    """A transport that locks each switch while ``other`` reads it."""

    def __init__(self, other: NodeTransport, names: frozenset[str]) -> None:
        """Wrap a transport; ``names`` are those of the switches."""
        self._other, self._names = other, names

    def collect(self, host: str, plan: Mapping[str, Any], until: float) -> dict[str, Any]:
        """Carry out a plan by ``until``; always return a document."""
        if host not in self._names:
            return self._other.collect(host, plan, until)
        try:
            with alone(host):
                return self._other.collect(host, plan, until)
        except NoAnswer as end:
            return end.document(host, utc_now())


@contextmanager
def alone(host: str) -> Iterator[None]:
    """Lock a switch, so that several runs do not read it at the same time.

    Raises NoAnswer.
    """
    FOLDER.mkdir(mode=0o700, exist_ok=True)
    owner = FOLDER.lstat()
    if owner.st_uid != os.getuid() or not FOLDER.is_dir() or FOLDER.is_symlink():
        raise NoAnswer("queue", f"{FOLDER} belongs to another user: remove it")
    descriptor = os.open(FOLDER / sha256(host.encode()).hexdigest()[:32], os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise NoAnswer("queue", "another run of preflight is reading this switch: try again later") from None
        yield
    finally:
        os.close(descriptor)
