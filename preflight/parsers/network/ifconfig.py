"""``ifconfig`` (net-tools), read into the interfaces of ``ip_link``."""

from __future__ import annotations

import re

from preflight._startup.lightclass import replace
from preflight.parsers.network.ip_link import Interface, facts, summary
from preflight.parsers.parsed import Parsed
from preflight.parsers.text_block import block
from preflight.textprep.lines import Lines

__all__ = ["HINTS", "begins", "facts", "parse_lines", "summary"]

HINTS = (": flags=",)

_HEAD = re.compile(r"\s{0,8}([\w.:@-]{1,40}): flags=\d{1,6}<([A-Z0-9_,]*)>\s+mtu (\d{1,6})\s*")
_ADDRESS = re.compile(r"\s+inet6? ([0-9a-fA-F:.]{2,45})\b.*")
_ETHER = re.compile(r"\s+(?:ether|infiniband) ([0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}){4,19})\b.*")
_ERRORS = re.compile(r"\s+(RX|TX) errors (\d{1,20})\s+dropped (\d{1,20})\b.*")
_MORE = re.compile(r"\s+(?:inet6? |ether |infiniband |unspec |loop |RX |TX |device |Infiniband hardware).*")


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``ifconfig`` output begins at a line."""
    return _HEAD.fullmatch(lines[at].text) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[tuple[Interface, ...]]:
    """Read the interfaces starting at a line."""
    end, taken = block(lines, at, lambda text: bool(_HEAD.fullmatch(text) or _MORE.fullmatch(text)))
    result: list[Interface] = []
    for line in taken:
        if head := _HEAD.fullmatch(line.text):
            flags = set(head[2].split(","))
            if "RUNNING" in flags:  # the kernel's flag for a carrier
                flags.add("LOWER_UP")
            state = "UP" if {"UP", "RUNNING"} <= flags else "DOWN"
            result.append(Interface(head[1], line.number, frozenset(flags), int(head[3]), state))
        elif address := _ADDRESS.fullmatch(line.text):
            result[-1] = replace(result[-1], addresses=(*result[-1].addresses, address[1]))
        elif ether := _ETHER.fullmatch(line.text):
            result[-1] = replace(result[-1], mac=ether[1])
        elif errors := _ERRORS.fullmatch(line.text):
            count, dropped = int(errors[2]), int(errors[3])
            if errors[1] == "RX":
                result[-1] = replace(result[-1], rx_errors=count, rx_dropped=dropped)
            else:
                result[-1] = replace(result[-1], tx_errors=count, tx_dropped=dropped)
    return Parsed(tuple(result), (), end)
