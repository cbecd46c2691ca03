"""Host names of the command line and of ProxyJump."""

from __future__ import annotations

import re
from dataclasses import dataclass

from preflight.transport.errors import TransportError


@dataclass(frozen=True)
class HostSpec:
    """A host of the command line or a ProxyJump: ``[user@]name[:port]``."""

    name: str
    user: str = ""
    port: int = 0

    @classmethod
    def parse(cls, text: str, user: str = "") -> HostSpec:
        """Parse ``[ssh://][user@]host[:port]``; raise TransportError."""
        rest = text.removeprefix("ssh://").rstrip("/")
        named, _, rest = rest.rpartition("@")
        found = re.fullmatch(r"\[([^]]+)\](?::(\d+))?|([^:]+)(?::(\d+))?|([^:]*:[^:]*:.*)", rest)
        name = found and (found[1] or found[3] or found[5])
        if not found or not name or name.startswith("-") or any(c.isspace() or c in "'\"`$\\;&<>|(){}" for c in name):
            raise TransportError(f"{text!r} is not the name of a host")
        return cls(name, named or user, int(found[2] or found[4] or 0))
