"""The options of ``preflight gate``; imported before every job."""

from __future__ import annotations

import os

from preflight._startup import fast_options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

#: Flags.
_FLAGS = ("strict", "dry_run", "refresh")

#: Options that name a file or directory, relative to the working directory.
_PATHS = ("cluster", "state_dir", "textfile", "termination_log", "report_dir", "verdicts", "ssh_config")

#: Bounds of --deadline, seconds.
DEADLINES = (1.0, 3600.0)


class Options:
    """The options of a hook; None or False if not given."""

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
        for name in self.__slots__:
            if name == "hook":
                continue
            value = values.pop(name, None)
            if isinstance(value, str) and name in _PATHS:
                value = os.path.abspath(value)
            setattr(self, name, bool(value) if name in _FLAGS else value)
        if values:
            raise TypeError(f"no such option: {', '.join(values)}")


def parse_plain(words: Sequence[str]) -> Options | None:
    """Parse ``HOOK [--OPTION VALUE | --FLAG]…``; None if click must handle it."""
    values = fast_options.parse("gate", words)
    if values is None or values["hook"] in (None, "status"):
        return None
    return Options(**values)
