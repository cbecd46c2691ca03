"""Line numbers of TOML keys, found with the TOML parser.

This avoids a second grammar.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

#: Maximum number of characters parsed to find lines, which takes a few seconds. Beyond it, errors have no line.
_MOST_PARSED = 4_000_000


def decoded(text: str) -> dict[str, Any]:
    """Decode TOML; raises ValueError or RecursionError."""
    # import-at-use: not needed without a cluster file
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    found: dict[str, Any] = tomllib.loads(text)
    return found


class Lines:
    """Line numbers of the keys in one TOML text."""

    def __init__(self, text: str) -> None:
        """Find the lines at which a statement may begin.

        The text before such a line may be complete TOML.
        """
        lines = text.splitlines(keepends=True)
        self._ends = [0]  # lengths in characters of the prefixes that may be complete TOML
        self._numbers = [0]  # number of lines in each prefix
        length = 0
        for number, line in enumerate(lines, 1):
            length += len(line)
            after = lines[number].lstrip() if number < len(lines) else "["
            if after.startswith("[") or ("=" in after and not after.startswith("#")):
                self._ends.append(length)
                self._numbers.append(number)
        self._text = text
        self._left = _MOST_PARSED

    def of(self, path: Sequence[str | int]) -> int | None:
        """Return the line of a key, else of its table; None if neither is found."""
        for length in range(len(path), 0, -1):
            if line := self._of(path[:length]):
                return line
        return None

    def _of(self, path: Sequence[str | int]) -> int | None:
        without, end = 0, len(self._ends)  # indices of prefixes: without the key, and with it
        if not self._has(end - 1, path):
            return None
        end -= 1
        while end - without > 1:
            middle = (without + end) // 2
            found = None
            at = middle
            while at < end and (found := self._has(at, path)) is None:
                at += 1
            if self._left < 0:
                return None
            if found is False:
                without = at
            else:
                end = middle
        return self._numbers[without] + 1

    def _has(self, index: int, path: Sequence[str | int]) -> bool | None:
        """Return whether a prefix of the text has a key; None if it cannot be parsed."""
        self._left -= self._ends[index]
        if self._left < 0:
            return None
        try:
            data: Any = decoded(self._text[: self._ends[index]])
        except (ValueError, RecursionError):
            return None
        for part in path:
            if isinstance(part, int):
                data = data[part] if isinstance(data, list) and part < len(data) else None
            else:
                data = data.get(part) if isinstance(data, dict) else None
        return data is not None
