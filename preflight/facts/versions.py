"""Versions of installed software from file names.

No file is imported or executed. ``find -printf`` lists the driver's libraries and the system's NCCL in the
directories of the loader; PyTorch and its NCCL are identified by the names of their ``dist-info`` directories.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable

from preflight._startup.lightclass import dataclass
from preflight.evidence.document import Evidence

#: Record key of the search in the library directories of Debian, Red Hat and NVIDIA's containers, as in
#: ``preflight.probes.node``.
LIBRARIES = (
    "cmd:find -H /usr/lib/x86_64-linux-gnu /usr/lib/aarch64-linux-gnu /usr/lib64 /usr/local/cuda/lib64"
    " /usr/local/nvidia/lib64 /usr/local/lib -maxdepth 1 ( -name libnvidia-ml.so* -o -name libcuda.so*"
    " -o -name libnvidia-ptxjitcompiler.so* -o -name libnccl*.so* ) -printf '%s %p %l\\n'"
)


@dataclass(frozen=True)
class Library:
    """One file of a shared library, or a link to one."""

    path: str
    size_bytes: int  # for a link, the size of the link itself
    target: str  # target of a link; empty for a file

    @property
    def name(self) -> str:
        """The file's name."""
        return posixpath.basename(self.path)

    @property
    def version(self) -> str:
        """The version in the name: ``570.124.06`` in ``libcuda.so.570.124.06``.

        Empty if there is none.
        """
        match = re.search(r"\.so\.(\d{1,4}(?:\.\d{1,6}){1,3})$", self.name)
        return match[1] if match else ""


def parse_libraries(text: str) -> tuple[Library, ...]:
    """Parse ``SIZE PATH TARGET`` lines; raises a ValueError with the faulty line."""
    found = []
    for line in text.splitlines():
        if not line.strip():
            continue
        match = re.fullmatch(r"(\d{1,15}) (/\S+)(?: (\S*))?", line.rstrip())
        if not match:
            raise ValueError(f"{line.strip()[:80]!r} is not a size, a path and a target")
        found.append(Library(match[2], int(match[1]), match[3] or ""))
    return tuple(found)


def nccl_in_use(libraries: Iterable[Library]) -> dict[str, str]:
    """Return directory -> version of the system's NCCL.

    The version is in the name of the file that the link ``libnccl.so.2`` points to.
    """
    found = {}
    for library in libraries:
        if library.name == "libnccl.so.2" and library.target:
            version = Library(posixpath.basename(library.target), 0, "").version
            if version:
                found[posixpath.dirname(library.path)] = version
    return found


@dataclass(frozen=True)
class Package:
    """One installed Python package."""

    name: str  # torch, nvidia_nccl_cu12
    version: str
    directory: str  # the site-packages directory


def packages(evidence: Evidence) -> tuple[Package, ...]:
    """Return the PyTorch and NCCL packages in all searched directories.

    The names of their ``dist-info`` directories identify them.
    """
    keys = [key for key in sorted(evidence.records) if key.endswith(".dist-info/INSTALLER") and "*" not in key]
    return tuple(package for key in keys if (package := _package(key)) is not None)


def _package(key: str) -> Package | None:
    path = posixpath.dirname(key.removeprefix("file:"))
    match = re.fullmatch(r"(torch|nvidia_nccl_cu\d{1,3})-([\w.+!]{1,60})\.dist-info", posixpath.basename(path))
    return Package(match[1], match[2], posixpath.dirname(path)) if match else None
