"""Hardware presence: tools without their hardware are not started."""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, Iterable, Optional, Tuple

_NVIDIA = "0x10de"


def nvidia() -> bool:
    """Return whether there is an NVIDIA driver or PCI function."""
    if os.path.exists("/proc/driver/nvidia") or os.path.exists("/dev/nvidiactl"):
        return True
    root = "/sys/bus/pci/devices"
    try:
        return any(_vendor(os.path.join(root, entry, "vendor")) == _NVIDIA for entry in os.listdir(root))
    except OSError:
        return False


def _vendor(path: str) -> str:
    try:
        with open(path, "rb", buffering=0) as stream:
            return stream.read(20).decode("ascii", "replace").strip()
    except OSError:
        return ""


def rdma() -> bool:
    """Return whether there are RDMA devices in sysfs or in /dev."""
    return os.path.isdir("/sys/class/infiniband") or os.path.isdir("/dev/infiniband")


def systemd() -> bool:
    """Return whether systemd is the init system, as sd_booted(3) does."""
    return os.path.isdir("/run/systemd/system")


#: Hardware that a plan may name for a probe: its detection, and the message if it is absent.
SIGNS: "Dict[str, Tuple[Callable[[], bool], str]]" = {
    "nvidia": (nvidia, "no NVIDIA GPU and no driver for one"),
    "rdma": (rdma, "no RDMA device"),
    "systemd": (systemd, "no running systemd"),
}


def lacking(subjects: "Iterable[str]", presence: "Optional[Dict[str, bool]]" = None) -> str:
    """Return a message if all named subjects are absent; otherwise "".

    ``presence`` caches results, because looking for NVIDIA devices reads every PCI function.
    """
    presence = {} if presence is None else presence
    reasons = []
    for subject in subjects:
        is_there, absent = SIGNS[subject]
        if subject not in presence:
            presence[subject] = is_there()
        if presence[subject]:
            return ""
        reasons.append(absent)
    return "nothing to collect: there is " + " and ".join(reasons) if reasons else ""
