"""A log that is read where it lies: too long for a document, compressed, or a pickle.

Only the process that was handed the file reads it so. A document that names such a file is not believed: its record
says that the log was not kept, and nothing is opened.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from preflight.parsers import nccl_log, torch
from preflight.parsers.nccl_log.line_source import CHUNK, lines, opened

#: Bytes of a log that are held as text, without the lines that NCCL informs with: those are read as they come.
HELD = 64_000_000
#: Bytes of a pickle that are looked at; a dump of the flight recorder has some.
PICKLE = 64 << 20

_INFORMS = (b" NCCL INFO ", b" NCCL TRACE ")


class OnDisk(dict[str, Any]):
    """The record of such a log; written into a document it says that the log is not in it."""

    def __init__(self, path: Path, why: str, seen: torch.TorchOutput | None = None) -> None:
        """Take the file, why it is not copied, and what of PyTorch is known to be in it."""
        super().__init__(status="cut", why=f"{why}; it is not kept in the evidence: give it again with --log")
        self.path = path
        self._seen = seen

    def nccl_log(self) -> nccl_log.NcclLog | None:
        """Read it as a log of NCCL; None if it is none. Raises ValueError, OSError."""
        try:
            return nccl_log.read([self.path])
        except nccl_log.NoNcclOutput:
            return None

    def rest(self) -> str:
        """Return the text, with blank lines where NCCL informs; raises ValueError, OSError."""
        return "\n".join(self._rest())

    def _rest(self) -> Iterator[str]:
        held, (info, trace) = 0, _INFORMS
        with self.path.open("rb") as stream:
            for chunk in lines(opened(stream, lambda remark: None)):
                if held > HELD:
                    yield "\n" * (len(chunk) - 1)
                    continue
                text = b"\n".join(chunk)
                if info in text or trace in text:
                    text = b"\n".join(b"" if info in line or trace in line else line for line in chunk)
                held += len(text) - len(chunk) + 1
                yield text.decode("utf-8", "backslashreplace")

    def pytorch(self) -> torch.TorchOutput:
        """Read it as a profiler's trace or a flight recorder's dump; raises UnsafePickle, other ValueError, OSError."""
        return seen_on_disk(self.path) if self._seen is None else self._seen


def seen_on_disk(path: Path) -> torch.TorchOutput:
    """Read a file as a profiler's trace or a flight recorder's dump; raises UnsafePickle, other ValueError, OSError."""
    with path.open("rb") as stream:
        head = stream.read(8)
        stream.seek(0)
        if torch.is_pickle(head):
            data = stream.read(PICKLE + 1)
            if len(data) > PICKLE:
                raise torch.UnsafePickle(f"the pickle is longer than {PICKLE} bytes; it was not unpickled")
            seen = torch.TorchOutput()
            seen.recording = torch.from_pickle(data)
            return seen
        reader = opened(stream, lambda remark: None)
        begun = b""
        while len(begun) < 1 << 16 and (data := reader.read(1 << 16)):
            begun += data
        if begun.lstrip()[:1] not in (b"{", b"[") or not torch.begins(begun.decode("utf-8", "replace")):
            return torch.TorchOutput()
        waiting = [begun]
        return torch.read(lambda size: waiting.pop() if waiting else reader.read(min(size, CHUNK)))
