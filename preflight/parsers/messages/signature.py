"""Signatures of error messages: the line's pattern, its meaning, the next steps."""

from __future__ import annotations

import re
from functools import cached_property

from preflight._startup.lightclass import dataclass

#: Kinds of error messages; each is the name of a format.
FRAMEWORK, NVIDIA_SMI, SLURM = "framework error", "nvidia-smi error", "slurm error"
NETWORK_TOOL = "network error"


@dataclass(frozen=True)
class ErrorSignature:
    """The signature of one error message.

    The pattern may have the named groups ``gpu`` (its PCI address or number), ``node``, ``rank``, and ``what`` (which
    the finding quotes).
    """

    id: str
    kind: str
    hints: tuple[str, ...]  # a line must contain one of these strings
    expression: str
    status: str  # fail, warn or unknown
    meaning: str
    check: str  # id of the check for the same fault on a node
    commands: tuple[str, str, str]  # commands to run next
    fix: str  # one sentence

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The expression, compiled at first use, since most runs need only a few."""
        return re.compile(self.expression)


def signatures(
    kind: str, rows: tuple[tuple[str, str, str, str, str, str, tuple[str, str, str], str], ...]
) -> tuple[ErrorSignature, ...]:
    """Return the signatures in the rows of a table.

    A row has the id, the hints joined by ``|``, pattern, status, meaning, check, commands and fix.
    """
    return tuple(
        ErrorSignature(id, kind, tuple(hints.split("|")), pattern, status, meaning, check, commands, fix)
        for id, hints, pattern, status, meaning, check, commands, fix in rows
    )
