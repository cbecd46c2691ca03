"""Errors of NVIDIA tools, networks, Slurm and frameworks, and program logs."""

from __future__ import annotations

from typing import Any

from preflight.parsers.messages import program_log
from preflight.parsers.messages.program_log import ProgramLog
from preflight.parsers.messages.scan import LoggedError
from preflight.recognition.formats.typed import output_format


def describe(errors: tuple[LoggedError, ...]) -> tuple[dict[str, Any], str]:
    """Return the facts of the errors, and a one-line summary."""
    listed = [
        {
            "id": error.signature.id, "rank": _number(_same(errors, error, "rank")),
            "host": _same(errors, error, "node") or None, "gpu": error.gpu or None, "line": error.line,
            "text": error.text,
            "place": error.place or None, "check": error.signature.check, "next": list(error.signature.commands),
        }
        for error in errors
    ]  # fmt: skip
    ids = list(dict.fromkeys(error.signature.id for error in errors))
    return {"errors": listed}, f"{len(errors)} error{'s' if len(errors) > 1 else ''}: {', '.join(ids[:6])}"


def _number(rank: str) -> int | str | None:
    return int(rank) if rank.isdecimal() else rank or None


def _same(errors: tuple[LoggedError, ...], error: LoggedError, name: str) -> str:
    """Return a value of an error; if it has none, the only value of its signature."""
    values = {getattr(other, name) for other in errors if other.signature is error.signature} - {""}
    return getattr(error, name) or (values.pop() if len(values) == 1 else "")


KINDS = tuple(
    output_format(kind, describe) for kind in ("nvidia-smi error", "slurm error", "network error", "framework error")
)


def _log(log: ProgramLog) -> tuple[dict[str, Any], str]:
    return program_log.facts(log), program_log.summary(log)


#: The format of a text in which no other output was recognised.
PROGRAM_LOG = output_format("program log", _log)
