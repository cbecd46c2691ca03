"""Where the collector runs: container, virtual machine or host, and its user.

A container sees less than its host, which the judge takes into account.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict

# The kernel's fixed inode numbers of the first PID and user namespace.
_HOST_NAMESPACES = {"pid": "pid:[4026531836]", "user": "user:[4026531837]"}
_CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv", "/.singularity.d")
_CONTAINER_NAMES = ("KUBERNETES_SERVICE_HOST", "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER", "container")
_VM_VENDORS = ("QEMU", "VMware", "Xen", "innotek", "Bochs", "KVM", "Virtual Machine", "Google Compute Engine")


def identity() -> "Dict[str, Any]":
    """Return facts that are cheap to read: interpreter, kernel, user id."""
    system = os.uname()
    return {
        "python": "{}.{}.{}".format(*sys.version_info[:3])
        + ("" if sys.implementation.name == "cpython" else " " + sys.implementation.name),
        "platform": "{}-{}-{}".format(system.sysname, system.release, system.machine),
        "uid": os.geteuid(),
    }


def user() -> str:
    """Return the user's name, or the user id if it has no name.

    The lookup may hang if a directory service does not answer.
    """
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def where() -> str:
    """Return ``container``, ``vm`` or ``host``."""
    for space, number in _HOST_NAMESPACES.items():
        try:
            if os.readlink("/proc/self/ns/" + space) != number:
                return "container"
        except OSError:
            continue
    marked = any(os.path.exists(mark) for mark in _CONTAINER_MARKS)
    if (marked or any(name in os.environ for name in _CONTAINER_NAMES)) and not _shares_the_root_of_init():
        return "container"
    maker = _start("/sys/class/dmi/id/sys_vendor") + _start("/sys/class/dmi/id/product_name")
    if " hypervisor" in _start("/proc/cpuinfo") or any(vendor in maker for vendor in _VM_VENDORS):
        return "vm"
    return "host"


def _shares_the_root_of_init() -> bool:
    """Return whether / is the root of the first process.

    A machine booted from an image may have the image's marker files.
    """
    try:
        return os.path.samestat(os.stat("/"), os.stat("/proc/1/root"))
    except OSError:
        return False


def _start(path: str) -> str:
    """Return the first 4000 bytes of a file; empty if it cannot be read.

    Reading all of /proc/cpuinfo would interrupt every idle core.
    """
    try:
        with open(path, "rb", buffering=0) as stream:
            return stream.read(4000).decode("ascii", "replace")
    except OSError:
        return ""
