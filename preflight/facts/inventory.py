"""Parts and mounts of a server, each from one small file of the kernel.

Sources: proc_meminfo(5), proc_swaps(5), Documentation/ABI/testing/sysfs-devices-system-cpu,
Documentation/ABI/testing/sysfs-class-nvme, drivers/nvme/host/core.c (states of a controller).
"""

from __future__ import annotations

import re

from preflight.evidence.document import Evidence, EvidenceError
from preflight.facts.network_mounts import KINDS
from preflight.parsers.host.mounts import MountEntry, parse
from preflight.textprep.plain_text import id_list

ONLINE = "file:/sys/devices/system/cpu/online"
SMT = "file:/sys/devices/system/cpu/smt/control"
SWAPS = "file:/proc/swaps"
NVME = "file:/sys/class/nvme/*/{transport,address}"
DISK_SPACE = (
    "cmd:df -B1 -t ext2 -t ext3 -t ext4 -t xfs -t btrfs -t zfs -t f2fs -t vfat -t bcachefs"
    " --output=fstype,size,avail,itotal,iavail,target"
)

#: Value of ``smt/control`` -> on or off; on POWER, the value is the number of threads per core.
_SMT = {"on": "on", "off": "off", "forceoff": "off", "notsupported": "off", "notimplemented": "off", "1": "off"}

#: Directories whose file systems come and go with jobs, containers and users.
_PASSING = re.compile(
    r"/(?:run|proc|sys|snap|media|tmp|var/tmp|var/lib/(?:docker|containerd|containers|kubelet))(?:/|$)"
)


def cpus(text: str) -> str:
    """Return the number of CPUs in a list such as ``0-223``; raises ValueError."""
    return str(len(id_list(text, "online")))


def smt(text: str) -> str:
    """Return "on" or "off" for ``smt/control``; raises ValueError.

    Off if multithreading is not supported.
    """
    word = text.strip()
    if word not in _SMT and not re.fullmatch("[2-9]", word):
        raise ValueError(f"{word[:60]!r} is not a state of multithreading")
    return _SMT.get(word, "on")


def swap(text: str) -> str:
    """Return "on" if ``/proc/swaps`` lists a swap area, else "off".

    Raises ValueError.
    """
    lines = text.strip().splitlines()
    if not lines or not lines[0].startswith("Filename"):
        raise ValueError(f"{text.strip()[:60]!r} is not a list of swap areas")
    return "on" if lines[1:] else "off"


def nvme_drives(evidence: Evidence) -> tuple[tuple[str, str], ...]:
    """Return the NVMe controllers on the PCI bus, each with its state.

    Raises EvidenceError.
    """
    pattern = evidence.record(NVME)
    if pattern.status not in ("ok", "missing"):
        raise EvidenceError(NVME, pattern.describe())
    listed = []
    for key in evidence.keys("file:/sys/class/nvme/*/transport"):
        if evidence.text(key).strip() == "pcie":
            name, at = key.split("/")[-2], key.removesuffix("transport") + "state"
            shown = at in evidence and evidence.exists(at)  # kernels before 4.14 have no such file
            listed.append((name, evidence.text(at).strip() if shown else "live"))
    return tuple(listed)


def lasting(text: str) -> dict[str, MountEntry]:
    """Return the permanent disk and network file systems, by mount point.

    File systems of an automounter (below or on a mount of ``autofs``) come and go and are left out. Raises ValueError.
    """
    mounts = parse(text)
    automounted = tuple(mount.place for mount in mounts if mount.kind == "autofs")
    listed: dict[str, MountEntry] = {}
    for mount in mounts:
        passing = _PASSING.match(mount.place) or any(
            mount.place == place or mount.place.startswith(f"{place.rstrip('/')}/") for place in automounted
        )
        if not passing and (mount.kind in KINDS or mount.source.startswith("/dev/")):
            listed[mount.place] = mount
    return listed


def is_network(mount: MountEntry) -> bool:
    """Return whether a mount is a network file system."""
    return mount.kind in KINDS
