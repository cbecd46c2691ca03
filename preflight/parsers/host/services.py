"""systemd units, and the fabric manager's version."""

from __future__ import annotations

import re
from collections.abc import Mapping

from preflight._startup.lightclass import dataclass
from preflight.textprep.plain_text import normalize_text

SERVICES = (
    "cmd:systemctl show --property=Id,LoadState,ActiveState,SubState nvidia-fabricmanager.service nvidia-imex.service"
)
FAILED = "cmd:systemctl list-units --state=failed --plain --no-pager --full"
FABRIC_MANAGER = "cmd:nv-fabricmanager --version"


@dataclass(frozen=True)
class Service:
    """One systemd unit and its state."""

    name: str
    load: str  # loaded, not-found, masked, …
    active: str  # active, inactive, failed, activating, …
    sub: str  # running, exited, dead, …
    names: tuple[str, ...] = ()  # all names of the unit, if collected

    @property
    def known(self) -> bool:
        """Whether the unit is installed."""
        return self.load != "not-found"


def parse(text: str) -> Mapping[str, Service]:
    """Read the units in ``systemctl show`` output, by name; raises ValueError.

    Each unit is a block of ``KEY=value`` lines; empty lines separate the blocks.
    """
    found = {}
    for block in re.split(r"\n[ \t]*\n", normalize_text(text).strip()):
        values = dict(line.split("=", 1) for line in block.split("\n") if "=" in line)
        try:
            service = Service(values["Id"], values["LoadState"], values["ActiveState"], values.get("SubState", ""),
                              tuple(values.get("Names", "").split()))  # fmt: skip
        except KeyError as error:
            raise ValueError(f"a block has no {error.args[0]}: {block.strip()[:80]!r}") from None
        found[service.name] = service
    return found


def state_in_words(active: str, sub: str = "") -> str:
    """Return a unit's state as a predicate: ``is inactive (dead)``, ``has failed``."""
    if active == "failed":
        return "has failed" + (f" ({sub})" if sub not in ("", "failed") else "")
    return f"is {active}" + (f" ({sub})" if sub else "")


@dataclass(frozen=True)
class Unit:
    """The name and description of a unit in a list."""

    name: str
    about: str


def parse_units(text: str) -> tuple[Unit, ...]:
    """Read ``systemctl list-units --plain``, with or without bullets.

    The list must end with its count of units, so empty text is rejected. Raises ValueError.
    """
    units: list[Unit] = []
    for line in normalize_text(text).split("\n"):
        if total := re.match(r"\s*([0-9]{1,6}) (?:loaded )?units? listed", line):
            if int(total[1]) != len(units):
                raise ValueError(f"{len(units)} of {total[1]} units are in the list")
            return tuple(units)
        if not line.strip() or re.match(r"\s*UNIT\s+LOAD\s|(?:LOAD|ACTIVE|SUB|JOB)\s+(?:=|→)", line):
            continue
        if not (match := re.fullmatch(r"[●*↻x ]{0,4}([^\s.]\S{0,255}\.[a-z]{4,9})((?: +[a-z-]{2,20}){3})(?: +(.*))?",
                                      line.rstrip())):  # fmt: skip
            raise ValueError(f"{line.strip()[:80]!r} is not a line of systemctl list-units")
        units.append(Unit(match[1], (match[3] or "").strip()))
    raise ValueError("the list of units does not end with their count")


def fabric_manager_version(text: str) -> str:
    """Read ``Fabric Manager version is : 570.124.06``; raises ValueError."""
    if not (
        match := re.search(
            r"version\s{0,9}(?:is)?\s{0,9}:?\s{0,9}([0-9]{3}(?:\.[0-9]{1,4}){1,2})\b", normalize_text(text), re.I
        )
    ):
        raise ValueError(f"{normalize_text(text).strip()[:80]!r} contains no version")
    return match[1]
