"""A signature of an error message.

How its line reads, what it means, and what to look at next.
"""

from __future__ import annotations

import re

from preflight._startup.lightclass import dataclass

#: Kinds of parts in which signatures are reported.
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
    hints: tuple[str, ...]  # texts of which the line has one
    pattern: re.Pattern[str]
    status: str  # fail, warn or unknown
    meaning: str
    check: str  # id of the check that judges the same on a node
    commands: tuple[str, str, str]  # what to run next
    fix: str  # one sentence


def signatures(
    kind: str, rows: tuple[tuple[str, str, str, str, str, str, tuple[str, str, str], str], ...]
) -> tuple[ErrorSignature, ...]:
    """Make signatures of rows.

    Id, hints joined by ``|``, pattern, status, meaning, check, commands, fix.
    """
    return tuple(
        ErrorSignature(id, kind, tuple(hints.split("|")), re.compile(pattern), status, meaning, check, commands, fix)
        for id, hints, pattern, status, meaning, check, commands, fix in rows
    )
