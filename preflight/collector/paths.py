"""Path patterns on the node: ``{a,b}`` for alternatives, ``*`` for any text."""

import os
import re

from .records import name as as_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterator, List, Set

_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")


def is_pattern(path: str) -> bool:
    """Return whether a path is a pattern."""
    return "*" in path or bool(_BRACES.search(path))


def home(path: str) -> str:
    """Return the path with a leading ``~/`` replaced by this user's home directory."""
    return os.path.expanduser(path) if path.startswith("~/") else path


def alternatives(path: str) -> "List[str]":
    """Expand ``{a,b}``; each alternative is one path, or one pattern with only ``*``."""
    found = _BRACES.search(path)
    if not found:
        return [path]
    head, tail = path[: found.start()], path[found.end() :]
    return [expanded for part in found.group(1).split(",") for expanded in alternatives(head + part + tail)]


def fixed(pattern: str) -> str:
    """Return the directory above the first ``*``, or above the path if it has none."""
    return os.path.dirname(pattern.split("*", 1)[0]) if "*" in pattern else os.path.dirname(pattern)


def matches(pattern: str) -> "Iterator[str]":
    """Yield the paths that match a pattern with ``*``, in sorted order.

    The part after the last ``*`` need not exist: a missing file below an existing directory is also a path. Raises
    OSError for an existing directory that cannot be listed.
    """
    return _below("", pattern.split("/"))


def _below(folder: str, parts: "List[str]") -> "Iterator[str]":
    """Yield the paths that match a pattern's parts below a literal folder."""
    first = next((i for i, part in enumerate(parts) if "*" in part), None)
    lead = "/".join(parts[:first])
    if folder:
        lead = folder + "/" + lead if lead else folder
    if first is None:
        yield lead
        return
    wanted, rest = parts[first], parts[first + 1 :]
    begin = wanted.split("*", 1)[0]
    try:
        names = os.listdir(lead or ("/" if parts[0] == "" else "."))
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in sorted(name for name in names if name.startswith(begin)):
        if _fits(entry, wanted) and (wanted.startswith(".") or not entry.startswith(".")):
            path = lead + "/" + entry if first or folder else entry
            if not rest or os.path.isdir(path):
                for match in _below(path, rest) if rest else (path,):
                    yield match


def in_key(path: str) -> str:
    """Format a path for a record's key, where ``*`` marks a pattern."""
    return as_text(path).replace("*", "\\x2a")


def _fits(entry: str, wanted: str) -> bool:
    """Return whether a name matches a pattern with ``*``.

    A regular expression would take longer to compile.
    """
    first, *middle, last = wanted.split("*")
    at, end = len(first), len(entry) - len(last)
    if at > end or not (entry.startswith(first) and entry.endswith(last)):
        return False
    for piece in middle:
        found = entry.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True


def names(patterns: "List[str]") -> "Dict[str, bool]":
    """Return the sorted base names of matches, and whether each is a safe argument."""
    found: Set[str] = set()
    for pattern in patterns:
        for alternative in alternatives(home(pattern)):
            found.update(os.path.basename(path) for path in matches(alternative) if os.path.lexists(path))
    return {name: not name.startswith("-") and name.isprintable() and " " not in name for name in sorted(found)}
