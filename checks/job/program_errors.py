"""Check of a job's output for errors that ended its program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from preflight import facts
from preflight._startup.lightclass import replace
from preflight.checks.job.cause import AFTER_FAILURE, of_log
from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.facts.node import NodeFacts
from preflight.model import Finding, check, counted, failed, passed, processes, unknown, warned
from preflight.parsers.host.kernel_event_kinds import ERROR
from preflight.parsers.messages.named_processes import memory_step
from preflight.textprep.plain_text import ends_of

if TYPE_CHECKING:
    from preflight.parsers.host.kernel_events import KernelEvent
    from preflight.parsers.messages.scan import LoggedError
    from preflight.parsers.messages.signature import ErrorSignature

_REPORTS = {"fail": failed, "warn": warned, "unknown": unknown}

#: Maximum number of errors of one log reported separately, causes before consequences.
_MAX_FINDINGS = 5
#: Maximum number of texts that the finding of one signature quotes.
_MOST_QUOTED = 3


@check(
    "job.errors",
    title="The job's output shows no error that ended its program",
    fault="An error ended a program of the job",
    impact="blocks-job",
    explains=AFTER_FAILURE,
    source="signatures in preflight/parsers/messages; PyTorch, CUDA, Hugging Face, Ray, JAX, vLLM, Open MPI and Slurm",
    fix="Fix the first error, which ended the other ranks too: `preflight read LOG` shows all of them.",
    action="fix-job",
    scope="run",
    needs=("errors",),
)
def errors(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Look for errors of programs, launchers and libraries at the end of a log.

    ## Why it matters
    A job ends with an exception, a signal or an error of its launcher, but NCCL's log shows only that ranks
    disappeared.

    ## Verdicts
    An unhandled exception fails, and so does a message of a program or of Slurm with a fatal signature. A message that
    a program can survive warns. An error that the program survived, or that is truncated, is unknown. An error counts
    as survived if nearby words show it, or if at least three training steps follow and it is not a hardware error. With
    `--log`, the last lines of the log are read, and the check is planned only if they show an error. `preflight read`
    reads all of a pasted text, and reports a line that is marked as an error but matches no signature as unknown.
    Reports of another process's end are attributed to the first error. If the kernel log of the rank's node shows that
    the kernel killed the named process for lack of memory, the finding states this.

    ## False alarms
    An exception that the program printed and survived, with no hint in the lines around it and no training steps after
    it.
    """
    for key, logged in run.program_errors.items():
        ended = [group for group in ordered(logged) if group[0].id != _LOGGED]
        for signature, same in ended[:_MAX_FINDINGS]:
            reported = finding_of(signature, same, [key], f"{key.removeprefix('log:')}:{same[0].line}: ")
            yield _with_fault(reported, run, key, signature, same)
        if not ended:
            yield passed(f"{key.removeprefix('log:')} ends without an error that is known to be fatal, but logs "
                         + counted(len(logged), "distinct error"),
                         subject=key.removeprefix("log:"),
                         evidence=[key])  # fmt: skip


def _with_fault(
    finding: Finding, run: RunFacts, key: str, signature: ErrorSignature, logged: Sequence[LoggedError]
) -> Finding:
    """Return the finding with the check and places of the same fault on nodes."""
    finding = finding.with_parts(*(f"{key}:{error.line}" for error in logged))
    if signature.check == "job.errors" and not any(error.processes for error in logged):
        return finding
    log = run.nccl_logs.get(key)
    of_rank = {str(rank): host.host for host in (of_log(log) if log else ()) for rank in host.ranks}
    writers, nodes, files, kills = [], dict[str | None, NodeFacts](), [], []
    for error in logged:
        rank = error.rank or error.writer.removeprefix("rank")
        host = error.node or of_rank.get(rank) or error.writer or None
        if node := run.host(host):
            nodes[host] = node
            killed = facts.logged_faults.killed_by_kernel(node) if error.processes else {}
            kills += [(node, killed[pid]) for pid in error.processes if pid in killed]
        files.append((node, error.paths))
        writers.append((host, int(rank) if rank.isdecimal() else None, None))
    if kills:
        finding = _by_kernel(finding, signature, kills)
    elif signature.check == "job.errors":
        return finding
    check = _KERNEL if kills else signature.check
    at = dict.fromkeys(facts.logged_faults.places(log, check, writers, nodes))
    blamed = ((host, processes(error.processes)) for error, (host, _, _) in zip(logged, writers, strict=True))
    of_processes = facts.logged_faults.blamed_processes(blamed, check, nodes)
    of_files = dict.fromkeys(facts.logged_faults.blamed_mounts(files, check))
    finding = finding.with_parts(*finding.parts, *at, *of_processes, *of_files)
    names = dict.fromkeys(node.node for node in nodes.values())
    return finding.from_cause((check, *names)) if names else finding


#: Signature of errors whose text may state which process holds a GPU's memory.
_OUT_OF_MEMORY = "cuda-out-of-memory"

#: Check of the kernel log, which shows the processes that the kernel killed.
_KERNEL = "kernel.events"


def _by_kernel(finding: Finding, signature: ErrorSignature, kills: Sequence[tuple[NodeFacts, KernelEvent]]) -> Finding:
    """Return the finding with the kernel's lines about the processes that it names."""
    node, first = kills[0]
    more = f" and {len(kills) - 1} more" if len(kills) > 1 else ""
    of_node = any(event.severity == ERROR for _, event in kills)
    why, fix = _NO_MEMORY if of_node else _AT_LIMIT
    what = f"a process was killed by the kernel {why}: {first.device[:60]} (pid {first.detail}){more} on {node.node}"
    quoted = "\n".join(f"{at.node} {facts.kernel_log.DMESG}: {event.text[:200]}" for at, event in kills[:_MOST_QUOTED])
    return replace(finding, message=finding.message.replace(signature.meaning, what, 1), fix=fix,
                   quote=f"{finding.found}\n{quoted}")  # fmt: skip


#: Reason of a kill, and fix.
_AT_LIMIT = (
    "at its job's memory limit",
    "Request more memory (`--mem`, the pod's limit), or use fewer data-loader workers; `sacct -j JOB "
    "--format=JobID,MaxRSS,ReqMem` shows what the job used.",
)
_NO_MEMORY = (
    "because the node ran out of memory",
    "Use fewer data-loader workers; limit the jobs' memory (Slurm: ConstrainRAMSpace).",
)

#: Signature of lines that a program logs as errors and that match no other signature.
_LOGGED = "logged-error"
#: Words before the text of an error that no other signature matches.
_BY_LEVEL = {_LOGGED: "logged as an error: ", "logged-fatal": "the program ended itself with a fatal error: "}

#: Signatures that only report that another error ended a process, or a call that failed for a reason printed elsewhere.
_SECONDARY = frozenset({
    "child-failed", "child-aborted", "slurm-task-failed", "slurm-cancelled", "launcher-exit", "engine-ended",
    "mpi-abort",
    "mpi-rank-ended", "mpi-init", "mpi-error", "mpi-daemon-lost",
})  # fmt: skip


def ordered(
    logged: Sequence[tuple[ErrorSignature, list[LoggedError]]],
) -> list[tuple[ErrorSignature, list[LoggedError]]]:
    """Order groups of errors by signature: causes before consequences.

    Errors that match no signature are last.
    """
    return sorted(logged, key=_order)


def _order(group: tuple[ErrorSignature, list[LoggedError]]) -> int:
    signature, logged = group
    if signature.id == _LOGGED:
        return 2
    return int(signature.id in _SECONDARY or all(error.follows for error in logged))


def finding_of(
    signature: ErrorSignature, logged: Sequence[LoggedError], evidence: Sequence[str], where: str = ""
) -> Finding:
    """Return the finding for the errors of one signature.

    ``where`` precedes the message.
    """
    first = logged[0]
    words = _quoted(signature, logged)
    places = dict.fromkeys(filter(None, (" ".join(filter(None, (error.node, error.gpu))) for error in logged)))
    ranks = dict.fromkeys(error.rank for error in logged if error.rank)
    line = f"line {first.line}" + (f" and {counted(len(logged) - 1, 'more line')}" if len(logged) > 1 else "")
    of = (
        f" ({'ranks' if len(ranks) > 1 else 'rank'} {', '.join(list(ranks)[:8])}{', …' if len(ranks) > 8 else ''})"
        if ranks
        else ""
    )
    on = f"{', '.join(list(places)[:8])}: " if places else ""
    raised = next((error.place for error in logged if error.place), "")
    at = f", raised at {raised}" if raised else ""
    about = "; a consequence of another process's end" if first.follows else ""
    about += "; the job continued after it" if first.survived else ""
    step = memory_step([error.processes for error in logged]) if signature.id == _OUT_OF_MEMORY else ""
    fixing = f"{step[0].upper()}{step[1:]}." if step else signature.fix
    commands = "; ".join(f"`{command}`" for command in signature.commands)
    return _REPORTS[signature.status](
        f"{where}{on}{_meaning(signature, first)}{at}{about}{of}{words} ({line})",
        subject=first.gpu or first.node or next(iter(places), ""), found=(first.text or first.what)[:200],
        evidence=evidence, fix=_with_node(f"{fixing} Run: {commands}", signature, first),
    )  # fmt: skip


def _with_node(fix: str, signature: ErrorSignature, first: LoggedError) -> str:
    """Replace NODE in the commands by the node that the message names."""
    is_named = "node" in signature.pattern.groupindex and first.node[:1].isalnum()  # else it could be an option
    return fix.replace(" NODE", f" {first.node}") if is_named else fix


def _meaning(signature: ErrorSignature, first: LoggedError) -> str:
    """Return the meaning of an error, or its own text if no signature matches."""
    if signature.id in _BY_LEVEL:
        return f"{_BY_LEVEL[signature.id]}{ends_of(first.what, 300, 160)}"
    return signature.meaning or ends_of(first.what, 300, 160)


def _quoted(signature: ErrorSignature, logged: Sequence[LoggedError]) -> str:
    """Return the printed words of errors with a signature.

    They contain figures and names; texts that differ only in digits are quoted once.
    """
    if not signature.meaning:
        return ""
    printed = _different_words(logged)
    if len(printed) > _MOST_QUOTED:  # the first, and those that name the cause
        printed = [printed[0], *printed[1 - _MOST_QUOTED :]]
    quotes = "; ".join(f"“{words}”" for words in printed)
    return f": {quotes}" if quotes else ""


def _different_words(logged: Sequence[LoggedError]) -> list[str]:
    """Return the texts of errors, without those that differ only in digits."""
    texts: dict[str, str] = {}
    for error in logged:
        if error.words:
            texts.setdefault(error.words.translate(_AS_ZEROS), error.words)
    return list(texts.values())


_AS_ZEROS = str.maketrans("123456789", "000000000")
