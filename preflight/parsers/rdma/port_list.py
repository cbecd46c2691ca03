"""RDMA ports as printed by tools, and a builder of port lists."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Set
from typing import Any

from preflight._startup.lightclass import dataclass, field
from preflight.parsers.rdma.gid_row import GidRow


@dataclass(frozen=True)
class RdmaPort:
    """One port in the terms of the tool; None: not in the text.

    ``rate`` is the text of ``rate_gbps``; ``other`` has the fields that only this tool prints.
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
        """The port in NCCL's notation, ``mlx5_0:1``; otherwise its interface."""
        if self.device is None:
            return self.netdev or f"a port (line {self.line})"
        return self.device if self.number is None else f"{self.device}:{self.number}"

    @property
    def logical(self) -> str:
        """Logical state in sysfs terms: ACTIVE, DOWN, INIT, ARMED; otherwise empty."""
        word = (self.state or "").upper()
        return "INIT" if word == "INITIALIZING" else "ACTIVE" if word == "ACTIVE_DEFER" else word

    @property
    def trained(self) -> str:
        """Physical state in sysfs terms: LinkUp, Polling, …; empty if not in the text."""
        word = (self.physical_state or "").replace("_", "").replace(" ", "").lower()
        return _PHYSICAL.get(word, self.physical_state or "")

    @property
    def state_shown(self) -> str:
        """Both states as printed by the tool: ``Down/Polling``."""
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
    """The ports of one output.

    ``devices`` are those that it names, None if the tool names only ports.
    """

    ports: tuple[RdmaPort, ...]
    devices: tuple[str, ...] | None = None


def facts(listed: PortList) -> dict[str, Any]:
    """Return a list as `preflight read --json` prints it."""
    devices = {} if listed.devices is None else {"devices": list(listed.devices)}
    rows = [row.document() for port in listed.ports for row in port.gids]
    return {"ports": [port.document() for port in listed.ports], **devices, **({"gids": rows} if rows else {})}


def summary(listed: PortList) -> str:
    """Return a one-line summary of the ports: number, active, link layers, rates."""
    ports = listed.ports
    up = sum(port.logical == "ACTIVE" for port in ports)
    rates = sorted({f"{port.rate_gbps:g} Gb/s" for port in ports if port.rate_gbps})
    layers = sorted({port.link_layer for port in ports if port.link_layer})
    return ", ".join([f"{len(ports)} ports, {up} active", *layers, *rates[:4]])


#: The words for states and link layers in infiniband-diags and libibverbs.
_WORDS = (
    "Active", "Down", "Initializing", "Armed", "ACTIVE", "DOWN", "INIT", "ARMED", "ACTIVE_DEFER", "NOP",
    "Sleep", "Polling", "Disabled", "PortConfigurationTraining", "LinkUp", "LinkErrorRecovery", "Phy Test",
    "SLEEP", "POLLING", "DISABLED", "PORT_CONFIGURATION_TRAINING", "LINK_UP", "LINK_ERROR_RECOVERY", "PHY_TEST",
    "InfiniBand", "Ethernet", "IB", "Unspecified",
)  # fmt: skip


def word(text: str | None) -> str | None:
    """Return the word for a port's state; None if missing or truncated."""
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
        """Return the port in the notation of messages."""
        return f"{self.device or 'a device'} port {'?' if self.number is None else self.number}"


class PortListBuilder:
    """Builder of devices and ports from the lines of a list.

    Pasted lists are often filtered. A port field before any port, or a repeated one, starts a port with unknown number.
    """

    def __init__(self, of_ports: Set[str]) -> None:
        """Set the fields that only a port has."""
        self.devices: dict[str, dict[str, str]] = {}
        self.ports: list[PortLines] = []
        self._of_ports = of_ports
        self._device: str | None = None
        self._port: PortLines | None = None

    def name_alone(self, name: str | None) -> None:
        """Store the device of the command, if the list names none."""
        if name and not self.devices:
            for port in self.ports:
                port.device = name

    def begin_device(self, name: str) -> None:
        """Start a device."""
        self._device, self._port = name, None
        self.devices.setdefault(name, {})

    def begin_port(self, number: int | None, line: int) -> None:
        """Start a port of the last device."""
        self._port = PortLines(self._device, number, line)
        self.ports.append(self._port)

    def add(self, name: str, value: str, line: int) -> None:
        """Store a field of the last port, otherwise of the last device."""
        if name in self._of_ports and (self._port is None or (self._port.number is None and name in self._port.fields)):
            self.begin_port(None, line)
        if self._port is not None:
            self._port.fields[name] = value
        elif self._device is not None:
            self.devices[self._device][name] = value

    def of(self, device: str | None) -> dict[str, str]:
        """Return the fields of a device."""
        return self.devices.get(device, {}) if device else {}

    def missing(self, promised: str) -> list[str]:
        """Return the devices with fewer ports than announced, or without that field."""
        shown = Counter(port.device for port in self.ports)
        promises = {name: re.match(r"\d{1,3}", fields.get(promised, "")) for name, fields in self.devices.items()}
        return [name for name, match in promises.items() if match is None or shown[name] < int(match[0])]
