"""Absolute paths of files in error messages."""

from __future__ import annotations

import re

#: A path in quotes, which may contain spaces, or after a space or a colon.
_PATH = re.compile(r"'(/[^'\n]{1,1000})'|\"(/[^\"\n]{1,1000})\"|(?:^|[\s:=(])(/[^\s'\":,;()]{1,1000})")

#: Maximum number of characters of a message that are examined, and of paths.
_LONGEST, _MOST = 2000, 8


def paths_in(message: str) -> tuple[str, ...]:
    """Return the absolute paths that a message names."""
    paths = (path for groups in _PATH.findall(message[:_LONGEST]) for path in groups if path)
    return tuple(dict.fromkeys(paths))[:_MOST]
