"""A row of a GID table, from ``show_gids`` or ``ibv_devinfo -v``."""

from __future__ import annotations

import ipaddress
import re
from typing import Any

from preflight._startup.lightclass import dataclass


@dataclass(frozen=True)
class GidRow:
    """One address of a port; a value that the text lacks is None."""

    device: str | None
    port: int | None
    index: int
    gid: str | None
    ipv4: str | None
    version: str | None  # v1, v2, IB
    netdev: str | None
    line: int = 0

    @property
    def is_link_local(self) -> bool:
        """Whether the GID is a link-local address, which no router forwards."""
        return bool(self.gid) and str(self.gid).lower().startswith("fe80:")

    def document(self) -> dict[str, Any]:
        """Return the row as `preflight read --json` prints it."""
        return {
            "device": self.device, "port": self.port, "index": self.index, "gid": self.gid, "ipv4": self.ipv4,
            "version": self.version, "netdev": self.netdev,
        }  # fmt: skip


_MAPPED = re.compile(r"(?i)(?:::|(?:0{1,4}:){5})ffff:(\S+)")


def mapped_ipv4(gid: str) -> str | None:
    """Return the IPv4 address of an IPv4-mapped GID; None for any other GID."""
    match = _MAPPED.fullmatch(gid)
    try:
        return str(ipaddress.IPv6Address(gid).ipv4_mapped or "") or None if match else None
    except ValueError:
        return None
