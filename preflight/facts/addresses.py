"""IP addresses of interfaces, default routes, and ARP settings.

Sources: psutil.net_if_addrs, else ``ip -j addr`` (iproute2); ``/proc/net/route``;
Documentation/networking/ip-sysctl.rst.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any, TypeAlias

from preflight._startup.lightclass import dataclass
from preflight.evidence import json_limits
from preflight.evidence.document import Evidence, EvidenceError
from preflight.textprep.plain_text import integer

PSUTIL = "psutil:net_if_addrs"
IP = "cmd:ip -j addr"
ROUTES = "file:/proc/net/route"
SYSCTL = "/proc/sys/net/ipv4/conf"

Address: TypeAlias = ipaddress.IPv4Interface | ipaddress.IPv6Interface


@dataclass(frozen=True)
class Addresses:
    """Addresses by interface; an interface without addresses has an empty tuple."""

    of: Mapping[str, tuple[Address, ...]]
    evidence: str  # the record that this was read from

    def ipv4(self, interface: str) -> tuple[ipaddress.IPv4Interface, ...]:
        """Return an interface's IPv4 addresses with their prefix."""
        return tuple(a for a in self.of.get(interface, ()) if isinstance(a, ipaddress.IPv4Interface))

    def beside(self, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> tuple[str, ...]:
        """Return the interfaces whose network contains an address."""
        return tuple(name for name, own in self.of.items() if any(address in one.network for one in own))

    def routable(self, interface: str) -> tuple[Address, ...]:
        """Return the addresses that other nodes can reach: all but link-local ones."""
        return tuple(address for address in self.of.get(interface, ()) if not address.is_link_local)


def addresses(evidence: Evidence) -> Addresses:
    """Return the addresses from the first source that answers.

    Raises an EvidenceError that names both sources if neither answers.
    """
    refusals = []
    for key, read in ((PSUTIL, _from_psutil), (IP, _from_ip)):
        try:
            return Addresses(read(evidence, key), key)
        except EvidenceError as error:
            refusals.append(error)
        except ValueError as error:
            refusals.append(EvidenceError(key, str(error)))
    raise EvidenceError(refusals[0].key, "; ".join(str(refusal) for refusal in refusals))


def _from_psutil(evidence: Evidence, key: str) -> dict[str, tuple[Address, ...]]:
    return parse_psutil(evidence.value(key))


def _from_ip(evidence: Evidence, key: str) -> dict[str, tuple[Address, ...]]:
    return parse_ip(evidence.text(key))


def parse_psutil(value: Any) -> dict[str, tuple[Address, ...]]:
    """Decode psutil's mapping; raises ValueError."""
    if not isinstance(value, dict) or not value:
        raise ValueError("has no network interface")
    found = {}
    for interface, entries in value.items():
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise ValueError(f"the entry of {interface!r} is not a list of addresses")
        ips = [entry for entry in entries if entry.get("family") in ("inet", "inet6")]
        found[str(interface)] = tuple(_interface(entry.get("address"), entry.get("netmask")) for entry in ips)
    return found


def parse_ip(text: str) -> dict[str, tuple[Address, ...]]:
    """Read ``ip -j addr``; raises ValueError."""
    try:
        value = json_limits.text(text)
    except ValueError:
        raise ValueError(f"{text.strip()[:80]!r} is not the JSON of ip(8)") from None
    if not isinstance(value, list) or not value:
        raise ValueError("lists no network interface")
    found = {}
    for link in value:
        entries = link.get("addr_info", []) if isinstance(link, dict) else None
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise ValueError("an entry of ip(8) is not an interface")
        ips = [entry for entry in entries if entry.get("family") in ("inet", "inet6")]
        found[str(link.get("ifname"))] = tuple(_interface(e.get("local"), e.get("prefixlen")) for e in ips)
    return found


def _interface(address: Any, mask: Any) -> Address:
    """Return the interface address for an address and its mask.

    The mask is a prefix length, or an address as psutil reports it. A scope after ``%`` is dropped. Raises ValueError.
    """
    if not isinstance(address, str) or isinstance(mask, bool) or not isinstance(mask, (str, int, type(None))):
        raise ValueError(f"an address of type {type(address).__name__} with a mask of type {type(mask).__name__}")
    host = address.split("%")[0]
    try:
        if isinstance(mask, str) and ":" in mask:
            mask = bin(int(ipaddress.IPv6Address(mask))).count("1")
        return ipaddress.ip_interface(host if mask is None else f"{host}/{mask}")
    except ValueError:
        raise ValueError(f"{host[:60]!r} with mask {str(mask)[:60]!r} is not an address") from None


def default_routes(text: str) -> tuple[str, ...]:
    """Return interfaces with an IPv4 default route; raises ValueError.

    They are read from ``/proc/net/route``. A route to one half of all addresses is included: VPNs and DHCP clients set
    both halves to take precedence over a default route.
    """
    return tuple(dict.fromkeys(name for name, network in routes(text) if network.prefixlen <= 1))


def routes(text: str) -> tuple[tuple[str, ipaddress.IPv4Network], ...]:
    """Return interface and destination of each route; raises ValueError.

    They are read from ``/proc/net/route``, the main table. A route that is down (flag U missing) or that rejects
    (flag !) is left out.
    """
    found = []
    for row in _route_rows(text):
        try:
            to, mask = int(row[1], 16), int(row[7], 16)
            # Addresses are printed in host byte order: on all GPU hosts the first octet is the lowest byte.
            address, netmask = (ipaddress.IPv4Address(number.to_bytes(4, "little")) for number in (to, mask))
            if _is_up(row):
                found.append((row[0], ipaddress.IPv4Network(f"{address}/{netmask}")))
        except (ValueError, OverflowError):
            raise ValueError(f"{' '.join(row)[:60]!r} is not a route") from None
    return tuple(found)


@dataclass(frozen=True)
class RoutingTable:
    """The kernel's main table of IPv4 routes: interface, destination, metric."""

    rows: tuple[tuple[str, ipaddress.IPv4Network, int], ...]

    def to(self, address: ipaddress.IPv4Address, shortest: int = 0) -> tuple[str, ...]:
        """Return the interfaces towards an address: longest prefix, then lowest metric.

        ``shortest`` is the minimum prefix length: 1 excludes default routes.
        """
        fitting = [row for row in self.rows if address in row[1] and row[1].prefixlen >= shortest]
        best = min(((-to.prefixlen, metric) for _, to, metric in fitting), default=None)
        return tuple(dict.fromkeys(name for name, to, metric in fitting if (-to.prefixlen, metric) == best))


def table(text: str) -> RoutingTable:
    """Read ``/proc/net/route``; raises ValueError."""
    found = routes(text)
    metrics = [row[6] for row in _route_rows(text) if _is_up(row)]
    if wrong := next((metric for metric in metrics if not metric.isdecimal() or len(metric) > 10), None):
        raise ValueError(f"{wrong[:40]!r} is not the metric of a route")
    return RoutingTable(tuple((name, to, int(metric)) for (name, to), metric in zip(found, metrics, strict=True)))


def _is_up(row: list[str]) -> bool:
    flags = int(row[3], 16)
    return bool(flags & 0x1 and not flags & 0x200)  # RTF_UP, RTF_REJECT


def _route_rows(text: str) -> list[list[str]]:
    lines = [line.split() for line in text.splitlines() if line.strip()]
    if not lines or lines[0][:2] != ["Iface", "Destination"]:
        raise ValueError(f"{text.strip()[:60]!r} is not the kernel's table of routes")
    for row in lines[1:]:
        if len(row) < 8:
            raise ValueError(f"the route {' '.join(row)[:60]!r} is incomplete")
    return lines[1:]


def effective(evidence: Evidence, interface: str, setting: str) -> int:
    """Return the effective arp_ignore, arp_announce or rp_filter of an interface.

    It is the larger of the values for ``all`` and for the interface.
    """
    return max(_setting(evidence, name, setting) for name in ("all", interface))


def _setting(evidence: Evidence, name: str, setting: str) -> int:
    key = f"file:{SYSCTL}/{name}/{setting}"
    try:
        return integer(evidence.text(key), setting)
    except ValueError as error:
        raise EvidenceError(key, str(error)) from None
