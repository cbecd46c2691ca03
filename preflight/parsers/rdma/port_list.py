"""RDMA ports as printed by tools, and a builder of port lists."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Set
from typing import Any

from preflight._startup.lightclass import dataclass, field
from preflight.parsers.rdma.gid_row import GidRow
from preflight.textprep.agreement import counted


@dataclass(frozen=True)
class RdmaPort:
    """One port, in the words of the tool; a value that the text lacks is None.

    ``rate`` is ``rate_gbps`` as printed; ``other`` has fields that only one tool prints.
    """

    device: str | None
    number: int | None
    line: int
    state: str | None = None
    physical_state: str | None = None
    rate_gbps: float | None = None  # Gb/s; a placeholder while the port is down
    link_layer: str | None = None
    lid: int | None = None
    sm_lid: int | None = None
    active_mtu: int | None = None  # bytes
    netdev: str | None = None
    guid: str | None = None
    rate: str = ""
    other: Mapping[str, Any] = field(default_factory=dict)
    gids: tuple[GidRow, ...] = ()

    @property
    def name(self) -> str:
        """The port in NCCL's notation, ``mlx5_0:1``; without a device, its interface."""
        if self.device is None:
            return self.netdev or f"a port (line {self.line})"
        return self.device if self.number is None else f"{self.device}:{self.number}"

    @property
    def logical(self) -> str:
        """The logical state in sysfs terms (ACTIVE, DOWN, INIT, ARMED); may be empty."""
        word = (self.state or "").upper()
        return "INIT" if word == "INITIALIZING" else "ACTIVE" if word == "ACTIVE_DEFER" else word

    @property
    def trained(self) -> str:
        """The physical state in sysfs terms (LinkUp, Polling, …); may be empty."""
        word = (self.physical_state or "").replace("_", "").replace(" ", "").lower()
        return _PHYSICAL.get(word, self.physical_state or "")

    @property
    def state_shown(self) -> str:
        """Both states in the words of the tool: ``Down/Polling``."""
        return "/".join(word for word in (self.state, self.physical_state) if word)

    def document(self) -> dict[str, Any]:
        """Return the port as `preflight read --json` prints it."""
        facts = {name: getattr(self, name) for name in _SHOWN}
        return {**facts, "port": self.number, **self.other}


_SHOWN = (
    "device", "state", "physical_state", "rate_gbps", "link_layer", "lid", "sm_lid", "active_mtu", "netdev", "guid",
)  # fmt: skip
_PHYSICAL = {
    word.lower(): word
    for word in ("Sleep", "Polling", "Disabled", "PortConfigurationTraining", "LinkUp", "LinkErrorRecovery", "PhyTest")
}


@dataclass(frozen=True)
class PortList:
    """The ports in the output of one tool.

    ``devices`` are the devices that it names; None if the tool only names ports.
    """

    ports: tuple[RdmaPort, ...]
    devices: tuple[str, ...] | None = None


def facts(listed: PortList) -> dict[str, Any]:
    """Return the ports as `preflight read --json` prints them."""
    devices = {} if listed.devices is None else {"devices": list(listed.devices)}
    rows = [row.document() for port in listed.ports for row in port.gids]
    return {"ports": [port.document() for port in listed.ports], **devices, **({"gids": rows} if rows else {})}


def summary(listed: PortList) -> str:
    """Return a one-line summary of the ports: number, active, link layers, rates."""
    ports = listed.ports
    up = sum(port.logical == "ACTIVE" for port in ports)
    rates = sorted({f"{port.rate_gbps:g} Gb/s" for port in ports if port.rate_gbps})
    layers = sorted({port.link_layer for port in ports if port.link_layer})
    return ", ".join([f"{counted(len(ports), 'port')}, {up} active", *layers, *rates[:4]])


#: Words of infiniband-diags and libibverbs for states and link layers.
_WORDS = (
    "Active", "Down", "Initializing", "Armed", "ACTIVE", "DOWN", "INIT", "ARMED", "ACTIVE_DEFER", "NOP",
    "Sleep", "Polling", "Disabled", "PortConfigurationTraining", "LinkUp", "LinkErrorRecovery", "Phy Test",
    "SLEEP", "POLLING", "DISABLED", "PORT_CONFIGURATION_TRAINING", "LINK_UP", "LINK_ERROR_RECOVERY", "PHY_TEST",
    "InfiniBand", "Ethernet", "IB", "Unspecified",
)  # fmt: skip


def word(text: str | None) -> str | None:
    """Return a state or link layer; None if it is missing or truncated."""
    if not text or (text not in _WORDS and any(known.startswith(text) for known in _WORDS)):
        return None
    return text


@dataclass
class PortLines:
    """The lines of one port: its device, its number, its fields, and its first line."""

    device: str | None
    number: int | None
    line: int
    fields: dict[str, str] = field(default_factory=dict)

    @property
    def shown(self) -> str:
        """The port, as messages name it."""
        return f"{self.device or 'a device'} port {'?' if self.number is None else self.number}"


class PortListBuilder:
    """Builder of the devices and ports in a list.

    Pasted lists are often filtered with grep. A port's field before any port, or one that repeats in a port without a
    number, therefore starts a port with an unknown number.
    """

    def __init__(self, of_ports: Set[str]) -> None:
        """Start an empty list; ``of_ports`` are the fields that only ports have."""
        self.devices: dict[str, dict[str, str]] = {}
        self.ports: list[PortLines] = []
        self._of_ports = of_ports
        self._device: str | None = None
        self._port: PortLines | None = None

    def name_alone(self, name: str | None) -> None:
        """Set the device of all ports if the list names no device."""
        if name and not self.devices:
            for port in self.ports:
                port.device = name

    def begin_device(self, name: str) -> None:
        """Start a device."""
        self._device, self._port = name, None
        self.devices.setdefault(name, {})

    def begin_port(self, number: int | None, line: int) -> None:
        """Start a port of the current device."""
        self._port = PortLines(self._device, number, line)
        self.ports.append(self._port)

    def add(self, name: str, value: str, line: int) -> None:
        """Store a field of the current port, or, if there is none, of the device."""
        if name in self._of_ports and (self._port is None or (self._port.number is None and name in self._port.fields)):
            self.begin_port(None, line)
        if self._port is not None:
            self._port.fields[name] = value
        elif self._device is not None:
            self.devices[self._device][name] = value

    def of(self, device: str | None) -> dict[str, str]:
        """Return the fields of a device; empty if it is unknown."""
        return self.devices.get(device, {}) if device else {}

    def missing(self, promised: str) -> list[str]:
        """Return the devices with fewer ports than the field ``promised``, or without it."""
        shown = Counter(port.device for port in self.ports)
        promises = {name: re.match(r"\d{1,3}", fields.get(promised, "")) for name, fields in self.devices.items()}
        return [name for name, match in promises.items() if match is None or shown[name] < int(match[0])]
