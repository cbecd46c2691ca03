"""SPDY/3.1 for `exec` from older `kubectl`: the server's side, for the simulated API server.

After draft-mbelshe-httpbis-spdy-00 and SPDY/3.1's window updates, of which this peer makes no use; one stream for each
of error, stdin, stdout and stderr, named by the header streamtype (protocol v4.channel.k8s.io).
"""

from __future__ import annotations

import asyncio
import struct
import zlib

from tests.support.kubernetes.apiserver_streams import ERROR, STDERR, STDIN, STDOUT

_NAMES = {"stdin": STDIN, "stdout": STDOUT, "stderr": STDERR, "error": ERROR}
_SYN_STREAM, _SYN_REPLY, _PING, _GOAWAY = 1, 2, 6, 7
_FIN = 1

_WORDS = """
options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age allow
authorization cache-control connection content-base content-encoding content-language content-length
content-location content-md5 content-range content-type date etag expect expires from host if-match
if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma
proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade
user-agent vary via warning www-authenticate method get status 200|OK version HTTP/1.1 url public set-cookie
keep-alive origin
"""
_TAIL = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized"
    "403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable"
    "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT"
    "chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,"
    "text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)

#: The dictionary with which both sides compress headers (section 2.6.10.1).
DICTIONARY = (
    b"".join(struct.pack(">I", len(word)) + word.replace("|", " ").encode() for word in _WORDS.split()) + _TAIL.encode()
)


async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Spdy:
    """Upgrade a connection and wait until the client has opened its streams."""
    writer.write(
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
        b"X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n"
    )
    await writer.drain()
    session = Spdy(reader, writer)
    while len(session.streams) < len(_NAMES):
        await session.step()
    return session


class Spdy:
    """One session."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Begin after the upgrade."""
        self.streams: dict[int, int] = {}  # stream -> channel
        self._reader, self._writer = reader, writer
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._deflate = zlib.compressobj(zdict=DICTIONARY)
        self._held: list[tuple[int, bytes]] = []

    async def receive(self) -> tuple[int, bytes]:
        """Return a channel and its bytes; none means that the client has closed it."""
        while not self._held:
            await self.step()
        return self._held.pop(0)

    async def send(self, channel: int, data: bytes) -> None:
        """Send the bytes of one channel."""
        self._writer.write(struct.pack(">II", self._stream(channel), len(data)) + data)
        await self._writer.drain()

    async def close(self) -> None:
        """End every stream, then the connection."""
        for channel in (STDOUT, STDERR, ERROR):
            self._writer.write(struct.pack(">II", self._stream(channel), _FIN << 24))
        self._writer.write(self._control(_GOAWAY, struct.pack(">II", max(self.streams), 0)))
        await self._writer.drain()
        self._writer.close()

    def abort(self) -> None:
        """Lose the connection."""
        self._writer.transport.abort()

    async def step(self) -> None:
        """Process one frame."""
        first, second = struct.unpack(">II", await self._reader.readexactly(8))
        body = await self._reader.readexactly(second & 0xFFFFFF)
        if not first >> 31:
            channel = self.streams[first]
            if body:
                self._held.append((channel, body))
            if second >> 24 & _FIN:
                self._held.append((channel, b""))
            return
        kind = first & 0xFFFF
        if kind == _SYN_STREAM:
            stream = struct.unpack(">I", body[:4])[0] & 0x7FFFFFFF
            self.streams[stream] = _NAMES[self._headers(body[10:])["streamtype"]]
            empty = self._deflate.compress(struct.pack(">I", 0)) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
            self._writer.write(self._control(_SYN_REPLY, struct.pack(">I", stream) + empty))
            await self._writer.drain()
        elif kind == _PING:
            self._writer.write(self._control(_PING, body))
            await self._writer.drain()
        elif kind == _GOAWAY:
            raise ConnectionResetError("the client has gone away")

    def _stream(self, channel: int) -> int:
        return next(stream for stream, number in self.streams.items() if number == channel)

    def _control(self, kind: int, body: bytes) -> bytes:
        return struct.pack(">HHI", 0x8003, kind, len(body)) + body

    def _headers(self, block: bytes) -> dict[str, str]:
        raw = self._inflate.decompress(block)
        count, at, found = struct.unpack(">I", raw[:4])[0], 4, {}
        for _ in range(count):
            pair = []
            for _ in range(2):
                length = struct.unpack(">I", raw[at : at + 4])[0]
                pair.append(raw[at + 4 : at + 4 + length].decode())
                at += 4 + length
            found[pair[0].lower()] = pair[1]
        return found
