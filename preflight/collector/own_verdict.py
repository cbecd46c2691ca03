"""The node's own verdict, by an archive of preflight that is sent to it.

The archive is a file that only this user can have written; it is used only if its hash matches the plan's, and is
removed before it runs.
"""

import json
import os
import stat
import sys
import time

from . import tools
from .commands import execute
from .frame import sha256
from .records import Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict

    Document = Dict[str, Any]

#: Seconds to wait for the archive after the collection; to wait for an incomplete archive to grow; between two looks;
#: and seconds that judging takes on a busy node.
_WAIT_S, _GROWING_S, _STEP_S, _JUDGING_S = 20.0, 3.0, 0.05, 15.0

#: The archive's exit status if the Python is older than it looked.
_TOO_OLD = 97

#: Oldest and newest minor version of Python 3 that is searched for.
_OLDEST, _NEWEST = 10, 14

#: Maximum bytes of the verdict; age in seconds of an archive that a killed run has left.
_CAP, _OLD_S = 16 * 1024 * 1024, 3600


class Unjudged(Exception):
    """Raised if the node cannot judge itself; the text is a keyword for the reason."""


def share_s(deadline_s: float) -> float:
    """Return the seconds of a run's time that are reserved for judging."""
    return min(_WAIT_S + _JUDGING_S, deadline_s / 3)


def judged(document: "Document", wanted: "Document", until: float) -> "Document":
    """Return the document with this node's verdict.

    Without one, it is the evidence, and ``unjudged`` is the reason.
    """
    try:
        python = _python()
        archive = _opened(wanted, min(time.monotonic() + _WAIT_S, until))
        try:
            return _verdict(python, archive, document, wanted, until)
        finally:
            os.close(archive)
    except Unjudged as reason:
        return dict(document, unjudged=str(reason))


def _python() -> str:
    """Return a Python that can run the archive."""
    if sys.version_info >= (3, _OLDEST) and sys.executable:
        return sys.executable
    for minor in range(_NEWEST, _OLDEST - 1, -1):
        try:
            return tools.find("python3.{}".format(minor))
        except OSError:
            continue
    raise Unjudged("python")


def _opened(wanted: "Document", until: float) -> int:
    """Return a descriptor of the complete archive, whose file is removed."""
    path, size = wanted["archive"], wanted["size"]
    _remove_old(os.path.dirname(path))
    fd, arrived = -1, 0
    try:
        while arrived < size:
            if fd < 0:
                fd = _open(path)
            now = os.fstat(fd).st_size if fd >= 0 else 0
            if now > arrived:  # if the file system is full, it stops growing
                arrived, until = now, time.monotonic() + _GROWING_S
            elif time.monotonic() > until:
                raise Unjudged("absent")
            else:
                time.sleep(_STEP_S)
        if sha256(os.pread(fd, size + 1, 0)).hexdigest() != wanted["sha256"]:
            raise Unjudged("damaged")
        return fd
    except BaseException:
        if fd >= 0:
            os.close(fd)
        raise
    finally:
        if fd >= 0:
            _remove(path)


def _open(path: str) -> int:
    """Return a descriptor of this user's file; -1 if it is not there."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return -1
    status = os.fstat(fd)
    if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
        return fd
    os.close(fd)
    raise Unjudged("damaged")


def _remove_old(folder: str) -> None:
    """Remove this user's archives that killed runs have left."""
    try:
        names = [name for name in os.listdir(folder) if name.startswith("preflight-")]
        for path in [os.path.join(folder, name) for name in names]:
            status = os.lstat(path)
            if status.st_uid == os.geteuid() and time.time() - status.st_mtime > _OLD_S:
                os.unlink(path)
    except OSError:
        return


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return


def _verdict(python: str, archive: int, document: "Document", wanted: "Document", until: float) -> "Document":
    """Run the archive; return the document that it prints."""
    feed = json.dumps({"evidence": document, "judge": wanted}).encode("ascii")
    left = max(until - time.monotonic(), 0.1)
    record = execute(
        [python, "-I", "-S", "/proc/{}/fd/{}".format(os.getpid(), archive)], left, Deadline(left), _CAP, feed
    )
    if record["status"] in ("timeout", "abandoned"):
        raise Unjudged("late")
    if record.get("rc") == _TOO_OLD:
        raise Unjudged("python")
    if record["status"] != "ok" or record.get("rc") != 0:
        raise Unjudged("failed")
    if not record["out"]:
        raise Unjudged("peers")
    try:
        answer = json.loads(record["out"])
    except ValueError:
        raise Unjudged("failed") from None
    return dict(answer) if isinstance(answer, dict) else dict(document, unjudged="failed")
