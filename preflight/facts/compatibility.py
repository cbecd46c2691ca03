"""CUDA versions of PyTorch and NCCL, and the drivers that support them.

Sources: ``torch/version.py``, which PyTorch's build writes, and the names of ``dist-info`` directories; NVIDIA, CUDA
Compatibility: the oldest driver of each major version, within which all minor versions run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from preflight._startup.lightclass import dataclass
from preflight.evidence.document import Evidence, EvidenceError
from preflight.facts.versions import Package

GUIDE = "https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html"

#: Oldest driver of each major version of CUDA on Linux (the guide's table of minor-version compatibility).
OLDEST_DRIVER = {11: (450, 80, 2), 12: (525, 60, 13), 13: (580,)}

#: Location of NVIDIA's forward-compatibility libcuda for older drivers.
FORWARD = "dir:/usr/local/cuda/compat"

_CUDA = re.compile(
    r"^cuda(?:: ?[\w\[\]., |]{1,40})? ?= ?(?:None|['\"]([0-9]{1,3}(?:\.[0-9]{1,3}){1,2})['\"])", re.MULTILINE
)


@dataclass(frozen=True)
class Build:
    """The CUDA version of a PyTorch build."""

    package: Package
    cuda: str | None  # "12.4"; None: without CUDA
    evidence: str

    @property
    def major(self) -> int | None:
        """The major CUDA version; None without CUDA."""
        return int(self.cuda.partition(".")[0]) if self.cuda else None


def built_for(text: str) -> str | None:
    """Read CUDA's version in ``torch/version.py``; raises ValueError.

    For example ``12.4``; None if built without CUDA.
    """
    if not (match := _CUDA.search(text)):
        raise ValueError(f"{text.strip()[:60]!r} does not name PyTorch's CUDA version")
    return match[1]


def build(evidence: Evidence, package: Package) -> Build:
    """Return the CUDA version of a PyTorch package; raises EvidenceError.

    It comes from version.py, or else from ``+cu124`` in the package version.
    """
    key = f"file:{package.directory}/torch/version.py"
    try:
        return Build(package, built_for(evidence.text(key)), key)
    except EvidenceError as error:
        unread = error
    except ValueError as error:
        raise EvidenceError(key, str(error)) from None
    local = re.fullmatch(r"[^+]{1,40}\+(?:cu([0-9]{2})([0-9])|(cpu))", package.version)
    if not local:
        raise unread
    return Build(package, f"{local[1]}.{local[2]}" if local[1] else None, f"file:{_installer(package)}")


def _installer(package: Package) -> str:
    return f"{package.directory}/{package.name}-{package.version}.dist-info/INSTALLER"


def nccl_beside(packages: Sequence[Package], torch: Package) -> tuple[tuple[int, Package], ...]:
    """Return NCCL packages in PyTorch's directory, with their CUDA major versions."""
    return tuple(
        (int(match[1]), package)
        for package in packages
        if package.directory == torch.directory and (match := re.fullmatch(r"nvidia_nccl_cu(\d{1,3})", package.name))
    )


def driver_version(text: str) -> tuple[int, ...]:
    """Parse a driver's version, such as ``550.54.15``; raises ValueError."""
    if not re.fullmatch(r"[0-9]{3,4}(\.[0-9]{1,4}){1,3}", text):
        raise ValueError(f"{text[:40]!r} is not the version of a driver")
    return tuple(int(part) for part in text.split("."))


def runs(driver: tuple[int, ...], major: int) -> bool | None:
    """Return whether a driver runs programs built for a CUDA major version.

    None for a version missing from the table.
    """
    oldest = OLDEST_DRIVER.get(major)
    return None if oldest is None else driver >= oldest
