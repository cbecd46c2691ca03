"""Judges of error messages.

Each signature has the check that judges its cause on a node.
"""

from __future__ import annotations

from collections.abc import Iterator

from preflight.model import Finding, failed, unknown, warned
from preflight.parsers.messages.scan import LOGGED, LoggedError, by_signature, different_words
from preflight.parsers.messages.signature import ErrorSignature
from preflight.recognition.judges import Judge, PastedValue
from preflight.textprep.plain_text import ends_of

_REPORTS = {"fail": failed, "warn": warned, "unknown": unknown}

#: Signatures that only report that another error ended a process.
_SECONDARY = frozenset({
    "child-failed", "child-aborted", "slurm-task-failed", "slurm-cancelled", "launcher-exit", "engine-ended",
    "mpi-abort",
    "mpi-rank-ended",
})  # fmt: skip

#: Errors without a signature that are shown one by one; the rest is one more finding.
_MOST_UNKNOWN = 6
#: Printed texts that the finding of one signature quotes.
_MOST_QUOTED = 3


def judges_of(errors: tuple[LoggedError, ...]) -> tuple[tuple[str, Judge], ...]:
    """Return a judge for each signature, causes before consequences."""
    groups = sorted(by_signature(errors), key=_order)
    unknown_ones = [group for group in groups if group[0].id == LOGGED.id]
    left = {id(group) for group in unknown_ones[_MOST_UNKNOWN:]}
    shown = [group for group in groups if id(group) not in left]
    judges = [(signature.check, _judge(signature, same)) for signature, same in shown]
    if len(shown) < len(groups):
        judges.append((LOGGED.check, _rest([group for group in groups if id(group) in left])))
    return tuple(judges)


def _order(group: tuple[ErrorSignature, list[LoggedError]]) -> int:
    signature, errors = group
    if signature.id == LOGGED.id:
        return 2
    return int(signature.id in _SECONDARY or all(error.follows for error in errors))


def _judge(signature: ErrorSignature, errors: list[LoggedError]) -> Judge:
    def judge_part(part: PastedValue) -> Iterator[Finding]:
        first = errors[0]
        words = _quoted(signature, errors)
        places = dict.fromkeys(filter(None, (error.gpu or error.node for error in errors)))
        ranks = dict.fromkeys(error.rank for error in errors if error.rank)
        where = f"line {first.line}" + (f" and {len(errors) - 1} more" if len(errors) > 1 else "")
        of = f" (rank {', '.join(list(ranks)[:8])}{', …' if len(ranks) > 8 else ''})" if ranks else ""
        on = f"{', '.join(list(places)[:8])}: " if places else ""
        raised = next((error.place for error in errors if error.place), "")
        at = f", raised at {raised}" if raised else ""
        follows = "; it follows from the end of another process" if first.follows else ""
        commands = "; ".join(f"`{command}`" for command in signature.commands)
        yield _REPORTS[signature.status](
            f"{on}{_meaning(signature, first)}{at}{follows}{of}{words} ({where})", subject=next(iter(places), ""),
            found=(first.text or first.what)[:200], evidence=part.evidence, fix=f"{signature.fix} Run: {commands}",
        )  # fmt: skip

    return judge_part


def _meaning(signature: ErrorSignature, first: LoggedError) -> str:
    """Return what an error means; of one that no signature knows, its own words."""
    if signature.id == LOGGED.id:
        return f"logged as an error: {ends_of(first.what, 300, 160)}"
    return signature.meaning or ends_of(first.what, 300, 160)


def _quoted(signature: ErrorSignature, errors: list[LoggedError]) -> str:
    """Return the printed words of errors that a signature knows.

    They have the figures and the names; what differs in digits only is quoted once.
    """
    if not signature.meaning:
        return ""
    printed = different_words(errors)
    if len(printed) > _MOST_QUOTED:  # the first, and those that came down to the cause
        printed = [printed[0], *printed[1 - _MOST_QUOTED :]]
    quotes = "; ".join(f"“{words}”" for words in printed)
    return f": {quotes}" if quotes else ""


def _rest(groups: list[tuple[ErrorSignature, list[LoggedError]]]) -> Judge:
    def judge_part(part: PastedValue) -> Iterator[Finding]:
        lines = ", ".join(str(same[0].line) for _, same in groups[:12])
        yield unknown(f"{len(groups)} more kinds of lines that are logged as errors (line {lines})", found=len(groups),
                      evidence=part.evidence, fix="The first of them is most often the cause.")  # fmt: skip

    return judge_part


JUDGES = dict.fromkeys(("framework error", "nvidia-smi error", "slurm error", "network error"), judges_of)
