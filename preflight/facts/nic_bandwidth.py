"""Total bandwidth of a node's NICs: port rates, limited by PCIe links.

Sources: sysfs-class-infiniband (rate), sysfs-bus-pci (current_link_speed, current_link_width).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from preflight._startup.lightclass import dataclass
from preflight.evidence.document import Evidence, EvidenceError
from preflight.facts.gpudirect import nic_link
from preflight.facts.rdma_ports import Port, device_path, is_virtual_function


@dataclass(frozen=True)
class NicAdapter:
    """One adapter: the ports that share its PCIe link."""

    ports: tuple[Port, ...]  # active ports
    pcie_gbps: float | None  # rate of the link; None for a virtual function, or if unread

    @property
    def rate_gbps(self) -> float:
        """Total rate of the ports, Gb/s."""
        return sum(port.rate_gbps or 0 for port in self.ports)

    @property
    def gbps(self) -> float:
        """Bandwidth per direction, Gb/s: the lower of port rate and PCIe rate."""
        return self.rate_gbps if self.pcie_gbps is None else min(self.rate_gbps, self.pcie_gbps)

    @property
    def bound_by_pcie(self) -> bool:
        """Whether the PCIe link carries less than the ports."""
        return self.gbps < self.rate_gbps


def cards(evidence: Evidence, ports: Iterable[Port]) -> tuple[NicAdapter, ...]:
    """Return the adapters of the active ports.

    Virtual functions of a counted physical port are left out.
    """
    found: dict[str, list[Port]] = {}
    for port in _distinct(evidence, [port for port in ports if port.active]):
        path = device_path(evidence, port.device)
        found.setdefault(path[-1].rpartition(".")[0] if path else port.device, []).append(port)
    return tuple(NicAdapter(tuple(group), _pcie(evidence, group[0])) for group in found.values())


def _pcie(evidence: Evidence, port: Port) -> float | None:
    try:
        link = nic_link(evidence, port.device)
    except EvidenceError:
        return None
    return link.gbps if link is not None else None


def _distinct(evidence: Evidence, ports: list[Port]) -> Iterator[Port]:
    """Yield the physical ports.

    Of several virtual functions without a physical port, the first is yielded.
    """
    virtual = {port.name for port in ports if is_virtual_function(evidence, port.device)}
    counted = {guid for port in ports if port.name not in virtual if (guid := _adapter(evidence, port))}
    for port in ports:
        guid = _adapter(evidence, port)
        if port.name in virtual and guid:
            if guid in counted:
                continue
            counted.add(guid)
        yield port


def _adapter(evidence: Evidence, port: Port) -> str:
    """Return the GUID shared by all functions of an adapter; empty if unknown."""
    try:
        return evidence.text(f"file:/sys/class/infiniband/{port.device}/sys_image_guid").strip().strip("0:")
    except EvidenceError:
        return ""
