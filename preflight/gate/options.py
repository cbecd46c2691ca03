"""The options of ``preflight gate``, and a reader of the plain ones that needs no library.

Anything it does not understand is left to ``preflight.commands.gate``, which explains itself. Imported before
every job.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

#: Options that take a value, and flags; each becomes an attribute.
VALUES = (
    "cluster", "state-dir", "deadline", "textfile", "termination-log", "report-dir", "hosts", "verdicts", "node",
    "ssh-config",
)  # fmt: skip
FLAGS = ("strict", "dry-run", "refresh")

#: Those that name a file or directory: relative to where we were called.
_PATHS = ("cluster", "state-dir", "textfile", "termination-log", "report-dir", "verdicts", "ssh-config")

#: Bounds of --deadline, seconds.
DEADLINES = (1.0, 3600.0)


class Options:
    """The options of a hook; None and False where not given."""

    __slots__ = (
        "cluster", "deadline", "dry_run", "hook", "hosts", "node", "refresh", "report_dir", "ssh_config", "state_dir",
        "strict", "termination_log", "textfile", "verdicts",
    )  # fmt: skip

    cluster: str | None
    state_dir: str | None
    textfile: str | None
    termination_log: str | None
    report_dir: str | None
    hosts: str | None
    verdicts: str | None
    node: str | None
    ssh_config: str | None
    deadline: float | None
    strict: bool
    dry_run: bool
    refresh: bool

    def __init__(self, hook: str, **values: object) -> None:
        self.hook = hook
        for name in VALUES:
            value = values.pop(name.replace("-", "_"), None)
            if isinstance(value, str) and name in _PATHS:
                value = os.path.abspath(value)
            setattr(self, name.replace("-", "_"), value)
        for name in FLAGS:
            setattr(self, name.replace("-", "_"), bool(values.pop(name.replace("-", "_"), False)))
        if values:
            raise TypeError(f"no such option: {', '.join(values)}")


def parse_plain(words: Sequence[str], hooks: Sequence[str]) -> Options | None:
    """Read ``HOOK [--OPTION VALUE | --OPTION=VALUE | --FLAG]…``; None for anything else, right or wrong."""
    hook, values = "", dict[str, object]()
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            if hook or word not in hooks:
                return None
            hook = word
            continue
        name, equals, value = word[2:].partition("=")
        if name in FLAGS and not equals:
            values[name.replace("-", "_")] = True
            continue
        if name not in VALUES or name.replace("-", "_") in values or not (equals or rest):
            return None
        value = value if equals else rest.pop(0)
        if not value or value.startswith("-"):
            return None
        values[name.replace("-", "_")] = value
    if not hook:
        return None
    if "deadline" in values:
        try:
            seconds = float(str(values["deadline"]))
        except ValueError:
            return None
        if not DEADLINES[0] <= seconds <= DEADLINES[1]:
            return None
        values["deadline"] = seconds
    return Options(hook, **values)
