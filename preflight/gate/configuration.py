"""Configuration of a hook: the cluster file or its last valid copy.

``Configuration.policy`` hashes the inputs of a verdict.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from preflight._startup.lightclass import dataclass
from preflight.errors import PreflightError
from preflight.expectations import Cluster
from preflight.expectations.gate_table import Gate
from preflight.gate.state_dir import StateDir, StateDirError
from preflight.gate.verdict_cache import installed, stamp
from preflight.version import VERSION

if TYPE_CHECKING:
    from preflight.expectations.cluster_file import Ids
    from preflight.gate.verdict_cache import Stamp


#: Maximum size in bytes of a cluster file, and of each file it names.
_MOST_BYTES = 64 << 20


class UnknownCheck(PreflightError, ValueError):
    """The selection in the cluster file leaves no check to run."""


@dataclass(frozen=True)
class Configuration:
    """The cluster file in use.

    If the given file has an ``error``, its last valid copy is used; without a copy, ``usable`` is False.
    """

    cluster: Cluster
    raw: bytes
    stamp: Stamp
    error: str = ""
    usable: bool = True

    @property
    def gate(self) -> Gate:
        """The table ``[gate]``, empty if the file has none."""
        return self.cluster.gate or Gate()

    @property
    def named(self) -> list[str]:
        """The files named by the cluster file."""
        names = [
            self.cluster.fabric.settings.reference,
            *(members.baseline for members in self.cluster.classes.values()),
        ]
        return [str(Path(self.cluster.path).parent / name) for name in names if name]

    def inputs(self, path: str) -> list[tuple[str, Stamp]]:
        """Return the files whose change invalidates a verdict, the cluster file first."""
        return [(path, self.stamp), *((name, stamp(name)) for name in (*self.named, *installed()))]

    def policy(self, checks: Iterable[str], choices: Sequence[str]) -> str:
        """Return a hash of a verdict's inputs.

        The inputs are the cluster file, the files it names, the version of preflight, the checks, and the hook's
        ``choices``.
        """
        digest = sha256()
        for part in (VERSION, *checks, "", *choices):
            digest.update(part.encode() + b"\0")
        for content in (self.raw, *map(_content, self.named)):
            digest.update(len(content).to_bytes(8, "big") + content)
        return digest.hexdigest()[:32]


def read(path: str | None, store: StateDir | None, ids: Ids) -> Configuration:
    """Read a cluster file, or the copy of its last valid content.

    The copy is used if the file has errors; without a path, the configuration is empty. ``ids`` returns the ids of all
    checks, as for ``expectations.cluster_file.load``.
    """
    if path is None:
        return Configuration(Cluster(), b"", None)
    from preflight.expectations.cluster_file import ClusterFileError, decode

    before = stamp(path)
    try:
        raw = _bytes(path)
        found = Configuration(decode(raw, path, ids), raw, before)
    except (ClusterFileError, OSError) as error:
        message = f"{path} cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error)
        return _last_valid(path, store, ids, before, " | ".join(message.splitlines()))
    if store is not None:
        _keep(store, last_valid(path), raw)
    return found


def last_valid(path: str) -> str:
    """Return the file name of the last valid copy of a cluster file.

    The copy is in the state directory; the name is derived from the path of the cluster file.
    """
    return f"cluster-{sha256(os.path.abspath(path).encode('utf-8', 'surrogateescape')).hexdigest()[:32]}.toml"


def _last_valid(path: str, store: StateDir | None, ids: Ids, before: Stamp, error: str) -> Configuration:
    from preflight.expectations.cluster_file import ClusterFileError, decode
    from preflight.facts.kernel_log import age

    try:
        if store is not None and (raw := store.read(last_valid(path), _MOST_BYTES)):
            old = age(max(0.0, time.time() - store.written(last_valid(path))))
            error = f"judged by the last valid cluster file of this path, a copy that is {old} old: {error}"
            return Configuration(decode(raw, path, ids), raw, before, error)
    except (StateDirError, OSError, ClusterFileError):
        pass
    return Configuration(Cluster(), b"", before, error, usable=False)


def _keep(store: StateDir, name: str, raw: bytes) -> None:
    try:
        if store.read(name, _MOST_BYTES) == raw:
            return
    except (StateDirError, FileNotFoundError):
        pass
    try:
        store.write(name, raw)
    except StateDirError:
        return  # reported when the verdict cannot be written


def _bytes(path: str) -> bytes:
    """Return the content of a file; raises OSError.

    Refuses anything but a regular file: reading a pipe or device might never end.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as stream:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(0, "it is not a regular file")
        raw = stream.read(_MOST_BYTES + 1)
    if len(raw) > _MOST_BYTES:
        raise OSError(0, f"it is longer than {_MOST_BYTES} bytes")
    return raw


def _content(path: str) -> bytes:
    try:
        return _bytes(path)
    except OSError:
        return b""
