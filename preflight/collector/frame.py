"""The collector's answer on standard output: one frame, with a checksum.

A frame consists of ``PREFLIGHT-FRAME/1 LENGTH SHA256``, a line feed, LENGTH bytes of zlib-compressed JSON, a line feed,
``PREFLIGHT-END``, and a line feed. Other output may precede it, because login shells print messages. Line ends in JSON
strings are not escaped, which halves the time to decode them.
"""

import json
import re
import sys
import zlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hashlib import sha256 as sha256
    from typing import IO, Any, Callable, Dict, Tuple, Union
else:
    try:  # hashlib would load OpenSSL
        from _sha2 import sha256  # Python 3.12
    except ImportError:
        try:
            from _sha256 import sha256
        except ImportError:
            from hashlib import sha256

MAGIC = b"PREFLIGHT-FRAME/1 "
END = b"\nPREFLIGHT-END\n"

#: Maximum bytes of a frame, and of the document in it; more is rejected.
LIMIT = 64 * 1024 * 1024

_HEADER = re.compile(re.escape(MAGIC) + rb"([0-9]{1,12}) ([0-9a-f]{64})\n")
_HEADER_MAX = len(MAGIC) + 12 + 1 + 64 + 1
_NOISE_BYTES = 2000

#: Accepts raw and escaped line ends in strings: escapes are slow, and evidence is mostly lines.
_JSON = json.JSONDecoder(strict=False)


def _digest(data: "Union[bytes, memoryview]") -> bytes:
    """Return the SHA-256 in hexadecimal; OpenSSL, if loaded, is five times as fast."""
    algorithm = getattr(sys.modules.get("hashlib"), "sha256", sha256)
    return str(algorithm(data).hexdigest()).encode("ascii")


def plain(raw: bytes) -> "Any":
    """Decode JSON in UTF-8."""
    return _JSON.decode(raw.decode("utf-8"))


class FrameError(ValueError):
    """There is no complete frame; the message explains why."""


class NoFrame(FrameError):
    """The input contains no start of a frame."""


class CutFrame(FrameError):
    """The frame ends early."""


class DamagedFrame(FrameError):
    """The frame has its full length, but its content is damaged."""


class FrameReader:
    """Reader of one frame in a stream; it retains the start of earlier output."""

    def __init__(self) -> None:
        """Start at the first byte of a stream."""
        self._noise = b""
        self._buffer = bytearray()
        self._payload = -1
        self._digest = b""
        self._inflated = 0

    def feed(self, data: bytes) -> bool:
        """Add bytes; return whether the frame is complete."""
        self._buffer += data
        if self._payload < 0:
            self._find_header()
        return self._payload >= 0 and len(self._buffer) >= self._payload + len(END)

    @property
    def noise(self) -> bytes:
        """The first bytes of other output, before the frame."""
        return self._noise if self._payload >= 0 else (self._noise + bytes(self._buffer))[:_NOISE_BYTES]

    def document(self, decode: "Callable[[bytes], Any]" = plain) -> "Dict[str, Any]":
        """Return the document in the frame, decoded by ``decode``.

        Raises FrameError if the frame is missing, truncated or damaged.
        """
        if self._payload < 0 and MAGIC in self._buffer:
            raise CutFrame("the answer was truncated in its first line")
        if self._payload < 0:
            raise NoFrame("there is no answer")
        if len(self._buffer) < self._payload + len(END):
            have = min(len(self._buffer), self._payload)
            raise CutFrame("the answer was truncated at {} of {} bytes".format(have, self._payload))
        with memoryview(self._buffer) as content, content[: self._payload] as payload:
            if _digest(payload) != self._digest:
                raise DamagedFrame("the answer is damaged: its checksum does not match")
            if content[self._payload : self._payload + len(END)] != END:
                raise DamagedFrame("the answer is damaged: its end mark is missing")
            return _decode(payload, self._sized(decode))

    def packed(self) -> "Tuple[bytes, int]":
        """Return the compressed document that was decoded, and its inflated size."""
        return bytes(self._buffer[: self._payload]), self._inflated

    def _sized(self, decode: "Callable[[bytes], Any]") -> "Callable[[bytes], Any]":
        def sized(raw: bytes) -> "Any":
            self._inflated = len(raw)
            return decode(raw)

        return sized

    def _find_header(self) -> None:
        """Look for a header; drop bytes that can no longer be part of one."""
        header = _HEADER.search(self._buffer)
        if header and int(header.group(1)) <= LIMIT:
            self._payload, self._digest = int(header.group(1)), header.group(2)
        end = header.end() if header else max(0, len(self._buffer) - _HEADER_MAX)
        start = header.start() if header else end
        self._noise = (self._noise + bytes(self._buffer[:start]))[:_NOISE_BYTES]
        del self._buffer[:end]


def _decode(payload: memoryview, decode: "Callable[[bytes], Any]") -> "Dict[str, Any]":
    try:
        inflate = zlib.decompressobj()
        raw = inflate.decompress(payload, LIMIT)
        if inflate.unconsumed_tail or not inflate.eof:
            raise DamagedFrame("the answer is damaged: it inflates to more than {} bytes".format(LIMIT))
        document = decode(raw)
    except (zlib.error, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, FrameError):
            raise
        raise DamagedFrame("the answer is damaged: {}".format(error or "too large")) from None
    if not isinstance(document, dict):
        raise DamagedFrame("the answer is damaged: it is not a JSON object")
    return document


def pack(document: "Dict[str, Any]") -> bytes:
    """Return the frame of a document."""
    text = json.dumps(document, sort_keys=True)
    # Line ends are written raw; "\\n" after an escaped backslash stays. json.dumps returns no NUL
    text = text.replace("\\\\", "\0").replace("\\n", "\n").replace("\0", "\\\\")
    payload = zlib.compress(text.encode("ascii"), 6)
    digest = _digest(payload)
    return MAGIC + str(len(payload)).encode("ascii") + b" " + digest + b"\n" + payload + END


def write_frame(stream: "IO[bytes]", document: "Dict[str, Any]") -> None:
    """Write the frame of a document to a binary stream and flush it."""
    stream.write(pack(document))
    stream.flush()
