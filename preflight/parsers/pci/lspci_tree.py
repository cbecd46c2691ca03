r"""``lspci -t``, ``-tv`` and ``-tvnn``: the tree of buses and its addresses.

    -+-[0000:40]-+-00.0  Advanced Micro Devices, Inc. [AMD] Root Complex
     |           \-03.1-[43]--+-00.0  NVIDIA Corporation Device 2330
     |                        \-00.1  NVIDIA Corporation Device 10ef
     \-[0000:00]---1f.0  …

A device is on the bus of the bridge to its left. Columns are not counted, because pastes lose spaces. Instead, a bar
marks a bridge with more devices below, and ``\-`` marks the last device of a bridge.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from preflight.parsers.parsed import ParseGap
from preflight.textprep.lines import Lines

_BUS = r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2})(?:-[0-9a-f]{2})?"
_ROOT = re.compile(rf"\s*-(\+-)?(?=\[{_BUS}\]-)")
#: The backslash is optional: Markdown shows ``\-`` as ``-``.
_BRANCH = re.compile(r"([\s|]*)([+\\]?)-(?=\[|[0-9a-f]{2}\.[0-7])")
_HOST = re.compile(rf"\[{_BUS}\](-\+-|-{{2,}}|-?$)")
_DEVICE = re.compile(rf"([0-9a-f]{{2}}\.[0-7])(?:-\[{_BUS}\](--\+-|-{{3,}}|-{{0,2}}(?=\s|$)))?")
#: Maximum nesting of bridges.
_DEEPEST = 64


@dataclass
class _Level:
    """A bus that is open while the tree is read.

    At the level of the host bridges, ``bus`` is empty. If ``more``, another device of the bus must follow.
    """

    bus: str
    more: bool


def begins(text: str) -> bool:
    """Return whether a line is the first line of a tree."""
    return "[" in text and bool(_ROOT.match(text))


def take(lines: Lines, at: int) -> tuple[int, list[tuple[str, str | None]], list[ParseGap]]:
    """Return the index after a tree, its devices (address and name), and gaps."""
    tree = _Tree()
    end = at
    while end < len(lines) and tree.line(lines[end].text):
        end += 1
    last = max(at, end - 1)
    cut = [ParseGap(lines[last].number, "the tree is truncated")] if any(level.more for level in tree.levels) else []
    return max(end, at + 1), tree.devices, cut


class _Tree:
    def __init__(self) -> None:
        self.levels: list[_Level] = []
        self.devices: list[tuple[str, str | None]] = []

    def line(self, text: str) -> bool:
        """Read a line; return whether it belongs to the tree."""
        if not self.levels:
            if not (match := _ROOT.match(text)):
                return False
            self.levels = [_Level("", bool(match[1]))]
        else:
            open_ = [place for place, level in enumerate(self.levels) if level.more]
            match = _BRANCH.match(text)
            if not match or (bars := match[1].count("|")) >= len(open_):
                return False
            if (text[match.end()] == "[") != (not self.levels[open_[bars]].bus):
                return False  # a different tree
            del self.levels[open_[bars] + 1 :]
            self.levels[-1].more = match[2] == "+"
        self._read(text, match.end())
        return True

    def _read(self, text: str, at: int) -> None:
        while len(self.levels) < _DEEPEST:
            bus = self.levels[-1].bus
            match = _DEVICE.match(text, at) if bus else _HOST.match(text, at)
            if not match:
                return
            at = match.end()
            domain, number, link = match.groups()[-3:]
            if bus:
                name = text[at:].strip() if number is None else ""
                self.devices.append((f"{bus}:{match[1]}", name or None))
                domain = domain or bus.rpartition(":")[0]
            if number is None or not link or link in ("-", "--"):
                return
            self.levels.append(_Level(f"{domain}:{number}" if domain else number, "+" in link))


__all__ = ["begins", "take"]
