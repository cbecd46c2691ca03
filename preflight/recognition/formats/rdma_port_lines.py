"""What all tools tell of an RDMA port: the names of its facts, its rate, and how many there are in a word."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Set
from dataclasses import dataclass, field
from typing import Any

#: What every port has; what the text does not say stays None.
_PORT = dict.fromkeys(
    ("device", "port", "state", "physical_state", "rate_gbps", "link_layer", "lid", "sm_lid", "active_mtu", "netdev",
     "guid")
)  # fmt: skip

_RATE = re.compile(r"(\d{1,4}(?:\.\d{1,3})?)\s*(?:G[bB](?:it)?(?:/s(?:ec)?|ps)?)?\b.*")


def port_of(device: str | None, port: int | None) -> dict[str, Any]:
    """Return a port of which no more is known than which it is."""
    return {**_PORT, "device": device, "port": port}


#: The words of a state and of a link layer, as infiniband-diags and libibverbs write them.
_WORDS = (
    "Active", "Down", "Initializing", "Armed", "ACTIVE", "DOWN", "INIT", "ARMED", "ACTIVE_DEFER", "NOP",
    "Sleep", "Polling", "Disabled", "PortConfigurationTraining", "LinkUp", "LinkErrorRecovery", "Phy Test",
    "SLEEP", "POLLING", "DISABLED", "PORT_CONFIGURATION_TRAINING", "LINK_UP", "LINK_ERROR_RECOVERY", "PHY_TEST",
    "InfiniBand", "Ethernet", "IB", "Unspecified",
)  # fmt: skip


def word(text: str | None) -> str | None:
    """Return a word of a port's state; None if there is none, or only the beginning of one."""
    if not text or (text not in _WORDS and any(known.startswith(text) for known in _WORDS)):
        return None
    return text


def rate(text: str | None) -> float | None:
    """Return a rate in Gb/s: ``400``, ``400 Gb/sec (4X NDR)``, ``25.0 Gbps (32)``; None if there is none."""
    match = _RATE.fullmatch(text.strip()) if text else None
    return float(match[1]) if match else None


def summary(ports: list[dict[str, Any]]) -> str:
    """Return one line on the ports: how many, active, link layers and rates."""
    up = sum(str(port["state"] or "").upper().endswith("ACTIVE") for port in ports)
    rates = sorted({f"{port['rate_gbps']:g} Gb/s" for port in ports if port["rate_gbps"]})
    layers = sorted({port["link_layer"] for port in ports if port["link_layer"]})
    return ", ".join([f"{len(ports)} ports, {up} active", *layers, *rates[:4]])


@dataclass
class PortLines:
    """The lines of one port: its device, its number, its fields, and its first line."""

    device: str | None
    number: int | None
    line: int
    fields: dict[str, str] = field(default_factory=dict)

    @property
    def shown(self) -> str:
        """Return the port as a message names it."""
        return f"{self.device or 'a device'} port {'?' if self.number is None else self.number}"


class PortListBuilder:
    """Devices and their ports as the lines of a list name them one after the other.

    Whoever searches a list for some of its lines loses the others: a field of a port that comes before any port
    begins one that has no number, and so does one that this port has already.
    """

    def __init__(self, of_ports: Set[str]) -> None:
        """Keep which fields only a port has."""
        self.devices: dict[str, dict[str, str]] = {}
        self.ports: list[PortLines] = []
        self._of_ports = of_ports
        self._device: str | None = None
        self._port: PortLines | None = None

    def name_alone(self, name: str | None) -> None:
        """Store the device of the command, where the list itself names none."""
        if name and not self.devices:
            for port in self.ports:
                port.device = name

    def begin_device(self, name: str) -> None:
        """Begin a device."""
        self._device, self._port = name, None
        self.devices.setdefault(name, {})

    def begin_port(self, number: int | None, line: int) -> None:
        """Begin a port of the device that was named last."""
        self._port = PortLines(self._device, number, line)
        self.ports.append(self._port)

    def add(self, name: str, value: str, line: int) -> None:
        """Keep a field of the port, else of the device, that was named last."""
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
        """Return the devices with fewer ports than their field promises, or without it."""
        shown = Counter(port.device for port in self.ports)
        promises = {name: re.match(r"\d{1,3}", fields.get(promised, "")) for name, fields in self.devices.items()}
        return [name for name, match in promises.items() if match is None or shown[name] < int(match[0])]
