"""The cluster file of a command without ``--cluster``.

The order is ``--cluster``, ``$PREFLIGHT_CLUSTER``, the copy saved with evidence, the working directory, then the user's
and the system's configuration folders. A gate never searches: its hook names the file.

Other users may be able to write to the working directory, and a clone or an archive may contain a cluster file. So a
file that was found must be a regular file of this user or root that is not world-writable. In the working directory, it
is also rejected if it could start a program: through a group of nodes (ClusterShell runs a command for it) or a folder
of tools.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from preflight.terminal import UsageError, print_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

#: Environment variable that names the cluster file; an empty value disables the search.
VARIABLE = "PREFLIGHT_CLUSTER"

NAME = "cluster.toml"


class ClusterChoice(NamedTuple):
    """A cluster file; ``origin`` is empty if it was named or saved."""

    path: Path | None
    origin: str = ""


def choose_cluster(named: Path | None, *saved: Sequence[Path]) -> ClusterChoice:
    """Return the cluster file of a command; raises UsageError.

    ``saved`` lists evidence paths; the first with a copy is used.
    """
    if named is not None:
        return ClusterChoice(named)
    wanted = os.environ.get(VARIABLE)
    if wanted:
        if not os.path.isfile(wanted):
            reason = "it is not a regular file" if os.path.exists(wanted) else "there is no such file"
            raise UsageError(f"{VARIABLE}={wanted}: {reason}")
        return ClusterChoice(Path(wanted), f"${VARIABLE}")
    if saved:
        from preflight.run.saved_evidence import find_cluster

        for paths in saved:
            if copy := find_cluster(paths):
                return ClusterChoice(copy)
    return ClusterChoice(None) if wanted is not None else _found()


def _found() -> ClusterChoice:
    """Return the first cluster file that is safe to use; warn of unsafe ones."""
    for folder, origin in _places():
        path = Path(folder, NAME)
        try:
            state = path.lstat()
        except OSError:
            continue
        why = why_unsafe(state)
        if not why and origin == _HERE:
            why = _starts_programs(path)
        if not why:
            return ClusterChoice(path, origin)
        print_text(f"warning: {path} is ignored: {why}; to use it, pass --cluster {path}\n", sys.stderr)
    return ClusterChoice(None)


_HERE = "in the working directory"


def _places() -> Iterator[tuple[str, str]]:
    yield ".", _HERE
    own = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    if os.path.isabs(own):  # XDG Base Directory Specification 0.8: a relative path is ignored
        yield f"{own}/preflight", "in your configuration folder"
    yield "/etc/preflight", "in the system's configuration folder"


def why_unsafe(state: os.stat_result) -> str:
    """Return why a file is not safe to use; empty if it is."""
    if not stat.S_ISREG(state.st_mode):
        return "it is not a regular file"
    if state.st_uid not in (0, os.geteuid()):
        return f"it belongs to user {state.st_uid}"
    if state.st_mode & stat.S_IWOTH:
        return "it is world-writable"
    return ""


def _starts_programs(path: Path) -> str:
    from preflight.evidence import safe_read
    from preflight.expectations.cluster_file import decoded_or_none
    from preflight.run.saved_cluster import group_names

    try:
        data: Any = decoded_or_none(safe_read.content(path, safe_read.BY_HAND))
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    if next(group_names(data), ""):
        return "it names a group of nodes, which a command would resolve"
    classes = data.get("class") if isinstance(data, dict) else None
    if any("tools" in members for members in (classes or {}).values() if isinstance(members, dict)):
        return "it names a folder of tools to run"
    return ""
