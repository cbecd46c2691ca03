"""A log passed with ``--log``, read in place, once per run.

Only the process that received the option reads the file. A document that names such a file is not trusted: its record
has no text, and the file is not opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from preflight import parsers
from preflight._startup.lightclass import replace
from preflight.evidence.document import Evidence
from preflight.parsers import torch
from preflight.textprep.line_source import CHUNK, opened, peeked

#: Maximum bytes read from a pickle.
PICKLE = 64 << 20
#: Maximum bytes of a dump that are searched for a passage to quote.
_EXCERPTED = 16 << 20
#: Maximum bytes searched for a passage to quote at the start of a trace, whose events have none, or of a long log, of
#: which only selected lines are stored.
_BEGINNING = 4096


class LogFile(dict[str, Any]):
    """The record of a log; ``why`` is the reason not to save its text, or empty."""

    def __init__(self, path: Path, why: str = "", log: parsers.job_log.JobLog | None = None,
                 seen: torch.TorchOutput | None = None) -> None:  # fmt: skip
        """Set the file, and what has already been parsed from it."""
        if why:
            super().__init__(status="cut", why=f"{why}; it is not in the evidence: pass it again with --log")
        else:
            super().__init__(status="ok", out="")
        self.path = path
        self.why = why
        if log is not None:
            self.log = log
        if seen is not None:
            self.pytorch = seen

    @cached_property
    def log(self) -> parsers.job_log.JobLog:
        """The log, parsed; raises ValueError, OSError."""
        return parsers.job_log.parse_file(self.path)

    @cached_property
    def pytorch(self) -> torch.TorchOutput:
        """The trace or dump in the log; raises UnsafePickle, other ValueError, OSError."""
        return seen_on_disk(self.path)

    @cached_property
    def excerpt_text(self) -> str:
        """The text for quoting passages; empty if it cannot be read."""
        selected = self.log.text if "log" in self.__dict__ else None
        is_trace = "pytorch" in self.__dict__ and self.pytorch.trace is not None
        size = _BEGINNING if selected or is_trace else _EXCERPTED
        try:
            with self.path.open("rb") as stream:
                reader, _ = peeked(opened(stream, lambda remark: None), size)
                begun = reader.read(size)
        except (OSError, ValueError):
            return ""
        if torch.is_pickle(begun[:8]):
            return ""
        if selected is not None and selected.complete:
            return selected.text
        text = begun.decode("utf-8", "backslashreplace")
        return text if selected is None else f"{text}\n{selected.text}"

    def document(self) -> Mapping[str, Any]:
        """Return the record for a document; raises OSError."""
        if self.why:
            return dict(self)
        return {"status": "ok", "out": self.path.read_bytes().decode("utf-8", "backslashreplace")}


def with_texts(run: Evidence) -> Evidence:
    """Return a run's evidence with the texts of its logs; raises OSError."""
    return replace(
        run, records={key: raw.document() if isinstance(raw, LogFile) else raw for key, raw in run.records.items()}
    )


def seen_on_disk(path: Path) -> torch.TorchOutput:
    """Read a file as a profiler's trace or a flight recorder's dump.

    Raises UnsafePickle, other ValueError, OSError.
    """
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
