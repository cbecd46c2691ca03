"""Streams of a command that the simulated API server runs: the common interface, and WebSocket."""

from __future__ import annotations

import asyncio
import struct
from typing import Protocol

STDIN, STDOUT, STDERR, ERROR = 0, 1, 2, 3
#: The channel on which v5.channel.k8s.io announces that another one is closed.
_CLOSE = 255

_BINARY, _CLOSING, _PING, _PONG = 2, 8, 9, 10


class Channels(Protocol):
    """Streams between a process and a client."""

    async def send(self, channel: int, data: bytes) -> None:
        """Send the bytes of one channel."""

    async def receive(self) -> tuple[int, bytes]:
        """Return a channel and its bytes; none means that the client has closed it. Raises at the end."""

    async def close(self) -> None:
        """End the connection."""

    def abort(self) -> None:
        """Lose the connection."""


class WebSocket:
    """Frames of RFC 6455, each with a channel's number first."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Begin after the handshake."""
        self._reader, self._writer = reader, writer

    async def send(self, channel: int, data: bytes) -> None:
        """Send the bytes of one channel."""
        await self._frame(_BINARY, bytes([channel]) + data)

    async def receive(self) -> tuple[int, bytes]:
        """Return a channel and its bytes."""
        message = b""
        while True:
            first, second = await self._reader.readexactly(2)
            length = second & 127
            if length >= 126:
                size = 2 if length == 126 else 8
                length = int.from_bytes(await self._reader.readexactly(size), "big")
            mask = await self._reader.readexactly(4)
            raw = await self._reader.readexactly(length)
            keys = (mask * (length // 4 + 1))[:length]
            data = (int.from_bytes(raw, "big") ^ int.from_bytes(keys, "big")).to_bytes(length, "big")
            kind = first & 15
            if kind == _PING:
                await self._frame(_PONG, data)
                continue
            if kind == _CLOSING:
                raise ConnectionResetError("closed by the client")
            if kind == _PONG:
                continue
            message += data
            if first & 128:
                break
        if message[0] == _CLOSE:
            return message[1], b""
        return message[0], message[1:]

    async def close(self) -> None:
        """End the connection."""
        await self._frame(_CLOSING, struct.pack(">H", 1000))
        self._writer.close()

    def abort(self) -> None:
        """Lose the connection."""
        self._writer.transport.abort()

    async def _frame(self, kind: int, data: bytes) -> None:
        head = bytes([128 | kind])
        if len(data) < 126:
            head += bytes([len(data)])
        elif len(data) < 65536:
            head += struct.pack(">BH", 126, len(data))
        else:
            head += struct.pack(">BQ", 127, len(data))
        self._writer.write(head + data)
        await self._writer.drain()
