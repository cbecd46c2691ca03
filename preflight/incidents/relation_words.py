"""The relations between checks in words, for `preflight explain`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from preflight.model import Check, Relation

#: Wording of each relation, printed after the id of a check.
_WORDS = {
    "part": "of the same part",
    "node": "on the same node",
    "missing": "of a GPU that is not on the bus",
    "names": "if the message of one names the other",
    "cable": "at the other end of the cable, or of the same switch port",
    "switch": "of a port of the same switch",
    "parts": "of the same port and priority, between the same two switches, of one process, or of one line, rank or "
    "GPU in a log",
    "ended": "in the same log, if this failure ended the job",
    "unknown": "if it is unknown on the same node",
    "log": "if the log and the node agree",
}


def explained_by_check(check: Check) -> Iterator[str]:
    """Yield the checks that a finding of this check explains, each with its relation."""
    for relation in check.relations:
        yield f"{relation.effect} ({_how(relation)})"


def causes_of(check: Check, checks: Iterable[Check]) -> Iterator[str]:
    """Yield the checks that explain a finding of this check, each with its relation."""
    for cause in checks:
        for relation in cause.relations:
            if fnmatchcase(check.id, relation.effect):
                yield f"{cause.id} ({_how(relation)})"


def _how(relation: Relation) -> str:
    only = [
        f"{side}: {repr(pattern) if pattern else 'the complete node'}"
        for side, pattern in (("cause", relation.cause), ("effect", relation.about))
        if pattern != "*"
    ]
    return "; ".join([_WORDS[relation.on], *only])
