"""Lines of a file, plain, compressed or UTF-16, read in constant memory.

Lines are truncated at :data:`MAX_LINE_BYTES`. Compressed data is decompressed while reading. Reading stops if the data
expands too much (a decompression bomb).
"""

from __future__ import annotations

import bz2
import codecs
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol

CHUNK = 1 << 20
MAX_LINE_BYTES = 1 << 18
#: Expansion that stops reading, and the size at which it is checked. An NCCL log expands 30 times, repeated lines 100
#: times; gzip's limit is 1,032 times.
BOMB_RATIO, BOMB_BYTES = 500, 1 << 28
#: Number of bytes used to detect a format, and minimum fraction of high bytes that are zero in UTF-16 without a byte
#: order mark. In a text with Asian letters, only blanks and tool output have such bytes.
HEAD, _LEAST_ZEROS = 64, 0.25
#: Maximum memory to decompress xz; `xz -9` needs 65 MiB. A file that needs more is rejected.
XZ_MEMORY = 80 << 20


class ByteReader(Protocol):
    """A source of bytes."""

    def read(self, size: int, /) -> bytes:
        """Read at most ``size`` bytes; empty at the end."""


class Notes(Protocol):
    """A receiver of notes on data that was not read."""

    def __call__(self, remark: str, /) -> None:
        """Receive one note."""


def divisible(head: bytes) -> bool:
    """Return whether reading can start at any line of a file.

    It cannot in compressed files and UTF-16.
    """
    return _utf16(head) is None and not head.startswith(tuple(magic for magic, _ in _PACKED))


def _utf16(head: bytes) -> str | None:
    """Return the UTF-16 codec for a text that starts with ``head``, or None.

    PowerShell's ``>`` writes a byte order mark. Other Windows programs do not; many of the high bytes are then zero.
    """
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    first, second = head[:HEAD:2], head[1:HEAD:2]
    for zeros, letters, codec in ((second, first, "utf-16-le"), (first, second, "utf-16-be")):
        if zeros.count(0) >= max(3, _LEAST_ZEROS * len(zeros)) and 0 not in letters:
            return codec
    return None


def opened(stream: ByteReader, note: Notes) -> ByteReader:
    """Return a reader of a file's content, decompressed and converted to UTF-8.

    Raises ValueError for a compression that cannot be read.
    """
    head = stream.read(HEAD)
    reader: ByteReader = _Joined(head, stream)
    for magic, make in _PACKED:
        if head.startswith(magic):
            reader = _Unpacked(reader, make(), make, note)
            head = reader.read(HEAD)
            reader = _Joined(head, reader)
            break
    if codec := _utf16(head):
        reader = _Utf16(reader, codec)
    return reader


def peeked(reader: ByteReader, most: int) -> tuple[ByteReader, bytes | None]:
    """Return an equivalent reader, and all data or None if over ``most`` bytes."""
    pieces, size = [], 0
    while size <= most and (data := reader.read(most + 1 - size)):
        pieces.append(data)
        size += len(data)
    head = b"".join(pieces)
    return _Joined(head, reader), head if size <= most else None


def lines(reader: ByteReader, left_out: Callable[[bytes], object], most: int | None = None) -> Iterator[list[bytes]]:
    """Yield lists of lines without line ends, from at most ``most`` bytes.

    ``left_out`` receives the truncated ends of long lines.
    """
    carry, skipping = b"", False
    left = most
    while left != 0 and (data := reader.read(CHUNK if left is None else min(CHUNK, left))):
        if left is not None:
            left -= len(data)
        if skipping:
            end = data.find(b"\n")
            left_out(data[: end if end >= 0 else None])
            if end < 0:
                continue
            data, skipping = data[end:], False
        buffer = carry + data
        end = buffer.rfind(b"\n")
        if end >= 0:
            yield buffer[:end].split(b"\n")
            carry = buffer[end + 1 :]
        else:
            carry = buffer
        if len(carry) > MAX_LINE_BYTES:
            left_out(carry[MAX_LINE_BYTES:])
            carry, skipping = carry[:MAX_LINE_BYTES], True
    if carry:
        yield [carry]


class _Joined:
    """A reader of bytes that were already read, followed by the rest."""

    def __init__(self, head: bytes, rest: ByteReader) -> None:
        self.head, self.rest = head, rest

    def read(self, size: int, /) -> bytes:
        if self.head:
            given, self.head = self.head[:size], self.head[size:]
            return given
        return self.rest.read(size)


class _Utf16:
    """A reader that converts UTF-16, as Windows writes it, to UTF-8."""

    def __init__(self, rest: ByteReader, codec: str) -> None:
        self.rest, self.decoder = rest, codecs.getincrementaldecoder(codec)("replace")

    def read(self, size: int, /) -> bytes:
        while data := self.rest.read(size):
            if text := self.decoder.decode(data):
                return text.encode("utf-8", "replace")
        return b""


class _Gzip:
    """zlib's decompressor with the interface of those of bz2 and lzma."""

    def __init__(self) -> None:
        self.inner = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self.inner.eof

    @property
    def unused_data(self) -> bytes:
        return self.inner.unused_data

    @property
    def needs_input(self) -> bool:
        return not self.inner.unconsumed_tail

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self.inner.decompress(self.inner.unconsumed_tail + data, max_length)


class _Unpacked:
    """A reader that decompresses one stream after another."""

    def __init__(self, packed: ByteReader, decoder: Any, make: Callable[[], Any], note: Notes) -> None:
        self.packed, self.decoder, self.make, self.note = packed, decoder, make, note
        self.taken = self.given = 0
        self.pending = b""
        self.ended = False

    def read(self, size: int, /) -> bytes:
        while size > 0 and not self.ended:
            try:
                data = self._more(size)
            except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
                self.ended = True
                if not self.given:
                    raise ValueError(f"compressed data cannot be unpacked: {error}") from None
                self.note(f"compressed data is damaged: read up to byte {self.given} of the content ({error})")
                return b""
            if data:
                self.given += len(data)
                if self.given > BOMB_BYTES and self.given > BOMB_RATIO * self.taken:
                    self.ended = True
                    self.note(
                        f"compressed data expands to over {BOMB_RATIO} times its size: stopped after {self.given} bytes"
                    )
                return data
        return b""

    def _more(self, size: int) -> bytes:
        if self.decoder.eof:
            self.pending = self.decoder.unused_data.lstrip(b"\0") or self._packed()
            if not self.pending:
                self.ended = True
                return b""
            self.decoder = self.make()
        elif self.decoder.needs_input and not self.pending:
            self.pending = self._packed()
            if not self.pending:
                raise EOFError("it ends too early")
        data, self.pending = self.pending, b""
        unpacked: bytes = self.decoder.decompress(data, size)
        return unpacked

    def _packed(self) -> bytes:
        data = self.packed.read(1 << 16)
        self.taken += len(data)
        return data


def _zstd() -> Any:
    try:  # import-at-use: Python 3.14 has it
        from compression import zstd  # type: ignore[import-not-found,unused-ignore]  # Python 3.14
    except ImportError:
        raise ValueError("zstd needs Python 3.14; unpack it first: zstd -d FILE") from None
    return zstd.ZstdDecompressor()


_PACKED: tuple[tuple[bytes, Callable[[], Any]], ...] = (
    (b"\x1f\x8b", _Gzip),
    (b"BZh", bz2.BZ2Decompressor),
    (b"\xfd7zXZ\0", lambda: lzma.LZMADecompressor(memlimit=XZ_MEMORY)),
    (b"\x28\xb5\x2f\xfd", _zstd),
)
