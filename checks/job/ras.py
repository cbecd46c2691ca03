"""Check of the processes of a running job, based on the output of ``ncclras``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.model import Finding, check, failed, passed, unknown, warned
from preflight.parsers.training.nccl_ras import DEAD, INCOMPLETE, MISMATCH, RankPlace, RankSet, RasProblem, RasStatus

#: Maximum number of processes and ranks named in a finding.
_NAMED = 8
_REPEAT = "Run `ncclras` again a minute later, and append its output to the same file (`>>`)."
_LOOK = "Look at that process first: `py-spy dump --pid PID` and `dmesg -T | grep -i xid` on its node."


@check(
    "nccl.ras",
    title="All processes answer NCCL's RAS, and no rank lags behind",
    fault="Processes do not answer NCCL's RAS, or ranks lag behind",
    impact="blocks-job",
    explains=(("torch.hang", "node"), ("nccl.failures", "node", "*", "torch_watchdog_timeout")),
    source="NCCL user guide, section RAS (NCCL 2.24 and later)",
    fix=_LOOK,
    action="fix-job",
    scope="run",
    needs=("ras",),
)
def ras(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the processes and launched operations that `ncclras` shows.

    ## Why it matters
    While a job hangs, its logs are silent. NCCL's RAS threads still answer: the process that does not, or the rank that
    launched fewer operations than its peers, is the one to look at.

    ## Verdicts
    A process that RAS reports as dead fails; one that does not answer warns. Ranks that launched fewer operations of a
    communicator are unknown after one query, since a running job looks the same for a moment. If the counts are the
    same in a second query of the same file, the check fails; if every rank has launched more operations by then, it
    passes. A text without an error is unknown: RAS counts launched operations, not completed ones.

    ## False alarms
    A process that a debugger stopped.
    """
    for key, queries in run.ras.items():
        before = None
        for query in queries:
            yield from judge_ras(query.value, before, not query.gaps, [key])
            before = query.value


def judge_ras(
    status: RasStatus, before: RasStatus | None, complete: bool, evidence: Sequence[str]
) -> Iterator[Finding]:
    """Report processes that do not answer, and ranks that lag behind."""
    troubled = False
    for problem in status.problems:
        if problem.word == "TIMEOUT" or (problem.word == INCOMPLETE and problem.communicator and _has_lost(status)):
            continue  # a consequence of the process that does not answer
        troubled = True
        yield _problem(problem, before, evidence)
    if troubled:
        return
    if not complete:
        yield unknown("the errors and warnings of NCCL's RAS are not in the text", evidence=evidence,
                      fix="Paste the complete output.")  # fmt: skip
        return
    yield unknown(
        f"NCCL's RAS reaches all {status.processes or 'known'} processes, and no rank is behind in launched "
        "operations; the text does not show whether they complete",
        evidence=evidence,
        fix="If the job does not progress, its GPUs or the network may hang: check its nodes for Xids and link errors.",
    )


def _has_lost(status: RasStatus) -> bool:
    return any(problem.processes for problem in status.problems)


def _problem(problem: RasProblem, before: RasStatus | None, evidence: Sequence[str]) -> Finding:
    subject = f"communicator {problem.communicator}" if problem.communicator else "processes"
    if problem.word == DEAD:
        end = "they have ended, or their nodes are" if len(problem.processes) > 1 else "it has ended, or its node is"
        return failed(
            f"NCCL's RAS could not reach {_processes(problem.processes)} for 60 s: {end} gone",
            subject=subject, found="dead", expected="reachable", evidence=evidence, fix=_LOOK,
        )  # fmt: skip
    if problem.word == INCOMPLETE:
        who = _processes(problem.processes) if problem.processes else f"rank {problem.missing or '(not named)'}"
        several = len(problem.processes) > 1
        state = "do not answer NCCL's RAS: they are" if several else "does not answer NCCL's RAS: it is"
        return warned(f"{who} {state} stopped, hung in the kernel, or dead",
                      subject=subject, found="no answer", expected="reachable", evidence=evidence,
                      fix=_LOOK)  # fmt: skip
    if problem.word == MISMATCH and problem.counts:
        return _behind(problem, before, subject, evidence)
    states = "; ".join(f"{each.count} ranks: {each.state}" for each in problem.sets[:_NAMED])
    if problem.word == MISMATCH:
        return unknown(f"{subject}: ranks differ: {states or problem.compared}; this is normal while a communicator is "
                       "created or destroyed", subject=subject, evidence=evidence, fix=_REPEAT)  # fmt: skip
    return warned(f"{subject}: NCCL's RAS reports {problem.word}: {problem.compared or states or 'no details'}",
                  subject=subject, found=problem.word, expected="OK", evidence=evidence)  # fmt: skip


def _behind(problem: RasProblem, before: RasStatus | None, subject: str, evidence: Sequence[str]) -> Finding:
    """Judge ranks that have launched fewer operations, based on one or two queries."""
    most = problem.counts[0]
    if not problem.behind:
        return unknown(f"{subject}: NCCL's RAS reports different counts, but those in the text are all {most}",
                       subject=subject, evidence=evidence, fix=_REPEAT)  # fmt: skip
    who = "; ".join(
        f"{_ranks(each)} {'is' if each.count == 1 else 'are'} at operation {each.operations}"
        for each in problem.behind[:_NAMED]
    )
    message = f"{subject}: {who}; the other ranks have launched operation {most}"
    behind, expected = f"{most - problem.counts[-1]} operations behind", "all ranks at the same operation"
    earlier = [
        other
        for other in (before.problems if before is not None else ())
        if (other.communicator, other.word, other.compared) == (problem.communicator, problem.word, problem.compared)
    ]
    if earlier and earlier[0].counts == problem.counts:
        return failed(f"{message}, as in the previous query: they wait for the ranks that are behind", subject=subject,
                      found=behind, expected=expected, evidence=evidence, fix=_LOOK)  # fmt: skip
    before_counts = earlier[0].counts if earlier else ()  # the largest first
    if before_counts and before_counts[0] < most and before_counts[-1] < problem.counts[-1]:
        return passed(f"{message}; since the previous query, all ranks have launched more", subject=subject,
                      found=behind, evidence=evidence)  # fmt: skip
    return unknown(f"{message}; a running job can look the same for a moment", subject=subject, found=behind,
                   expected=expected, evidence=evidence, fix=_REPEAT)  # fmt: skip


def _ranks(ranks: RankSet) -> str:
    if not ranks.ranks:
        return f"{ranks.count} ranks"
    named = ", ".join(
        f"{place.rank} ({place.node}, GPU {place.gpu}, PID {place.process})" if place.node else str(place.rank)
        for place in ranks.ranks[:_NAMED]
    )
    more = f" and {len(ranks.ranks) - _NAMED} more" if len(ranks.ranks) > _NAMED else ""
    return f"rank{'s' * (len(ranks.ranks) > 1)} {named}{more}"


def _processes(processes: Sequence[RankPlace]) -> str:
    named = ", ".join(f"{place.process} on {place.node} (GPU {place.gpu})" for place in processes[:_NAMED])
    more = f" and {len(processes) - _NAMED} more" if len(processes) > _NAMED else ""
    return f"process{'es' * (len(processes) > 1)} {named or '(not named)'}{more}"
