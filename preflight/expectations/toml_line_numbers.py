"""Line numbers of TOML keys, from the TOML parser itself.

This avoids a separate grammar.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

#: Maximum characters parsed to find lines, some seconds: a key without its line is better than no answer.
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
    """Finds lines in one text."""

    def __init__(self, text: str) -> None:
        """Record where a statement may begin.

        The text up to the previous line may be complete.
        """
        lines = text.splitlines(keepends=True)
        self._ends = [0]  # lengths of prefixes of the text that may parse, in characters
        self._numbers = [0]  # number of lines of each
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
        """Return the line of a key, or of its table if missing; None if not found."""
        for length in range(len(path), 0, -1):
            if line := self._of(path[:length]):
                return line
        return None

    def _of(self, path: Sequence[str | int]) -> int | None:
        without, end = 0, len(self._ends)  # the first parses without the key, the second with it
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
        """Return whether a prefix of the text has a key; None if it does not parse."""
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
