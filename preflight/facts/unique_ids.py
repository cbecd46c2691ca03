"""Identifiers of a node that must be unique.

Sources: InfiniBand architecture specification (GUIDs), Documentation/ABI/stable/sysfs-class-infiniband,
machine-id(5), Documentation/admin-guide/sysctl/kernel.rst (boot_id), NVML (UUID and serial of a GPU).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from preflight._startup.lightclass import dataclass
from preflight.evidence.document import EvidenceError
from preflight.facts import addresses as ip
from preflight.facts.interfaces import ROOT as NET
from preflight.facts.rdma_ports import ROOT, Port, is_virtual_function

if TYPE_CHECKING:
    from preflight.facts.node import NodeFacts

MACHINE_ID = "file:/etc/machine-id"
BOOT_ID = "file:/proc/sys/kernel/random/boot_id"
HOSTNAME = "file:/proc/sys/kernel/hostname"

#: Owner of a container's boot id.
CONTAINER = "container"

#: Kinds of identifiers, in the order of reports. The first shows that two names are one machine.
KINDS = (
    "boot id", "machine id", "host name", "node GUID", "system image GUID", "port GUID", "LID", "IP address", "MAC",
    "GPU UUID", "GPU serial number",
)  # fmt: skip


@dataclass(frozen=True)
class Identifier:
    """One identifier of a node."""

    kind: str  # one of KINDS
    value: str
    of: str  # owner: a device, an interface; empty: the node
    key: str  # the record that shows it
    within: str = ""  # scope of uniqueness: the subnet of a LID; empty: everywhere


def guid(text: str) -> int:
    """Parse a GUID as printed by sysfs or ibstat; raises ValueError."""
    digits = re.sub(r"^0x|:", "", text.strip())
    if not re.fullmatch(r"[0-9a-fA-F]{1,16}", digits):
        raise ValueError(f"{text.strip()[:60]!r} is not a GUID")
    return int(digits, 16)


def mac(text: str) -> str:
    """Parse a MAC address: 6 bytes of Ethernet, 20 of IPoIB; raises ValueError."""
    if not re.fullmatch(r"\s*(?:[0-9a-fA-F]{2}:){5}(?:(?:[0-9a-fA-F]{2}:){14})?[0-9a-fA-F]{2}\s*", text):
        raise ValueError(f"{text.strip()[:60]!r} is not the address of an interface")
    return text.strip().lower()


def shown(number: int) -> str:
    """Format a GUID as in sysfs."""
    digits = f"{number:016x}"
    return ":".join(digits[at : at + 4] for at in range(0, 16, 4))


def of_node(node: NodeFacts) -> Iterator[Identifier]:
    """Yield the identifiers of this node that were read.

    A container's own identifiers are left out; its boot id is the machine's, with ``of`` set to CONTAINER.
    """
    if boot := _text(node, BOOT_ID):
        yield Identifier("boot id", boot, CONTAINER if node.in_container else "", BOOT_ID)
    if not node.in_container:
        for kind, key in (("machine id", MACHINE_ID), ("host name", HOSTNAME)):
            if (text := _text(node, key)) and text not in ("localhost", "(none)", "uninitialized"):
                yield Identifier(kind, text, "", key)
    yield from _of_devices(node)
    yield from _of_interfaces(node)
    yield from _of_gpus(node)


def _text(node: NodeFacts, key: str) -> str:
    try:
        return " ".join(node.evidence.text(key).split())[:200]
    except EvidenceError:
        return ""


def _ports(node: NodeFacts) -> tuple[Port, ...]:
    try:
        return node.rdma_ports
    except EvidenceError:
        return ()


def _of_devices(node: NodeFacts) -> Iterator[Identifier]:
    ports = _ports(node)
    for device in dict.fromkeys(port.device for port in ports):
        for kind, name in (("node GUID", "node_guid"), ("system image GUID", "sys_image_guid")):
            key = f"file:{ROOT}/{device}/{name}"
            if name == "sys_image_guid" and is_virtual_function(node.evidence, device):
                continue  # the adapter's GUID, which other machines share
            try:
                if number := guid(_text(node, key) or "0"):
                    yield Identifier(kind, shown(number), device, key)
            except ValueError:
                continue
    for port in ports:
        yield from _of_port(node, port)


def _of_port(node: NodeFacts, port: Port) -> Iterator[Identifier]:
    key = f"file:{ROOT}/{port.device}/ports/{port.number}/gids/0"
    row = _text(node, key).replace(":", "")
    if not port.infiniband or not re.fullmatch("[0-9a-f]{32}", row):
        return
    if low := int(row[16:], 16):
        yield Identifier("port GUID", shown(low), port.name, key)
    lid_key = f"file:{ROOT}/{port.device}/ports/{port.number}/lid"
    lid = _text(node, lid_key)
    if port.active and re.fullmatch("0x[0-9a-f]{1,4}", lid) and int(lid, 16):
        # Rails may be separate fabrics whose managers all start at LID 1 with the default prefix.
        yield Identifier("LID", str(int(lid, 16)), port.name, lid_key, f"{port.name} {row[:16]}")


def interfaces(node: NodeFacts) -> tuple[str, ...]:
    """Return the node's own interfaces: those of RDMA ports and of default routes.

    Bridges of container engines, service addresses of Kubernetes and USB links to the BMC have the same addresses on
    all nodes.
    """
    own = {port.netdev for port in _ports(node) if port.netdev}
    with suppress(EvidenceError):
        own |= set(node.parsed(ip.ROUTES, ip.default_routes))
    return tuple(sorted(own))


def _of_interfaces(node: NodeFacts) -> Iterator[Identifier]:
    names = interfaces(node)
    for name in names:
        key = f"file:{NET}/{name}/address"
        try:
            found = mac(_text(node, key))
        except ValueError:
            continue
        # the first four bytes of an IPoIB address name a queue pair; the GUID at the end is reported as a GUID
        if found.strip("0:") and len(found) == 17:
            yield Identifier("MAC", found, name, key)
    try:
        known = node.addresses
    except EvidenceError:
        return
    for name in names:
        for address in known.routable(name):
            if not address.is_loopback and not address.is_unspecified:
                yield Identifier("IP address", str(address.ip), name, known.evidence)


def _of_gpus(node: NodeFacts) -> Iterator[Identifier]:
    try:
        gpus = node.gpu_health.gpus if node.gpus_on_bus else ()
        key = node.gpu_health.evidence[0] if gpus else ""
    except EvidenceError:
        return
    for gpu in gpus:
        yield Identifier("GPU UUID", gpu.uuid, gpu.address, key)
        if gpu.serial and gpu.serial.strip("0"):
            yield Identifier("GPU serial number", gpu.serial, gpu.address, key)
