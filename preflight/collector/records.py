"""Vocabulary of records: statuses, text, time limits."""

import errno
import os
import time

# Importing typing would take longer than the rest of the package, so modules import it only for the type checker.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict

    Record = Dict[str, Any]
else:
    Record = dict

_STATUS = {
    errno.ENOENT: "missing",
    errno.ENOTDIR: "missing",
    errno.EACCES: "denied",
    errno.EPERM: "denied",
}


class Deadline:
    """The moment, on the monotonic clock, at which the run must end."""

    def __init__(self, seconds: float) -> None:
        """Set the deadline ``seconds`` from now."""
        self.seconds = seconds
        self.at = time.monotonic() + seconds

    @property
    def passed(self) -> bool:
        """Whether the run's time is over."""
        return time.monotonic() >= self.at

    @property
    def why(self) -> str:
        """The reason recorded for a probe that the deadline ended."""
        return "the run's deadline of {:g} s expired first".format(self.seconds)


def text(raw: bytes) -> str:
    """Decode output of a node; bytes that are not UTF-8 become ``\\xNN``."""
    return raw.decode("utf-8", "backslashreplace")


def name(raw: str) -> str:
    """Return a file name as text that JSON can carry."""
    return text(os.fsencode(raw))


def refusal(error: OSError, subject: str = "") -> Record:
    """Return the record of an OSError; its reason starts with ``subject``, if given."""
    reason = error.strerror or str(error)
    return {
        "status": _STATUS.get(error.errno or 0, "error"),
        "why": "{}: {}".format(subject, reason) if subject else reason,
    }
