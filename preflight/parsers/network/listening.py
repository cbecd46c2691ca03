"""Listening TCP ports (``/proc/net/tcp``, ``/proc/net/tcp6``; proc(5))."""

from __future__ import annotations

import re

TCP = ("file:/proc/net/tcp", "file:/proc/net/tcp6")

#: One socket: number, local and remote address with hexadecimal ports, and state. Only state 0A, TCP_LISTEN, matches.
_LISTENING = re.compile(r"(?m)^ *[0-9]{1,9}: [0-9A-F]{8,32}:([0-9A-F]{4}) [0-9A-F]{8,32}:[0-9A-F]{4} 0A ")


def listening(text: str) -> frozenset[int]:
    """Return the TCP ports of listening sockets; raises ValueError.

    It is an error if the text is not a table of sockets.
    """
    if "local_address" not in text.partition("\n")[0]:
        raise ValueError(f"contains {text[:60]!r}, not a table of sockets")
    return frozenset(int(port, 16) for port in _LISTENING.findall(text))
