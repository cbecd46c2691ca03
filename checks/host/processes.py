"""Checks of processes that must not run on a node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from preflight.checks.applicability import nothing_forbidden
from preflight.evidence.document import EvidenceError, with_subject
from preflight.expectations import Site
from preflight.facts.node import NodeFacts
from preflight.model import Finding, check, clause, counted, failed, passed, unknown, warned
from preflight.parsers.host.processes import PROCESSES, ProcessEntry, parse

#: Maximum number of processes in a finding.
_LISTED = 8


@check(
    "host.processes",
    title="No process runs that the cluster file forbids",
    fault="A process runs that the cluster file forbids",
    impact="slows-job",
    source="the cluster file: class.NAME.host.forbidden_processes and forbidden_users; ps(1)",
    fix="Run `ps -o pid,ppid,user,lstart,args -p PID`; end the process, and find out who started it.",
    unless=(nothing_forbidden,),
    action="fix-site",
)
def forbidden(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Look for the programs and users that the cluster file forbids.

    ## Why it matters
    A process of a user without a job, or a miner, takes memory, cores and GPUs from the node's job.

    ## Verdicts
    Each forbidden program or user with a running process fails; the message lists the process ids. Programs are
    compared by the name that the kernel shows, which has at most 15 characters. If only the user's own processes are
    visible (`hidepid`), the result is unknown.

    ## False alarms
    A program can set any name for itself.
    """
    host = site.members.host
    processes = node.parsed(PROCESSES, parse)
    if not any(process.pid == 1 for process in processes):
        yield unknown("other users' processes are hidden (hidepid): process 1 is not visible",
                      expected="a list of all processes", evidence=[PROCESSES],
                      fix="collect as root, or as a member of the group that /proc is mounted with")  # fmt: skip
        return
    wrong = False
    for key, listed in (("forbidden_processes", host.forbidden_processes), ("forbidden_users", host.forbidden_users)):
        expected = site.host(key)
        for name in listed or ():
            running = [process for process in processes if not process.zombie and _is(process, name, key)]
            if running:
                wrong = True
                shown = f"{name} runs as" if key == "forbidden_processes" else f"user {name} runs"
                yield failed(f"{shown} {'processes' if running[1:] else 'process'} {_shown(running)}", subject=name,
                             found=counted(len(running), "process"),
                             expected=f"none ({expected.source})", evidence=[PROCESSES])  # fmt: skip
    if not wrong:
        yield passed("no process is running that the cluster file forbids", evidence=[PROCESSES])


def _is(process: ProcessEntry, name: str, key: str) -> bool:
    if key == "forbidden_processes":
        return process.program == name[:15]
    return name in (process.user, str(process.uid))


def _shown(processes: Sequence[ProcessEntry]) -> str:
    more = f" and {len(processes) - _LISTED} more" if len(processes) > _LISTED else ""
    return ", ".join(f"{process.pid} ({process.program}, {process.user})" for process in processes[:_LISTED]) + more


@check(
    "host.zombies",
    title="No process stays a zombie",
    fault="A process stays a zombie",
    impact="drifts",
    source="ps(1), proc_pid_stat(5): state Z",
    fix="Run `ps -o pid,ppid,user,args -p PARENT`; end a parent that does not wait for its children: init then reaps "
    "them.",
    gating=False,
    window=True,
)
def zombies(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Look for processes that were zombies at both readings of a window.

    ## Why it matters
    A zombie keeps only its process id and exit status until its parent reaps it. A parent that never does so is broken
    or stuck, for example in a driver call, and keeps its own resources.

    ## Verdicts
    A process that is a zombie of the same parent at both readings warns; the message shows the process ids of both. A
    zombie at only one reading is normal. The check never gates a job.

    ## False alarms
    A container whose first process does not reap its children; it only uses up process ids.
    """
    first = node.evidence.complete_record(PROCESSES)
    node.evidence.text(PROCESSES)
    if first.again is None:
        raise EvidenceError(PROCESSES, "was read once; zombies need a second reading (--window 60)")
    if not first.again.ok or first.again.rc:
        why = first.again.describe() or f"ended with exit status {first.again.rc}"
        raise EvidenceError(PROCESSES, with_subject("the second reading", why))
    try:
        then = {(process.pid, process.parent) for process in parse(first.out) if process.zombie}
        lasting = [
            process for process in parse(first.again.out) if process.zombie and (process.pid, process.parent) in then
        ]
    except ValueError as error:
        raise EvidenceError(PROCESSES, f"cannot be parsed: {error}") from None
    if not lasting:
        yield passed("no process was a zombie at both readings", evidence=[PROCESSES])
        return
    listed = ", ".join(
        f"{process.pid} ({process.program}, {process.user}, child of {process.parent})" for process in lasting[:_LISTED]
    )
    more = f" and {len(lasting) - _LISTED} more" if len(lasting) > _LISTED else ""
    parents = sorted({process.parent for process in lasting})
    yield warned(f"{clause(len(lasting), 'zombie', 'remains')}: {listed}{more}",
                 subject=f"parent {parents[0]}" if len(parents) == 1 else "", found=len(lasting), expected="none",
                 evidence=[PROCESSES])  # fmt: skip
