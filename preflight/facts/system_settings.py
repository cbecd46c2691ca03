"""Settings of a node's firmware, kernel and software, one small file each.

Sources: Documentation/ABI/testing/sysfs-class-dmi, proc(5), Documentation/admin-guide/mm/transhuge.rst,
Documentation/networking/ip-sysctl.rst; the CUDA toolkit's version.json.
"""

from __future__ import annotations

import re

from preflight._startup.lightclass import dataclass
from preflight.evidence import json_limits
from preflight.evidence.document import Evidence
from preflight.textprep.plain_text import integer

DMI = "file:/sys/class/dmi/id"
CPUINFO = "cmd:head -c 2048 /proc/cpuinfo"
MEMINFO = "file:/proc/meminfo"
SOCKETS = "file:/sys/devices/system/cpu/cpu*/topology/physical_package_id"
HUGE_PAGES = "file:/sys/kernel/mm/transparent_hugepage/enabled"
TOOLKIT = "cmd:nvidia-ctk --version"
CUDA = "file:/usr/local/cuda/version.json"
IMEX_NODES = "file:/etc/nvidia-imex/nodes_config.cfg"
OFED = "cmd:ofed_info -s"
NETNS = "file:/sys/module/ib_core/parameters/netns_mode"


@dataclass(frozen=True)
class Cpu:
    """The first CPU; all CPUs of a server are the same model."""

    model: str
    microcode: str  # empty: not reported by the architecture or the hypervisor


def cpu(text: str) -> Cpu:
    """Return the first CPU of ``/proc/cpuinfo``; raises ValueError.

    The file has names for x86 processors, and numbers for Arm processors.
    """
    fields = dict(re.findall(r"^([A-Za-z][A-Za-z ]{0,30}?)[ \t]*: ?(.{0,120})$", text, re.MULTILINE)[::-1])
    if model := fields.get("model name", "").strip():
        return Cpu(" ".join(model.split()), fields.get("microcode", "").strip())
    if "CPU implementer" in fields and "CPU part" in fields:
        return Cpu(f"Arm implementer {fields['CPU implementer'].strip()} part {fields['CPU part'].strip()}", "")
    raise ValueError(f"{text.strip()[:60]!r} names no model of a CPU")


def memory_gib(text: str) -> float:
    """Return the total memory in ``/proc/meminfo`` in GiB; raises ValueError."""
    if not (match := re.search(r"^MemTotal:[ \t]*([0-9]{1,15}) kB$", text, re.MULTILINE)):
        raise ValueError(f"{text.strip()[:60]!r} has no line 'MemTotal:'")
    return int(match[1]) / 2**20


def chosen(text: str) -> str:
    """Return the selected word: ``madvise`` in ``always [madvise] never``.

    Raises ValueError.
    """
    found = re.findall(r"\[([a-z_+0-9]{1,30})\]", text)
    if len(found) != 1:
        raise ValueError(f"{text.strip()[:60]!r} does not select one word")
    return str(found[0])


def pretty_name(text: str) -> str:
    """Return PRETTY_NAME of os-release; raises ValueError."""
    if not (match := re.search(r"^PRETTY_NAME=([\"']?)(.{1,100}?)\1\s*$", text, re.M)):
        raise ValueError("has no PRETTY_NAME")
    return match[2]


def cuda_version(text: str) -> str:
    """Return the CUDA toolkit's version from its version.json; raises ValueError."""
    try:
        value = json_limits.text(text)
    except ValueError:
        raise ValueError(f"{text.strip()[:60]!r} is not JSON") from None
    cuda = value.get("cuda") if isinstance(value, dict) else None
    version = cuda.get("version") if isinstance(cuda, dict) else None
    if not isinstance(version, str) or not re.fullmatch(r"[0-9][\w.+-]{0,40}", version):
        raise ValueError("it names no version of cuda")
    return version


def vlans(text: str) -> dict[str, tuple[int, str]]:
    """Parse ``/proc/net/vlan/config``: interface -> VLAN id and parent.

    Raises ValueError.
    """
    found = {}
    for line in text.splitlines()[2:]:
        if not (match := re.fullmatch(r"\s*(\S{1,32})\s*\|\s*([0-9]{1,4})\s*\|\s*(\S{1,32})\s*", line)):
            raise ValueError(f"{line.strip()[:60]!r} is not a line of VLANs")
        found[match[1]] = (int(match[2]), match[3])
    return found


def partition_key(text: str) -> int:
    """Parse a P_Key such as ``0xffff``; raises ValueError.

    The highest bit means full membership.
    """
    if not re.fullmatch(r"\s*0x[0-9a-fA-F]{1,4}\s*", text):
        raise ValueError(f"{text.strip()[:60]!r} is not a P_Key")
    return int(text, 16)


def imex_nodes(text: str) -> tuple[str, ...]:
    """Return IMEX's nodes, in the order of its list.

    The list has one address or name per line, and comments after ``#``.
    """
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return tuple(line for line in lines if line)


def sockets(evidence: Evidence) -> int | None:
    """Return the number of sockets, from every tenth CPU; None if unknown.

    A socket of fewer than ten CPUs may be missed.
    """
    found = set()
    for key in evidence.keys(SOCKETS):
        record = evidence.record(key)
        if not record.ok:
            return None
        try:
            found.add(integer(record.out, "physical_package_id"))
        except ValueError:
            return None
    return len(found) or None
