"""Detection of network switches among the nodes.

SONiC and Cumulus are based on Debian with Python, Arista EOS on Fedora or AlmaLinux, so the collector runs on them as
well. Sources: sonic-buildimage (``/etc/sonic/sonic_version.yml``), ONIE (``machine.conf``, preserved by network
operating systems in ``/host``), ``os-release`` of Cumulus Linux and NX-OS, drivers/net/ethernet/mellanox/mlxsw/pci.h.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from preflight.evidence.document import Evidence, EvidenceError
from preflight.facts.pci import SWITCH_ASICS, PciDevice

OS_RELEASE = "file:/etc/os-release"
EOS_RELEASE = "file:/etc/Eos-release"
SONIC = "file:/etc/sonic/sonic_version.yml"
MACHINE = "file:/host/machine.conf"

#: ``ID`` of os-release -> name.
_SYSTEMS = {
    "cumulus-linux": "Cumulus Linux",
    "nexus": "Cisco NX-OS",
    "sonic": "SONiC",
    "nvos": "NVIDIA NVOS",
}
_ID = re.compile(r"^ID=[\"']?([\w.-]{1,40})[\"']?\s*$", re.M)
_BUILD = re.compile(r"^build_version: *[\"']?([\w.+-]{1,60})", re.M)
_ONIE = re.compile(r"^(?:onie|aboot)_platform=([\w.-]{1,60})\s*$", re.M)


def network_switch(evidence: Evidence, bus: Iterable[PciDevice]) -> tuple[str, str] | None:
    """Return a switch's operating system, and the record that shows it, or None.

    A machine with a GPU is not a switch, even if it has a switch's files.
    """
    devices = tuple(bus)
    if any(device.is_gpu for device in devices):
        return None
    if match := _BUILD.search(_text(evidence, SONIC)):
        build = match[1] if match[1].lower().startswith("sonic") else f"SONiC {match[1]}"
        return build, SONIC
    if release := _text(evidence, EOS_RELEASE).strip():
        return " ".join(release.split())[:60], EOS_RELEASE
    if (match := _ID.search(_text(evidence, OS_RELEASE))) and (name := _SYSTEMS.get(match[1].lower())):
        return name, OS_RELEASE
    if match := _ONIE.search(_text(evidence, MACHINE)):
        return f"ONIE platform {match[1]}", MACHINE
    for device in devices:
        if device.is_switch_asic:
            return f"{SWITCH_ASICS[device.device]} ASIC", f"file:/sys/bus/pci/devices/{device.address}/uevent"
    return None


def _text(evidence: Evidence, key: str) -> str:
    try:
        return evidence.text(key)
    except EvidenceError:
        return ""
