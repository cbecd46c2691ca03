"""``ibnetdiscover``: switches, HCAs and links of a subnet.

Each link occurs twice, once at each end. Source: infiniband-diags, ibnetdiscover(8), "topology file format".
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from preflight._startup.lightclass import dataclass
from preflight.textprep.plain_text import normalize_text

#: Gb/s of a lane, by name of the speed (InfiniBand Architecture Specification; FDR10 is Mellanox's).
LANE_GBPS = {
    "SDR": 2.5, "DDR": 5.0, "QDR": 10.0, "FDR10": 10.0, "FDR": 14.0, "EDR": 25.0, "HDR": 50.0, "NDR": 100.0,
    "XDR": 200.0,
}  # fmt: skip

#: PCI device id (pci.ids, 15b3:cf09) of the aggregation node of a switch with SHARP, which appears as an HCA.
AGGREGATION_NODE = 0xCF09
_AGGREGATION_NAME = "Mellanox Technologies Aggregation Node"

_KIND = {"Switch": "switch", "Ca": "hca", "Rt": "router"}
_PREFIX = {"S": "switch", "H": "hca", "R": "router"}
_HEAD = re.compile(r'(Switch|Ca|Rt)\s+([0-9]{1,3})\s+"[SHR]-([0-9a-fA-F]{16})"(.*)')
_PORT = re.compile(
    r"\[([0-9]{1,3})\](?:\[ext [0-9]{1,3}\])?(?:\((?:0x)?([0-9a-fA-F]{1,16})\))?\s+"
    r'"([SHR])-([0-9a-fA-F]{16})"\[([0-9]{1,3})\](?:\((?:0x)?([0-9a-fA-F]{1,16})\))?(?:\[ext [0-9]{1,3}\])?(.*)'
)
_FIELD = re.compile(
    r"(vendid|devid|sysimgguid|caguid|switchguid|rtguid)=0x([0-9a-fA-F]{1,16})(?:\([0-9a-fA-F]{1,16}\))?"
)
_START = re.compile(r"# Initiated from (?:node|Node) ([0-9a-fA-F]{1,16}) port ([0-9a-fA-F]{1,16})")
_LID = re.compile(r"\blid ([0-9]{1,5})\b")
_SPEED = re.compile(r"([0-9]{1,2})[xX]([A-Z]{3}(?:10)?)")


@dataclass(frozen=True)
class FabricDevice:
    """A switch, an HCA or a router."""

    guid: str  # node GUID, 16 hexadecimal digits
    kind: str  # switch, hca or router
    name: str  # its description, such as "gpu001 mlx5_0"; empty if it did not answer
    ports: int  # number of ports, including unused ones
    device_id: int | None = None  # PCI device id of its chip
    lid: int | None = None  # of a switch, the LID of port 0
    described: bool = True  # False: it only occurs as the other end of a link, without an entry

    @property
    def is_switch(self) -> bool:
        """Whether the device is a switch."""
        return self.kind == "switch"

    @property
    def aggregates(self) -> bool:
        """Whether the device is a switch's aggregation node (SHARP), not a host's HCA."""
        return self.kind == "hca" and (self.device_id == AGGREGATION_NODE or self.name == _AGGREGATION_NAME)

    @property
    def label(self) -> str:
        """The name of the device, or its GUID if it has no name."""
        return self.name or f"0x{self.guid}"


End = tuple[str, int]  # GUID of the device, port number


@dataclass(frozen=True)
class FabricLink:
    """A link: its two ends, in sorted order, and its speed."""

    ends: tuple[End, End]
    speed: str  # such as "4xHDR"; empty if neither end reported it
    gbps: float | None  # rate of each direction in Gb/s; None if the speed is unknown
    seen_by: int = 2  # number of ends that list it

    def other(self, guid: str) -> End:
        """Return the end at the other device."""
        return self.ends[1] if self.ends[0][0] == guid else self.ends[0]


@dataclass(frozen=True)
class Net:
    """The devices and links of a subnet, from one sweep."""

    devices: Mapping[str, FabricDevice]
    links: tuple[FabricLink, ...]
    start: End | None  # node GUID and port (0: unknown) from which the sweep started
    port_guids: Mapping[str, End]  # GUID of an HCA's port -> node GUID, port number

    @property
    def switches(self) -> tuple[FabricDevice, ...]:
        """The switches, sorted by name."""
        return tuple(sorted((d for d in self.devices.values() if d.is_switch), key=lambda d: (d.label, d.guid)))

    @property
    def hcas(self) -> tuple[FabricDevice, ...]:
        """The HCAs of hosts, sorted by name; aggregation nodes are not included."""
        found = (d for d in self.devices.values() if d.kind == "hca" and not d.aggregates)
        return tuple(sorted(found, key=lambda d: (d.label, d.guid)))

    def end_of(self, guid: str, number: int) -> End | None:
        """Return the end that a tool names by GUID and port number; None if unknown.

        The GUID is that of a switch or of an HCA's port.
        """
        if guid in self.devices and self.devices[guid].is_switch:
            return guid, number
        return self.port_guids.get(guid)

    def port(self, end: End) -> str:
        """Return the name of an end: ``leaf01 port 3``, or the HCA if it has one port."""
        device = self.devices[end[0]]
        return device.label if device.kind == "hca" and device.ports == 1 else f"{device.label} port {end[1]}"

    def words(self, link: FabricLink) -> str:
        """Return the name of a link: the names of its two ends."""
        return f"{self.port(link.ends[0])} - {self.port(link.ends[1])}"


def parse(text: str) -> Net:
    """Read a topology file.

    Raises ValueError if a line is invalid, quoting the first one, or if there is no device.
    """
    devices: dict[str, FabricDevice] = {}
    halves: dict[tuple[End, End], list[str]] = {}
    port_guids: dict[str, End] = {}
    fields: dict[str, str] = {}
    here: FabricDevice | None = None
    start: End | None = None
    for line in normalize_text(text).split("\n"):
        line = line.rstrip()
        if not line:
            fields, here = {}, None
        elif match := _START.match(line):
            start = (match[1].lower().zfill(16), 0)
        elif line.startswith("#") or line.startswith(("Chassis ", "Non-Chassis ", "External ports")):
            continue
        elif match := _FIELD.fullmatch(line):
            fields[match[1]] = match[2]
        elif match := _HEAD.fullmatch(line):
            here = _device(match, fields)
            devices[here.guid] = here
            fields = {}
        elif (match := _PORT.fullmatch(line)) and here is not None:
            far, speed = _far(match, here)
            devices.setdefault(far.guid, far)
            near_end, far_end = (here.guid, int(match[1])), (far.guid, int(match[5]))
            port_guids |= {
                guid.lower().zfill(16): end for guid, end in ((match[2], near_end), (match[6], far_end)) if guid
            }
            ends = sorted([near_end, far_end])
            halves.setdefault((ends[0], ends[1]), []).append(speed)
        else:
            raise ValueError(f"unexpected line {line.strip()[:120]!r}")
    if not devices:
        raise ValueError("it contains neither a switch nor an HCA")
    links = tuple(_link(ends, speeds) for ends, speeds in sorted(halves.items()))
    return Net(devices, links, start, port_guids)


def _device(match: re.Match[str], fields: Mapping[str, str]) -> FabricDevice:
    name, rest = _quoted(match[4])
    lid = _LID.search(rest)
    chip = fields.get("devid")
    return FabricDevice(
        match[3].lower(), _KIND[match[1]], name, int(match[2]), int(chip, 16) if chip else None,
        int(lid[1]) if lid else None,
    )  # fmt: skip


def _far(match: re.Match[str], here: FabricDevice) -> tuple[FabricDevice, str]:
    """Return the device at the other end of a link, and the link's speed.

    The device is provisional: its own entry replaces it when that entry is read.
    """
    name, rest = _quoted(match[7])
    found = _SPEED.search(rest)
    far = FabricDevice(match[4].lower(), _PREFIX[match[3]], name, 1 if match[3] == "H" else 0, described=False)
    return far, f"{found[1]}x{found[2]}" if found else ""


def _quoted(comment: str) -> tuple[str, str]:
    """Return the quoted description in a comment, and the text after it.

    The description may itself contain quotation marks.
    """
    first, last = comment.find('"'), comment.rfind('"')
    if first == last:
        return "", comment
    return comment[first + 1 : last].strip(), comment[last + 1 :]


def _link(ends: tuple[End, End], speeds: list[str]) -> FabricLink:
    known = [(rate, speed) for speed in speeds if (rate := gbps(speed)) is not None]
    if known:  # both ends of a real cable report the same speed; if they differ in a simulator, the lower one is used
        rate, speed = min(known)
        return FabricLink(ends, speed, rate, len(speeds))
    return FabricLink(ends, next(filter(None, speeds), ""), None, len(speeds))


def gbps(speed: str) -> float | None:
    """Return the rate of a speed such as ``4xHDR`` in Gb/s; None if it is unknown."""
    match = _SPEED.fullmatch(speed)
    lane = LANE_GBPS.get(match[2]) if match else None
    return lane * int(match[1]) if match and lane is not None else None
