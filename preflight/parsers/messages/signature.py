"""Signatures of error messages.

A signature has the pattern of a line, its meaning, and the next steps.
"""

from __future__ import annotations

import re

from preflight._startup.lightclass import dataclass

#: Kinds of parts for which signatures are reported.
FRAMEWORK, NVIDIA_SMI, SLURM = "framework error", "nvidia-smi error", "slurm error"
NETWORK_TOOL = "network error"


@dataclass(frozen=True)
class ErrorSignature:
    """One error message.

    Named groups of the pattern: ``gpu`` (its PCI address or number), ``node``, ``rank``, ``what`` (quoted in the
    finding).
    """

    id: str
    kind: str
    hints: tuple[str, ...]  # texts, one of which occurs in the line
    pattern: re.Pattern[str]
    status: str  # fail, warn or unknown
    meaning: str
    check: str  # id of the check for the same fault on a node
    commands: tuple[str, str, str]  # commands to run next
    fix: str  # one sentence


def signatures(
    kind: str, rows: tuple[tuple[str, str, str, str, str, str, tuple[str, str, str], str], ...]
) -> tuple[ErrorSignature, ...]:
    """Build signatures from rows.

    Id, hints joined by ``|``, pattern, status, meaning, check, commands, fix.
    """
    return tuple(
        ErrorSignature(id, kind, tuple(hints.split("|")), re.compile(pattern), status, meaning, check, commands, fix)
        for id, hints, pattern, status, meaning, check, commands, fix in rows
    )
