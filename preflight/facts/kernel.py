"""The running kernel: modules, boot options, IOMMU.

Sources: ``/sys/module`` (loaded modules, and built-in ones that have a parameter or a version),
Documentation/admin-guide/kernel-parameters.txt, Documentation/ABI/testing/sysfs-kernel-iommu_groups.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from preflight.evidence.document import Evidence, EvidenceError

if TYPE_CHECKING:
    from preflight.parsers.host.boot_options import Option

MODULES = "dir:/sys/module"
CMDLINE = "file:/proc/cmdline"
RELEASE = "file:/proc/sys/kernel/osrelease"
NVIDIA_VERSION = "file:/proc/driver/nvidia/version"
IOMMU_GROUPS = "dir:/sys/kernel/iommu_groups"

#: Modules by which RDMA drivers access GPU memory without DMA-BUF, new and old.
PEER_MODULES = ("nvidia_peermem", "nv_peer_mem", "nv_peer_memory")

#: Peer-memory module that is installed with AWS EFA; those above are for NVIDIA NICs.
EFA_PEER_MODULE = "efa_nv_peermem"

#: First kernel with DMA-BUF for RDMA; distributions backport it.
DMA_BUF = (5, 12)


def modules(evidence: Evidence) -> frozenset[str]:
    """Return the kernel's modules, with underscores in their names.

    Raises EvidenceError if they were not read.
    """
    return frozenset(evidence.listing(MODULES))


def release(text: str) -> tuple[int, int]:
    """Parse major and minor number of a release such as ``5.15.0-1063-nvidia``.

    Raises ValueError.
    """
    if not (match := re.match(r"\s*(\d{1,3})\.(\d{1,4})(?:[.\-+_~\s]|$)", text)):
        raise ValueError(f"{text.strip()[:60]!r} is not a kernel release")
    return int(match[1]), int(match[2])


# --- IOMMU -----------------------------------------------------------------------------------------

#: Values of ``iommu_groups/N/type`` if every DMA is translated.
TRANSLATED = frozenset({"DMA", "DMA-FQ"})
_TYPES = TRANSLATED | {"identity", "blocked", "unmanaged", "auto"}


def iommu_type(text: str) -> str:
    """Read the domain type of an IOMMU group; raises ValueError."""
    if (word := text.strip()) not in _TYPES:
        raise ValueError(f"{word[:60]!r} is not a type of an IOMMU domain")
    return word


def iommu_types(evidence: Evidence, patterns: Iterable[str]) -> dict[str, str]:
    """Return record key -> IOMMU domain type for the matching devices.

    A device without a group is not behind an IOMMU. Raises EvidenceError if a file was not readable.
    """
    found = {}
    for pattern in patterns:
        for key in evidence.keys(pattern):
            if evidence.exists(key):
                try:
                    found[key] = iommu_type(evidence.text(key))
                except ValueError as error:
                    raise EvidenceError(key, str(error)) from None
    return found


def iommu_is_on(evidence: Evidence) -> bool:
    """Return whether the kernel created any IOMMU group.

    Raises EvidenceError if that is unknown.
    """
    return evidence.exists(IOMMU_GROUPS) and bool(evidence.listing(IOMMU_GROUPS))


def iommu_wish(options: Iterable[Option]) -> str:
    """Return the IOMMU mode that the boot options request.

    It is ``passthrough``, ``off``, ``translated`` or empty. The last option wins, as in the kernel, but ``off`` for any
    driver always applies.
    """
    wish = ""
    for option in options:
        values = option.value.split(",")
        if option.name == "iommu.passthrough":
            wish = "passthrough" if option.value in ("1", "y", "on") else "translated"
        elif option.name == "iommu" and "pt" in values:
            wish = "passthrough"
        elif option.name in ("iommu", "intel_iommu", "amd_iommu") and "off" in values:
            return "off"
        elif (option.name == "iommu" and "nopt" in values) or (
            option.name in ("intel_iommu", "amd_iommu") and "on" in values and not wish
        ):
            wish = "translated"
    return wish
