"""The files that decide a verdict: checks, judge and what they import.

Two installations with the same files reach the same verdict on the same evidence; their hash is part of every verdict.
"""

from __future__ import annotations

import hashlib
import io
import stat
import zipfile
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from preflight._startup import lazy_checks
from preflight.checks import MODULES
from preflight.checks._registry import lazy

if TYPE_CHECKING:
    from importlib.abc import Traversable

#: Packages and modules of preflight whose files decide a verdict.
_OURS = ("__init__.py", "_startup", "bench", "checklist", "checks", "collector", "errors.py", "evidence",
         "expectations", "facts", "incidents", "judge", "layout", "model", "nodeset.py", "parsers", "probes",
         "recognition", "reports", "schemas", "textprep", "version.py")  # fmt: skip

#: Endings of the files that count, and packages in which only Python files do.
_ENDINGS, _ONLY_CODE = (".py", ".json", ".toml", ".txt"), ("reports",)

#: Generated from the other files; absent in a clone that was not installed.
_GENERATED = "_startup/generated_"

_EPOCH = (1980, 1, 1, 0, 0, 0)

_MAIN = b"""\
import sys

if sys.version_info < (3, 10):
    sys.exit(97)

from preflight.judge.on_node import main

if __name__ == "__main__":
    main()
"""


@cache
def code_hash() -> str:
    """Return the hash of the files that decide a verdict."""
    hashed = hashlib.sha256()
    for name, content in sorted(_files().items()):
        if not name.startswith(_GENERATED):
            hashed.update(b"%s %d\n" % (name.encode(), len(content)))
            hashed.update(content)
    return hashed.hexdigest()


@cache
def archive() -> bytes:
    """Return these files as a zip archive that judges a node (``on_node``).

    It is deterministic, and runs with Python 3.10 or newer without any other package.
    """
    files = dict(_files())
    if not _has_current_tables():
        files = {name: content for name, content in files.items() if not name.startswith(_GENERATED)}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as members:
        for name, content in [("__main__.py", _MAIN), *((f"preflight/{name}", files[name]) for name in sorted(files))]:
            member = zipfile.ZipInfo(name, _EPOCH)
            member.compress_type, member.create_system = zipfile.ZIP_DEFLATED, 3
            member.external_attr = (stat.S_IFREG | 0o644) << 16
            members.writestr(member, content)
    return packed.getvalue()


def _has_current_tables() -> bool:
    return bool(lazy_checks.table()) and all(map(lazy.is_current, MODULES))


@cache
def _files() -> Mapping[str, bytes]:
    top = resources.files("preflight")
    return {name: content for entry in _OURS for name, content in _tree(top / entry, entry)}


def _tree(entry: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    if entry.is_dir():
        for part in entry.iterdir():
            if not part.name.startswith((".", "__pycache__")):
                yield from _tree(part, f"{name}/{part.name}")
    elif name.endswith(_ENDINGS) and (name.endswith(".py") or not name.startswith(_ONLY_CODE)):
        yield name, entry.read_bytes()
