"""slurm.conf: the running configuration, and the lines that the hooks need.

Only the difference is computed: nothing here writes slurm.conf.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from preflight._startup.lightclass import dataclass

#: A line of ``scontrol show config``; newer versions number the entries of a list (``Prolog[0]``).
_RUNNING = re.compile(r"(\w+)(?:\[\d+\])?\s*= ?(.*)")

#: Keys whose value is a list that sites extend: missing entries are added.
_LISTS = ("PrologFlags", "SchedulerParameters", "HealthCheckNodeState")

#: Keys of programs: a site's own program is not replaced.
_PROGRAMS = ("Prolog", "Epilog", "HealthCheckProgram")

#: Values that mean "not set"; 65534 is used for timeouts in 22.05.
_UNSET = ("", "0", "65534")

#: List -> the entry that includes all others.
_ANY = {"HealthCheckNodeState": "ANY"}


@dataclass(frozen=True)
class ConfLine:
    """A key of slurm.conf: the running value, and the value that the hooks need.

    ``conflict``: the running value is a program of the site, which is not replaced.
    """

    key: str
    running: str
    needed: str
    conflict: bool = False

    @property
    def differs(self) -> bool:
        """Whether slurm.conf must change."""
        return not self.conflict and _parts(self.running) != _parts(self.needed)

    @property
    def line(self) -> str:
        """The line for slurm.conf; a comment for a site's program."""
        return f"# not replaced: {self.key}={self.running}" if self.conflict else f"{self.key}={self.needed}"


def running(text: str) -> dict[str, str]:
    """Parse the output of ``scontrol show config`` into values by key."""
    config: dict[str, str] = {}
    for line in text.splitlines():
        if match := _RUNNING.fullmatch(line.rstrip()):
            value = "" if match[2] == "(null)" else match[2].removesuffix(" sec")
            config[match[1]] = ",".join(filter(None, (config.get(match[1], ""), value)))
    return config


def wanted(text: str) -> list[tuple[str, str]]:
    """Return the keys and values of a slurm.conf fragment, without comments."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [(key, value) for key, _, value in (line.partition("=") for line in lines if line)]


def difference(fragment: str, config: Mapping[str, str]) -> list[ConfLine]:
    """Compare the lines of a fragment with the running configuration."""
    return [_compared(key, value, config.get(key, "")) for key, value in wanted(fragment)]


def removal(files: Collection[str], config: Mapping[str, str]) -> list[ConfLine]:
    """Return the lines with which Slurm still runs one of these files."""
    return [ConfLine(key, value, "") for key, value in config.items() if not set(value.split(",")).isdisjoint(files)]


def _compared(key: str, needed: str, now: str) -> ConfLine:
    if key in _LISTS:
        have = [part for part in now.split(",") if part not in _UNSET]
        if key in _ANY and have and _ANY[key] not in have:
            have = []  # a list of states without ANY leaves drained nodes out
        missing = [part for part in needed.split(",") if part.lower() not in map(str.lower, have)]
        return ConfLine(key, now, ",".join(sorted((*have, *missing))))  # scontrol prints them in another order
    if key in _PROGRAMS:
        return ConfLine(key, now, needed, conflict=now not in ("", needed))
    # a number: the site's is not changed
    return ConfLine(key, "" if now in _UNSET else now, needed if now in _UNSET else now)


def _parts(value: str) -> list[str]:
    return sorted(value.lower().split(","))


def as_difference(lines: Sequence[ConfLine]) -> list[str]:
    """Return the changes as lines of a unified difference."""
    changes = []
    for line in lines:
        if line.differs:
            changes += [f"-{line.key}={line.running}"] * bool(line.running) + [f"+{line.key}={line.needed}"]
    return changes
