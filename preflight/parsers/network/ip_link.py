"""``ip link`` and ``ip addr`` (iproute2), with or without ``-s``."""

from __future__ import annotations

import re
from ipaddress import IPv4Interface
from typing import Any

from preflight._startup.lightclass import dataclass, replace
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import block
from preflight.textprep.agreement import counted
from preflight.textprep.lines import Lines

HINTS = ("mtu ",)

_HEAD = re.compile(r"\s{0,8}\d{1,6}: ([\w.:-]{1,40})(?:@[\w.-]{1,40})?: <([A-Z0-9_,-]*)> mtu (\d{1,6})\b(.*)")
_BEGUN = re.compile(r"\s{0,8}\d{1,6}: [\w.:@-]{1,40}:?(?: <.*)?")
_STATE = re.compile(r"\bstate ([A-Z]+)\b")
_ADDRESS = re.compile(r"\s*inet6? ([0-9a-fA-F:.]{2,45}(?:/\d{1,3})?)(?:\s.*)?")
_HARDWARE = re.compile(r"\s*link/\S+(?:\s+([0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}){4,19}))?(?:\s.*)?")
_MORE = re.compile(r"\s*(?:inet6? |link/|valid_lft |altname |vf \d|RX:|TX:|RX errors:|TX errors:|bond |vlan |"
              r"macvlan |alias |promiscuity |permaddr |link-netns\w* |parentbus |mode |group |"
              r"\d+(?:\s+\d+){3,8}\s*$).*")  # fmt: skip
_COUNTERS = re.compile(r"\s*(RX|TX):\s+(bytes(?:\s+\w+)+)\s*")
_NUMBERS = re.compile(r"\s*\d{1,20}(?:\s+\d{1,20}){3,8}\s*")


def _subnet(address: str) -> str:
    try:
        network = IPv4Interface(address).network
    except ValueError:
        return ""
    return str(network) if network.prefixlen <= 30 else ""


@dataclass(frozen=True)
class Interface:
    """One network interface; a value that the text lacks is None."""

    name: str
    line: int
    flags: frozenset[str]
    mtu: int  # bytes; 0 if not shown
    state: str | None  # UP, DOWN, UNKNOWN, …
    mac: str | None = None
    addresses: tuple[str, ...] = ()
    rx_errors: int | None = None
    tx_errors: int | None = None
    rx_dropped: int | None = None
    tx_dropped: int | None = None

    @property
    def subnets(self) -> tuple[str, ...]:
        """The IPv4 subnets of the addresses, except /31 and /32."""
        return tuple(dict.fromkeys(subnet for address in self.addresses if (subnet := _subnet(address))))

    @property
    def is_up(self) -> bool:
        """Whether the interface is administratively up."""
        return "UP" in self.flags

    @property
    def has_carrier(self) -> bool:
        """Whether the interface has a link."""
        return "LOWER_UP" in self.flags and "NO-CARRIER" not in self.flags


def begins(lines: Lines, at: int) -> bool:
    """Return whether a list of interfaces without addresses begins at a line."""
    return bool(_HEAD.fullmatch(lines[at].text)) and not has_addresses(lines, at)


def is_head(text: str) -> bool:
    """Return whether a line is the first line of an interface."""
    return _HEAD.fullmatch(text) is not None


def has_addresses(lines: Lines, at: int) -> bool:
    """Return whether the list that begins at a line shows IP addresses."""
    for line in lines[at + 1 : at + 60]:
        if _ADDRESS.fullmatch(line.text):
            return True
        if line.text.strip() and not (_HEAD.fullmatch(line.text) or _MORE.fullmatch(line.text)):
            return False
    return False


def parse_lines(lines: Lines, at: int) -> Parsed[tuple[Interface, ...]]:
    """Read the interfaces starting at a line."""
    end, taken = block(lines, at, lambda text: bool(_HEAD.fullmatch(text) or _MORE.fullmatch(text)))
    result: list[Interface] = []
    columns: tuple[str, list[str]] | None = None
    for line in taken:
        if head := _HEAD.fullmatch(line.text):
            state = _STATE.search(head[4])
            flags = frozenset(head[2].split(","))
            result.append(Interface(head[1], line.number, flags, int(head[3]), state[1] if state else None))
        elif columns and _NUMBERS.fullmatch(line.text):
            result[-1] = _counted(result[-1], *columns, [int(number) for number in line.text.split()])
            columns = None
        elif counters := _COUNTERS.fullmatch(line.text):
            columns = counters[1].lower(), counters[2].split()
        elif address := _ADDRESS.fullmatch(line.text):
            result[-1] = replace(result[-1], addresses=(*result[-1].addresses, address[1]))
        elif hardware := _HARDWARE.fullmatch(line.text):
            result[-1] = replace(result[-1], mac=hardware[1])
    gaps = []
    rest = [line for line in lines[end:] if line.text.strip()] if len(lines) - end < 4 else []
    if len(rest) == 1 and _BEGUN.fullmatch(rest[0].text):
        gaps.append(ParseGap(rest[0].number, "the text stops within an interface"))
    return Parsed(tuple(result), tuple(gaps), end)


def _counted(interface: Interface, way: str, columns: list[str], values: list[int]) -> Interface:
    row = dict(zip(columns, values, strict=False))
    if way == "rx":
        return replace(interface, rx_errors=row.get("errors"), rx_dropped=row.get("dropped"))
    return replace(interface, tx_errors=row.get("errors"), tx_dropped=row.get("dropped"))


def facts(interfaces: tuple[Interface, ...]) -> dict[str, Any]:
    """Return the interfaces as `preflight read --json` prints them."""
    return {
        "interfaces": [
            {
                "name": item.name, "up": item.is_up, "carrier": item.has_carrier, "state": item.state, "mtu": item.mtu,
                "mac": item.mac, "addresses": list(item.addresses), "rx_errors": item.rx_errors,
                "tx_errors": item.tx_errors, "rx_dropped": item.rx_dropped, "tx_dropped": item.tx_dropped,
            }
            for item in interfaces
        ]
    }  # fmt: skip


def summary(interfaces: tuple[Interface, ...]) -> str:
    """Return a one-line summary of the interfaces."""
    down = [item.name for item in interfaces if not item.has_carrier]
    return f"{counted(len(interfaces), 'interface')}, without a link: {', '.join(down[:8]) or 'none'}"
