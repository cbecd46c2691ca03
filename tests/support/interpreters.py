"""Python interpreters of this machine."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

NAMES = (*(f"python3.{minor}" for minor in range(6, 16)), "python3", "pypy3")
IDENTIFY = (
    "import sys; print(sys.implementation.name, *sys.version_info[:2]); "
    "print(getattr(sys, '_base_executable', sys.executable) or sys.executable)"
)


def identify(path: str) -> tuple[str, str] | None:
    """Return the version of an interpreter and its real path, if it can run."""
    try:
        done = subprocess.run([path, "-I", "-c", IDENTIFY], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = done.stdout.splitlines()
    return (lines[0], lines[1]) if done.returncode == 0 and len(lines) == 2 else None


def candidates() -> list[str]:
    """Return possible interpreters: by name in PATH and in the system, and those beside ours."""
    found = [sys.executable]
    for name in NAMES:
        found += [path for path in (shutil.which(name), shutil.which(name, path="/usr/bin:/usr/local/bin")) if path]
    return found + [str(path) for path in sorted(Path(sys.base_prefix).parent.glob("*/bin/python3"))]


@cache
def interpreters() -> dict[str, str]:
    """Return the path of one interpreter of each version, such as ``cpython 3 11``."""
    found: dict[str, str] = {}
    for path in candidates():
        known = identify(path)  # a shim of a version that is not active does not run
        if known:
            found.setdefault(known[0], path if path == sys.executable else known[1])
    return dict(sorted(found.items()))
