"""A slow, long or breaking wire between a client and a real sshd, in user space.

Replaces ``tc netem``, which not every kernel has.
"""

from __future__ import annotations

import contextlib
import heapq
import select
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass

_CHUNK = 32768


@dataclass(frozen=True)
class Wire:
    """Effect of the wire on the bytes: delay, limited rate, or a break after some of them.

    ``delay_s`` applies in both directions; ``bytes_per_s`` and ``cut_after_bytes`` apply from the server.
    """

    delay_s: float = 0.0
    bytes_per_s: float = 0.0
    cut_after_bytes: int = -1


def reset(connection: socket.socket) -> None:
    """Close a connection with an RST instead of a FIN."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def carry(client: socket.socket, server: socket.socket, wire: Wire, on_cut: Callable[[], None]) -> None:
    """Forward bytes until both sides have ended, or the wire breaks."""
    other = {client: server, server: client}
    open_in, queue = {client, server}, list[tuple[float, int, socket.socket, bytes]]()
    sent, free_at, number = 0, 0.0, 0
    while open_in or queue:
        wait_s = max(0.0, queue[0][0] - time.monotonic()) if queue else 30.0
        for source in select.select(list(open_in), [], [], wait_s)[0]:
            try:
                data = source.recv(_CHUNK)
            except OSError:
                data = b""
            if not data:
                open_in.discard(source)
            due = time.monotonic() + wire.delay_s
            if wire.bytes_per_s and source is server:
                free_at = max(free_at, due) + len(data) / wire.bytes_per_s
                due = free_at
            number += 1
            heapq.heappush(queue, (due, number, other[source], data))
        while queue and queue[0][0] <= time.monotonic():
            _, _, target, data = heapq.heappop(queue)
            if target is client and 0 <= wire.cut_after_bytes < sent + len(data):
                with contextlib.suppress(OSError):
                    client.sendall(data[: wire.cut_after_bytes - sent])
                reset(client)
                server.close()
                return on_cut()
            try:
                if data:
                    target.sendall(data)
                    sent += len(data) if target is client else 0
                else:
                    target.shutdown(socket.SHUT_WR)
            except OSError:
                open_in.clear()
                queue.clear()
    client.close()
    server.close()
