"""Commands that need root: ``sudo -n`` if the plan allows it, tried once."""

import os
import re
import threading

from .commands import execute
from .records import Deadline, Record
from .tools import find

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, List

_REFUSAL = re.compile(r"^(sudo: .*|Sorry, .*|.* is not in the sudoers file.*|.* may not run sudo.*)$", re.M)
_ORDINARY = "run as an ordinary user; needs root (--sudo)"


class Privilege:
    """How this run may use root; shared by all its workers.

    The first refusal of sudo is saved, and later commands run without root: every further call would add an entry to
    the site's security log.
    """

    def __init__(self, allowed: bool, note: "Callable[[str], None]") -> None:
        """Set ``allowed`` from the plan; ``note`` is called with the first refusal."""
        self.is_root = os.geteuid() == 0
        self._allowed = allowed and not self.is_root
        self._note = note
        self._first = threading.Lock()
        self._works = False
        self._refused = ""

    def execute(self, argv: "List[str]", begin: "Callable[[], None]", *limits: "Any") -> Record:
        """Run a command that needs root; ``limits`` are those of ``commands.execute``.

        ``begin`` is called after any wait for another worker's first call of sudo.
        """
        if not self._allowed:
            return self._ordinary(argv, "" if self.is_root else _ORDINARY, *limits)
        with self._first:
            if not self._works and not self._refused:
                begin()
                return self._sudo(argv, *limits)
        begin()
        return self._ordinary(argv, self._refused, *limits) if self._refused else self._sudo(argv, *limits)

    def _ordinary(self, argv: "List[str]", why: str, *limits: "Any") -> Record:
        """Run a command without root; if it fails, note that it may have needed root."""
        record = execute(argv, *limits)
        if why and record["status"] == "ok" and record["rc"] != 0:
            record["why"] = "; ".join(part for part in (record.get("why"), why) if part)
        return record

    def _sudo(self, argv: "List[str]", timeout_s: float, deadline: Deadline, cap: int) -> Record:
        try:
            sudo = find("sudo")
        except OSError as error:
            self._refuse(str(error.strerror))
            return self._ordinary(argv, self._refused, timeout_s, deadline, cap)
        record = execute([sudo, "-n", "--", *argv], timeout_s, deadline, cap)
        match = _REFUSAL.search(record.get("err", ""))
        if not self._works and record.get("rc") == 1 and match:
            self._refuse(match.group())
            return self._ordinary(argv, self._refused, timeout_s, deadline, cap)
        self._works = True
        return record

    def _refuse(self, reason: str) -> None:
        self._refused = "needs root, but sudo denies it: " + reason
        self._note(self._refused)
