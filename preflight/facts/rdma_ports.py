"""RDMA devices and ports from sysfs, ``ibstat`` and ``ibv_devinfo``.

``ibstat`` is used if sysfs cannot be read, and ``ibv_devinfo`` for the active MTU. Sources:
Documentation/ABI/stable/sysfs-class-infiniband; infiniband-diags; ibverbs-utils.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING

from preflight._startup.lightclass import dataclass, replace
from preflight.evidence.document import Evidence, EvidenceError
from preflight.facts.pci import ROOT as PCI
from preflight.parsers.rdma import port_values

if TYPE_CHECKING:
    from preflight.parsers.rdma.port_list import RdmaPort

ROOT = "/sys/class/infiniband"

#: Records about HCAs in user space: device nodes (uverbsN), and the report of libibverbs.
DEVICE_NODES, DEVINFO = "dir:/dev/infiniband", "cmd:ibv_devinfo"

#: Link layer of a port that is neither InfiniBand nor Ethernet: AWS EFA's, which uses SRD. The kernel's sysfs prints
#: "Unknown" for it (infiniband/core/sysfs.c), ibv_devinfo "Unspecified", before rdma-core pull 884 "InfiniBand".
UNSPECIFIED = "Unspecified"

_LINK_LAYERS = {"InfiniBand": "InfiniBand", "Ethernet": "Ethernet", "Unknown": UNSPECIFIED, UNSPECIFIED: UNSPECIFIED}

#: PCI vendor of EFA (pci.ids).
AMAZON = "1d0f"

#: Rate in Gb/s that the efa driver prints for every device without querying it.
EFA_PLACEHOLDER_GBPS = 100

#: What the kernel prints for an active port of unknown speed: link layer, rate text.
UNKNOWN_SPEEDS = {("InfiniBand", "10 Gb/sec (4X SDR)"), ("Ethernet", "40 Gb/sec (4X QDR)")}


@dataclass(frozen=True)
class Port:
    """One port of an RDMA device."""

    device: str  # mlx5_0
    number: int  # from 1; 0: pasted text names only the device
    state: str  # logical state in sysfs words: ACTIVE, DOWN, INIT, ARMED; empty: a pasted text lacks it
    physical_state: str  # LinkUp, Polling, Disabled, …; empty as for ``state``
    rate_gbps: float | None  # Gb/s; None while down (a placeholder) or if the kernel does not know the speed
    link_layer: str  # InfiniBand, Ethernet or Unspecified (EFA)
    sm_lid: int | None  # LID of the subnet manager; 0 if none was seen
    netdev: str | None  # the network interface of the port (RoCE), if known
    active_mtu: int | None = None  # bytes, from ibv_devinfo
    evidence: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The port as NCCL writes it: ``mlx5_0:1``."""
        return f"{self.device}:{self.number}" if self.number else self.device

    @property
    def state_shown(self) -> str:
        """Both states: ``DOWN/Polling``."""
        return "/".join(filter(None, (self.state, self.physical_state)))

    @property
    def active(self) -> bool:
        """Whether traffic can flow: logical state ACTIVE over a trained link."""
        return self.state == "ACTIVE" and self.physical_state in ("LinkUp", "")

    @property
    def roce(self) -> bool:
        """Whether the port uses RDMA over Ethernet."""
        return self.link_layer == "Ethernet"

    @property
    def infiniband(self) -> bool:
        """Whether the port is InfiniBand, with a subnet manager, LIDs and partitions."""
        return self.link_layer == "InfiniBand"

    @property
    def efa(self) -> bool:
        """Whether the port is AWS EFA, which has no interface and no subnet manager.

        NCCL's own InfiniBand transport uses only InfiniBand and Ethernet ports (src/transport/net_ib.cc), so NCCL_IB_*
        variables have no effect; aws-ofi-nccl carries the data through libfabric.
        """
        return self.link_layer == UNSPECIFIED


def all_efa(ports: Collection[Port]) -> bool:
    """Return whether there are ports and all of them are AWS EFA."""
    return bool(ports) and all(port.efa for port in ports)


def devices(evidence: Evidence) -> tuple[str, ...]:
    """Return the registered RDMA devices; empty if the class directory is absent.

    Raises EvidenceError if that is unknown.
    """
    key = f"dir:{ROOT}"
    if not evidence.exists(key):
        return ()
    return tuple(sorted(evidence.listing(key), key=natural))


def uverbs(evidence: Evidence) -> dict[str, str]:
    """Return RDMA device -> ``uverbsN``; raises EvidenceError if unread.

    Source: ``/sys/class/infiniband_verbs``.
    """
    pattern = "file:/sys/class/infiniband_verbs/*/ibdev"
    found = {evidence.text(key).strip(): key.split("/")[-2] for key in evidence.keys(pattern)}
    if not found:
        evidence.exists(pattern)  # raises unless the directory was read or is missing
    return found


def is_software(evidence: Evidence, device: str) -> bool:
    """Return whether a device is Soft-RoCE or similar.

    Such a device is under ``/sys/devices/virtual`` and not on a bus.
    """
    return "/virtual/" in str(evidence.listing(f"dir:{ROOT}").get(device, {}).get("target", ""))


#: ``hca_type`` of BlueField-1 to -4: "MT" and the decimal PCI device id (pci.ids).
_BLUEFIELD = frozenset({"MT41682", "MT41686", "MT41692", "MT41695"})


def is_bluefield(evidence: Evidence, device: str) -> bool:
    """Return whether a device is a port of a BlueField DPU; False if unknown."""
    try:
        return evidence.text(f"file:{ROOT}/{device}/hca_type").strip() in _BLUEFIELD
    except EvidenceError:
        return False


#: ``hca_type`` of virtual functions: ConnectX-4, 4 Lx, 5, 5 Ex, 6, and of all later ones (pci.ids).
_VIRTUAL = frozenset({"MT4116", "MT4118", "MT4120", "MT4122", "MT4124", "MT4126"})


def is_virtual_function(evidence: Evidence, device: str) -> bool:
    """Return whether a device is a virtual function; False if unknown.

    The host configures its virtual functions.
    """
    try:
        return evidence.text(f"file:{ROOT}/{device}/hca_type").strip() in _VIRTUAL
    except EvidenceError:
        return False


def is_mlx5(evidence: Evidence, device: str) -> bool:
    """Return whether a device is driven by mlx5, by its model or its name."""
    try:
        return evidence.text(f"file:{ROOT}/{device}/hca_type").strip().startswith("MT")
    except EvidenceError:
        return device.startswith("mlx5_")


def device_path(evidence: Evidence, device: str) -> tuple[str, ...]:
    """Return the PCI addresses from the root port down to a device.

    Empty for a virtual device.
    """
    target = evidence.listing(f"dir:{ROOT}").get(device, {}).get("target", "")
    return tuple(re.findall(r"(?<=/)[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7](?=/)", f"{target}/"))


def _pci_vendor(evidence: Evidence, device: str) -> str:
    """Return a device's PCI vendor, four lower-case hex digits; empty if unknown."""
    try:
        address = device_path(evidence, device)[-1]
        found = re.search("^PCI_ID=([0-9A-F]{4}):", evidence.text(f"file:{PCI}/{address}/uevent"), re.MULTILINE)
    except (EvidenceError, IndexError):
        return ""
    return found[1].lower() if found else ""


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """Return a sort key that puts mlx5_2 before mlx5_10."""
    parts = re.split(r"([0-9]{1,18})", name)
    return tuple((int(part), "") if place % 2 else (-1, part) for place, part in enumerate(parts) if part)


def ports(evidence: Evidence) -> tuple[Port, ...]:
    """Return all ports of all devices, from sysfs or else from ibstat.

    Raises EvidenceError.
    """
    try:
        found = _sysfs_ports(evidence)
    except EvidenceError as sysfs:
        try:
            listed = parse_ibstat(evidence.text("cmd:ibstat"))
        except (EvidenceError, ValueError):
            raise sysfs from None
        # ibstat shows no interfaces; these are in other files, which may be readable
        found = tuple(replace(port, netdev=_netdev(evidence, port.device, port.number)) for port in listed)
    try:
        mtus = parse_active_mtus(evidence.text(DEVINFO))
    except (EvidenceError, ValueError):
        mtus = {}
    return tuple(replace(port, active_mtu=mtus.get((port.device, port.number))) for port in found)


def _sysfs_ports(evidence: Evidence) -> tuple[Port, ...]:
    found = []
    for device in devices(evidence):
        listing = evidence.listing(f"dir:{ROOT}/{device}/ports")
        for number in sorted(listing, key=natural):
            if re.fullmatch("[0-9]{1,3}", number):
                found.append(_sysfs_port(evidence, device, int(number)))
    return tuple(found)


def _sysfs_port(evidence: Evidence, device: str, number: int) -> Port:
    base = f"file:{ROOT}/{device}/ports/{number}"
    state = _numbered(evidence, f"{base}/state")
    physical = _numbered(evidence, f"{base}/phys_state")
    layer_text = evidence.text(f"{base}/link_layer").strip()
    layer = _LINK_LAYERS.get(layer_text)
    # mlx5 also reports this for a port type that it cannot read
    if layer is None or (layer == UNSPECIFIED and _pci_vendor(evidence, device) not in (AMAZON, "")):
        raise EvidenceError(f"{base}/link_layer", f"contains {layer_text[:60]!r}, neither InfiniBand nor Ethernet")
    rate_text = evidence.text(f"{base}/rate").strip()
    rate = port_values.rate(rate_text)
    if rate is None:
        raise EvidenceError(f"{base}/rate", f"holds {rate_text[:60]!r}, not a rate in Gb/sec")
    if state != "ACTIVE" or (layer, rate_text) in UNKNOWN_SPEEDS:
        rate = None
    return Port(
        device,
        number,
        state,
        physical,
        rate,
        layer,
        _sm_lid(evidence, f"{base}/sm_lid"),
        _netdev(evidence, device, number),
        evidence=(f"{base}/state", f"{base}/phys_state", f"{base}/rate"),
    )


def _numbered(evidence: Evidence, key: str) -> str:
    text = evidence.text(key).strip()
    if (state := port_values.state(text)) is None:
        raise EvidenceError(key, f"holds {text[:60]!r}, not a numbered state")
    return state


def _sm_lid(evidence: Evidence, key: str) -> int | None:
    try:
        return int(evidence.text(key).strip(), 0)
    except (EvidenceError, ValueError):
        return None


def _netdev(evidence: Evidence, device: str, number: int) -> str | None:
    """Return the port's interface; None if it cannot be determined.

    It comes from the GID table, from rxe's parent, or from the PCI function, if that has only one interface.
    """
    for key in (f"file:{ROOT}/{device}/ports/{number}/gid_attrs/ndevs/0", f"file:{ROOT}/{device}/parent"):
        try:
            if name := evidence.text(key).strip():
                return name
        except EvidenceError:
            continue
    try:
        names = sorted(evidence.listing(f"dir:{ROOT}/{device}/device/net"))
    except EvidenceError:
        return None
    return names[0] if len(names) == 1 else None


def interfaces(evidence: Evidence, port: Port) -> tuple[str, ...]:
    """Return the port's possible interfaces in this network namespace.

    Empty if all are in another namespace. Raises EvidenceError if that is unknown.
    """
    if port.netdev:
        return (port.netdev,)
    key = f"dir:{ROOT}/{port.device}/device/net"
    return tuple(sorted(evidence.listing(key))) if evidence.exists(key) else ()


def parse_ibstat(text: str) -> tuple[Port, ...]:
    """Read ``ibstat``; raises ValueError for no ports or an incomplete list."""
    from preflight.parsers.rdma import ibstat  # start-up: sysfs answers on nearly every node
    from preflight.parsers.record import parse_complete

    listed = parse_complete(text, ibstat.begins, ibstat.parse_lines)
    if not listed.ports:
        raise ValueError("no port found")
    return tuple(_ibstat_port(port) for port in listed.ports)


def _ibstat_port(port: RdmaPort) -> Port:
    if port.device is None or port.number is None or port.rate_gbps is None or port.link_layer is None:
        raise ValueError(f"the block of {port.name[:60]} is incomplete")
    return of_listed(port, ("cmd:ibstat",))


def of_listed(port: RdmaPort, evidence: tuple[str, ...]) -> Port:
    """Return a port of a tool's list in the terms of sysfs.

    Values that the tool does not print are empty or None.
    """
    layer = _LINK_LAYERS.get(port.link_layer or "", port.link_layer or "")
    # rxe prints 2.5 at any rate; a rate below 10 Gb/s is a placeholder on every current HCA
    known = port.logical == "ACTIVE" and port.rate_gbps is not None and port.rate_gbps >= 10
    return Port(
        port.device or port.netdev or f"the port of line {port.line}", port.number or 0, port.logical, port.trained,
        port.rate_gbps if known else None, layer, port.sm_lid, port.netdev, port.active_mtu, evidence,
    )  # fmt: skip


def parse_active_mtus(text: str) -> dict[tuple[str, int], int]:
    """Read ``ibv_devinfo``: (device, port) -> active MTU in bytes.

    Raises ValueError if there is none.
    """
    from preflight.parsers.rdma import ibv_devinfo  # start-up: not printed on nodes without RDMA devices
    from preflight.parsers.record import parse_complete

    listed = parse_complete(text, ibv_devinfo.begins, ibv_devinfo.parse_lines)
    mtus = {(port.device, port.number): port.active_mtu for port in listed.ports}
    found = {(device, number): mtu for (device, number), mtu in mtus.items() if device and number and mtu}
    if not found:
        raise ValueError("no active_mtu found")
    return found
