"""Errors of all ranks of a job as one part."""

from __future__ import annotations

import re
from collections.abc import Sequence

from preflight._startup.lightclass import replace
from preflight.parsers.messages.scan import MAX_ERRORS, LoggedError, with_steps
from preflight.parsers.messages.signature import FRAMEWORK, SLURM
from preflight.parsers.training.iteration_log import TrainingLog
from preflight.recognition.detector import TextPart
from preflight.recognition.formats.messages import describe
from preflight.recognition.formats.typed import TypedPart

_KINDS = (FRAMEWORK, SLURM)

#: Writer names used by launchers: ``rank3``, ``default3``, ``3`` (srun), ``1,3`` (mpirun), and a host or a pod.
_RANK = re.compile(r"(?:[a-z]{0,20}|\d{1,6},)(\d{1,6})(?:\|\d{1,6})?")
_ADDRESS = re.compile(r"pid=\w{1,32}, ip=([^)\s]{1,64})")
_NODE = re.compile(r"(?:pod/)?(?=[\w.-]{0,63}[a-z])([\w.-]{1,64})(?:/[\w.-]{1,64})?")
_RANK_NAME = re.compile(r"(?:rank|default|trainer|worker|local_rank)?\d{1,6}(?:\|\d{1,6})?|\d{1,6},\d{1,6}")


def merge_ranks(parts: Sequence[TextPart]) -> list[TextPart]:
    """Merge the errors of one kind by named writers into one part.

    Return the merged parts and all other parts.
    """
    first: dict[str, TextPart] = {}
    merged: list[TextPart] = []
    for part in parts:
        if part.kind not in _KINDS or not part.writer or not isinstance(part.taken, TypedPart):
            merged.append(part)
            continue
        part.taken.value = tuple(_named(error, part.writer) for error in part.taken.value)
        if (earlier := first.setdefault(part.kind, part)) is part:
            merged.append(part)
            continue
        assert isinstance(earlier.taken, TypedPart)
        earlier.taken.value = (*earlier.taken.value, *part.taken.value)[:MAX_ERRORS]
        earlier.taken.cut += part.taken.cut
        earlier.text += part.text
        earlier.first, earlier.last = min(earlier.first, part.first), max(earlier.last, part.last)
        if earlier.writer != part.writer:
            earlier.writer = ""
    for part in first.values():
        assert isinstance(part.taken, TypedPart)
        part.taken.value = tuple(sorted(part.taken.value, key=lambda error: error.line))
        part.taken.facts, part.taken.summary = describe(part.taken.value)
    return merged


def mark_survived(parts: Sequence[TextPart]) -> None:
    """Mark the errors that are followed by training steps in the same source."""
    logs = [part.taken.value for part in parts if isinstance(part.taken, TypedPart)]
    steps = sorted(step.line for log in logs if isinstance(log, TrainingLog) for step in log.steps)
    for part in parts:
        if steps and part.kind in _KINDS and isinstance(part.taken, TypedPart):
            part.taken.value = with_steps(part.taken.value, steps)


def _named(error: LoggedError, writer: str) -> LoggedError:
    """Return an error with the rank or the node that its writer names."""
    name = writer.split()[-1]
    if address := _ADDRESS.search(writer):
        return replace(error, node=error.node or address[1])
    if _RANK_NAME.fullmatch(name) and (rank := _RANK.fullmatch(name)):
        return replace(error, rank=error.rank or str(int(rank[1])))
    if match := _NODE.fullmatch(name):
        return replace(error, node=error.node or match[1])
    return error
