"""The manifest of gcm's health checks: a node's PCI devices, ports and disks."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.evidence import json_limits

#: Maximum characters of a manifest, and maximum members of each of its objects.
LONGEST, MOST_MEMBERS = 1 << 20, 2000

KeyPath = tuple[str, ...]

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|\n')


@dataclass(frozen=True)
class Manifest:
    """The values of a manifest, and the line of each key."""

    values: Mapping[str, Any]
    lines: Mapping[KeyPath, int]
    repeated: tuple[KeyPath, ...]  # keys that occur more than once in an object; the last value is used

    def line(self, *path: str) -> int:
        """Return the line of a key, else of the closest enclosing one, else 1."""
        while path:
            if path in self.lines:
                return self.lines[path]
            path = path[:-1]
        return 1

    def table(self, name: str) -> Mapping[str, Any]:
        """Return an object of the manifest; empty if it is absent or not an object."""
        value = self.values.get(name)
        return value if isinstance(value, dict) else {}


def parse(text: str) -> Manifest:
    """Read a manifest; raises ValueError."""
    if len(text) > LONGEST:
        raise ValueError(f"has more than {LONGEST} characters")
    values = json_limits.text(text)
    if not isinstance(values, dict):
        raise ValueError("is not a JSON object")
    for name, inner in values.items():
        if isinstance(inner, dict) and len(inner) > MOST_MEMBERS:
            raise ValueError(f"{str(name)[:60]!r} has more than {MOST_MEMBERS} members")
    lines, repeated = _places(text)
    return Manifest(values, lines, tuple(repeated))


def _places(text: str) -> tuple[dict[KeyPath, int], list[KeyPath]]:
    """Return the line of each key down to the fourth level, and the repeated keys."""
    lines: dict[KeyPath, int] = {}
    repeated: list[KeyPath] = []
    number = 1
    path: list[str | None] = []  # the key of each open object, None in a list
    last: tuple[str, int] | None = None
    for token in _TOKEN.finditer(text):
        sign = token[0]
        if sign == "\n":
            number += 1
        elif sign in "{[":
            path.append("" if sign == "{" else None)
        elif sign in "}]":
            path.pop()
            last = None
        elif sign == ":" and last is not None and path and path[-1] is not None:
            path[-1] = last[0]
            if len(path) <= 4 and None not in path:
                place = tuple(name or "" for name in path)
                if place in lines:
                    repeated.append(place)
                lines[place] = last[1]
        elif sign[0] == '"':
            last = json.loads(sign, strict=False), number
            number += sign.count("\n")
        elif sign == ",":
            last = None
    return lines, repeated
