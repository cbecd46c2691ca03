"""Memory budget for the answers of all nodes, which are decoded one by one.

Large compressed answers wait on disk. The required memory is known before decoding; while an answer waits for memory,
others are decoded, and some memory is reserved for small answers.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import tempfile
import threading
import time
import weakref
from typing import IO, TYPE_CHECKING, Any

from preflight.collector import frame
from preflight.errors import PreflightError
from preflight.evidence import json_limits
from preflight.evidence.document import measured

if TYPE_CHECKING:
    from collections.abc import Callable

#: Maximum bytes of the decoded answers of all nodes (a complete node takes 2 to 5 MB, the limit of one is
#: ``json_limits.ANSWER``); bytes reserved for answers smaller than ``SMALL``; seconds that an answer waits for memory,
#: which is freed when earlier answers have been processed.
MOST, RESERVED, SMALL, WAIT_S = 256 << 20, 48 << 20, 12 << 20, 30.0

#: Size in bytes beyond which a compressed answer is written to disk; a complete node has 100 KB.
IN_MEMORY = 1 << 20

#: M_MMAP_THRESHOLD of glibc's malloc.h.
_M_MMAP_THRESHOLD = -3


@functools.cache
def _give_back_at_once() -> None:
    """Make glibc return freed blocks above 1 MiB to the system immediately.

    Otherwise each thread keeps blocks of up to 64 MiB for later use (mallopt(3), M_MMAP_THRESHOLD).
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, 1 << 20)


class _Records(dict[str, Any]):
    """The records of an answer; freeing them returns their share of the budget."""

    __slots__ = ("__weakref__",)


class _Full(PreflightError):
    """There is currently no memory for an answer."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


class AnswerMemory:
    """Memory budget for answers."""

    def __init__(self, most: int = MOST, wait_s: float = WAIT_S, reserved: int = 0) -> None:
        self._decoding = threading.Lock()  # held while an answer is inflated and decoded
        self._most, self._left, self._wait_s, self._reserved = most, most, wait_s, reserved
        self._change = threading.Condition()

    def document(self, reader: frame.FrameReader) -> dict[str, Any]:
        """Return the document of a frame; raise FrameError, also if memory is short."""
        try:
            with self._decoding:
                return reader.document(lambda raw: self._decode(raw, None))
        except _Full as full:
            size = full.size
        self._wait(size)
        with self._decoding:
            return reader.document(lambda raw: self._decode(raw, size))

    def _decode(self, raw: bytes, taken: int | None) -> Any:
        """Decode an answer; raises ValueError, or _Full if no memory is available."""
        size = taken
        if size is None:
            needed = json_limits.memory(raw, json_limits.ANSWER)
            if needed > json_limits.ANSWER:
                raise json_limits.DocumentTooLarge(f"it would take {needed >> 20} MiB of memory")
            size = needed - json_limits.text_size(raw)  # only one text is decoded at a time
            if size >= SMALL:
                _give_back_at_once()
            if not self._take(size):
                size = json_limits.memory(raw) - json_limits.text_size(raw)  # the estimate may be three times as large
                if not self._take(size):
                    raise _Full(size)
        held = None
        try:
            document = json_limits.decoded_answer(raw)
            if isinstance(document, dict) and isinstance(document.get("records"), dict):
                held = document["records"] = _Records(document["records"])
            return document
        finally:
            if held is None:
                self._give(size)
            else:
                weakref.finalize(held, self._give, self._measured(held, size))

    def _measured(self, records: _Records, size: int) -> int:
        """Return the memory reserved for an answer; if memory is short, only what it uses.

        The estimate (``size``) is several times as large, and dozens of answers are held until they are written to
        disk.
        """
        if self._left > self._most // 2:
            return size
        used = min(measured([records, list(records)], size), size)
        self._give(size - used)
        return used

    def _take(self, size: int) -> bool:
        """Reserve memory if available; return whether it was."""
        with self._change:
            if size > self._left - (self._reserved if size >= SMALL else 0):
                return False
            self._left -= size
            return True

    def _wait(self, size: int) -> None:
        """Reserve memory as soon as it is available; raise FrameError if it never is."""
        until = time.monotonic() + self._wait_s
        with self._change:
            while not self._take(size):
                if not self._change.wait(until - time.monotonic()):
                    raise frame.DamagedFrame(
                        f"the answer would take {size >> 20} MiB of memory, {self._left >> 20} MiB are available"
                    )

    def _give(self, size: int) -> None:
        with self._change:
            self._left += size
            self._change.notify_all()


SHARED = AnswerMemory(reserved=RESERVED)


class Reader(frame.FrameReader):
    """Reads a frame from a stream; a large one is written to disk."""

    def __init__(self) -> None:
        """Expect the first byte of a stream."""
        super().__init__()
        self._file: IO[bytes] | None = None
        self._written = 0
        self._unwritable = ""

    def feed(self, data: bytes) -> bool:
        """Add bytes; return whether the frame is complete."""
        if self._file is not None:
            return self._write(data)
        complete = super().feed(data)
        if self._payload >= 0 and len(self._buffer) > IN_MEMORY:
            _give_back_at_once()
            try:
                self._file = tempfile.TemporaryFile(prefix="preflight-")  # noqa: SIM115
            except OSError as error:
                self._unwritable = error.strerror or str(error)
                self._buffer = bytearray()
                return True
            weakref.finalize(self, self._file.close)
            taken, self._buffer = self._buffer, bytearray()
            self._write(taken)
        return complete

    def _write(self, data: bytes | bytearray) -> bool:
        assert self._file
        try:
            self._file.write(data)
        except OSError as error:
            self._unwritable = error.strerror or str(error)
            return True
        self._written += len(data)
        return self._written >= self._payload + len(frame.END)

    def document(self, decode: Callable[[bytes], Any] = frame.plain) -> dict[str, Any]:
        """Return the document of a frame; raise FrameError if it is incomplete."""
        if self._unwritable:
            raise frame.DamagedFrame(f"the answer cannot be written to {tempfile.gettempdir()}: {self._unwritable}")
        if self._file is None:
            return super().document(decode)
        try:
            self._file.flush()
        except OSError as error:
            raise frame.DamagedFrame(f"the answer cannot be written to disk: {error.strerror}") from None
        with mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            self._buffer = content  # type: ignore[assignment]
            try:
                return super().document(decode)
            finally:
                self._buffer = bytearray()
