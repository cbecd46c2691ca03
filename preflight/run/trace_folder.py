"""Traces, dumps and stacks of a job in a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from preflight.terminal import UsageError

#: Maximum number of files read, and name patterns of traces, dumps, and texts such as stacks.
_MOST_FILES = 4096
_SUFFIXES = (".json", ".json.gz", ".pickle", ".txt")
_DUMP = "nccl_trace_rank_"


def trace_files(paths: tuple[Path, ...]) -> Iterator[Path]:
    """Yield the given files, and the traces and dumps in folders; raises UsageError."""
    count = 0
    for path in paths:
        if not path.is_dir():
            yield path
            count += 1
            continue
        try:
            names = sorted(os.listdir(path))
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}") from None
        chosen = [name for name in names if name.endswith(_SUFFIXES) or _DUMP in name]
        if not chosen:
            raise UsageError(f"{path}: no trace or dump in it (*.json, *.json.gz, *.pickle, *.txt, {_DUMP}N)")
        for name in chosen:
            count += 1
            yield path / name
    if count > _MOST_FILES:
        raise UsageError(f"{count} files; at most {_MOST_FILES} are read")
