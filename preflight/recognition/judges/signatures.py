"""Judges of error messages.

Each signature has the check that judges its cause on a node.
"""

from __future__ import annotations

from collections.abc import Iterator

from preflight.model import Finding, failed, unknown, warned
from preflight.parsers.messages.scan import LoggedError, by_signature
from preflight.parsers.messages.signature import ErrorSignature
from preflight.recognition.judges import Judge, PastedValue

_REPORTS = {"fail": failed, "warn": warned, "unknown": unknown}

#: Signatures that only report that another error ended a process.
_SECONDARY = frozenset({"child-failed", "child-aborted", "slurm-task-failed", "slurm-cancelled"})


def judges_of(errors: tuple[LoggedError, ...]) -> tuple[tuple[str, Judge], ...]:
    """Return a judge for each signature, causes before consequences."""
    groups = sorted(by_signature(errors), key=lambda group: group[0].id in _SECONDARY)
    return tuple((signature.check, _judge(signature, same)) for signature, same in groups)


def _judge(signature: ErrorSignature, errors: list[LoggedError]) -> Judge:
    def judge_part(part: PastedValue) -> Iterator[Finding]:
        first = errors[0]
        places = dict.fromkeys(filter(None, (error.gpu or error.node for error in errors)))
        ranks = dict.fromkeys(error.rank for error in errors if error.rank)
        where = f"line {first.line}" + (f" and {len(errors) - 1} more" if len(errors) > 1 else "")
        of = f" (rank {', '.join(list(ranks)[:8])})" if ranks else ""
        on = f"{', '.join(list(places)[:8])}: " if places else ""
        commands = "; ".join(f"`{command}`" for command in signature.commands)
        yield _REPORTS[signature.status](
            f"{on}{signature.meaning}{of} ({where})", subject=next(iter(places), ""), found=first.text[:200],
            evidence=part.evidence, fix=f"{signature.fix} Run: {commands}",
        )  # fmt: skip

    return judge_part


JUDGES = dict.fromkeys(("framework error", "nvidia-smi error", "slurm error", "network error"), judges_of)
