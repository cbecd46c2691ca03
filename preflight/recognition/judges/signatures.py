"""Judges of error messages.

Each signature names the check that judges its cause on a node.
"""

from __future__ import annotations

from collections.abc import Iterator

from preflight.checks.job.program_errors import finding_of, ordered
from preflight.model import Finding, none_of, passed, unknown
from preflight.parsers.messages.program_log import ProgramLog
from preflight.parsers.messages.scan import LOGGED, LoggedError, by_signature
from preflight.parsers.messages.signature import ErrorSignature
from preflight.recognition.judges import Judge, Judges, PastedValue

#: Maximum number of unrecognised errors with a finding each; one more finding covers the rest.
_MOST_UNKNOWN = 6


def judges_of(errors: tuple[LoggedError, ...]) -> tuple[tuple[str, Judge], ...]:
    """Return a judge for each signature, causes before consequences."""
    groups = ordered(list(by_signature(errors)))
    unknown_ones = [group for group in groups if group[0].id == LOGGED.id]
    left = {id(group) for group in unknown_ones[_MOST_UNKNOWN:]}
    shown = [group for group in groups if id(group) not in left]
    judges = [(signature.check, _judge(signature, same)) for signature, same in shown]
    if len(shown) < len(groups):
        judges.append((LOGGED.check, _rest([group for group in groups if id(group) in left])))
    return tuple(judges)


def _judge(signature: ErrorSignature, errors: list[LoggedError]) -> Judge:
    def judge_part(part: PastedValue) -> Iterator[Finding]:
        yield finding_of(signature, errors, part.evidence)

    return judge_part


def _rest(groups: list[tuple[ErrorSignature, list[LoggedError]]]) -> Judge:
    def judge_part(part: PastedValue) -> Iterator[Finding]:
        lines = ", ".join(str(same[0].line) for _, same in groups[:12])
        yield unknown(f"{len(groups)} more kinds of lines are logged as errors (lines {lines})", found=len(groups),
                      evidence=part.evidence, fix="The first error in the log is usually the cause.")  # fmt: skip

    return judge_part


#: Maximum number of log lines that a finding quotes.
_QUOTED = 3


def _program_log(part: PastedValue) -> Iterator[Finding]:
    """Report the lines that may describe a fault; a complete log without any passes."""
    log: ProgramLog = part.value
    if log.troubles:
        more = f" and {len(log.troubles) - _QUOTED} more such lines" if len(log.troubles) > _QUOTED else ""
        quoted = "; ".join(f"{text[:200]} (line {number})" for number, text in log.troubles[:_QUOTED])
        yield unknown(
            f"no rule explains this: {quoted}{more}",
            found=log.troubles[0][1][:200],
            evidence=part.evidence,
            fix="Read the lines around it, and the logs of the components that it names.",
        )
    elif part.complete:
        yield passed(f"{none_of(log.lines, 'line')} of a program's log reports an error", evidence=part.evidence)


JUDGES: Judges = {
    **dict.fromkeys(("framework error", "nvidia-smi error", "slurm error", "network error"), judges_of),
    "program log": (("job.errors", _program_log),),
}
