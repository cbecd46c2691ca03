"""``mount`` and ``findmnt``: mounted file systems and their options.

Sources: mount(8), findmnt(8).
"""

from __future__ import annotations

import re
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import block
from preflight.textprep.agreement import counted
from preflight.textprep.lines import Lines

HINTS = (" type ", "TARGET", "FSTYPE")

_MOUNT = re.compile(r"(\S{1,400}) on (/\S{0,400}) type ([\w.-]{1,40}) \(([\w=,.:@/<> %+-]{1,2000})\)")
_FIND_HEAD = re.compile(r"TARGET\s+SOURCE\s+FSTYPE\s+OPTIONS\s*")
_FIND = re.compile(r"[\s├└│─|`-]{0,40}(/\S{0,400})\s+(\S{1,400})\s+([\w.-]{1,40})\s+((?:rw|ro)(?:,\S{1,2000})?)\s*")

_SIZE = re.compile(r"size=(\d{1,15})([kmgKMG]?)")
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}


@dataclass(frozen=True)
class MountedPlace:
    """One mounted file system."""

    source: str
    place: str
    kind: str
    options: tuple[str, ...]
    line: int

    @property
    def read_only(self) -> bool:
        """Whether the file system is mounted read-only."""
        return "ro" in self.options

    @property
    def size(self) -> int | None:
        """The size option in bytes; None without one, or if it is a share of the memory."""
        match = next(filter(None, map(_SIZE.fullmatch, self.options)), None)
        return int(match[1]) * _UNITS[match[2].lower()] if match else None


def begins(lines: Lines, at: int) -> bool:
    """Return whether a list of mounts begins at a line."""
    return _MOUNT.fullmatch(lines[at].text) is not None or _FIND_HEAD.fullmatch(lines[at].text) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[tuple[MountedPlace, ...]]:
    """Read the rows starting at a line."""
    end, taken = block(lines, at, lambda text: _row(text) is not None, blanks=0)
    places = tuple(
        MountedPlace(*row, line.number) for line in taken if (row := _row(line.text)) is not None
    )  # fmt: skip
    cut = end < len(lines) and end == len(lines) - 1 and bool(lines[end].text.strip())
    return Parsed(places, (ParseGap(lines[end].number, "a truncated row"),) if cut else (), end)


def _row(text: str) -> tuple[str, str, str, tuple[str, ...]] | None:
    if match := _MOUNT.fullmatch(text):
        return match[1], match[2], match[3], tuple(match[4].split(","))
    if match := _FIND.fullmatch(text):
        return match[2], match[1], match[3], tuple(match[4].split(","))
    return None


def facts(places: tuple[MountedPlace, ...]) -> dict[str, Any]:
    """Return the mounts as `preflight read --json` prints them."""
    return {
        "mounts": [
            {"source": mount.source, "place": mount.place, "type": mount.kind, "options": list(mount.options),
             "line": mount.line}
            for mount in places
        ]
    }  # fmt: skip


def summary(places: tuple[MountedPlace, ...]) -> str:
    """Return a one-line summary of the mounts."""
    return counted(len(places), "mounted file system")
