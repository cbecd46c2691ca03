"""Judges of Slurm: nodes out of service, and failed jobs."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Sequence

from preflight.model import Finding, clause, failed, passed, unknown, warned
from preflight.parsers.cluster.sacct import EndedJob
from preflight.parsers.cluster.sinfo import NodesInState, Sinfo
from preflight.parsers.cluster.slurm_control import SlurmControl, SlurmController, SlurmPartition
from preflight.parsers.cluster.slurm_nodes import SlurmNode
from preflight.parsers.messages.error_words import check_of
from preflight.parsers.messages.scan import error_in
from preflight.recognition.judges import Judge, Judged, Judges, PastedValue

#: Reasons that name planned work.
_PLANNED = re.compile(
    r"(?i)\b(?:maint\w*|upgrade|reserved|planned|reboot asap|scheduled|testing|test|decommission\w*)\b"
)


def _check_of_reason(reason: str) -> str:
    if (hit := error_in(reason)) is not None:
        return hit[0].check
    return check_of(reason, "host.services")


#: States of ``sinfo`` in which a node accepts no job: down, or drained.
_DOWN = re.compile(r"(?:down|fail(?:ing|g)?|error|err|inval(?:id(?:_reg)?)?|no_respond|not_responding)\W*|\w+\*")
_DRAINED = re.compile(r"(?:drain(?:ed|ing)?|drng|maint(?:enance)?|blocked|boot\^?|reboot\w*|future)\W*")
#: States of nodes in service or powered down; all others are reported.
_IN_SERVICE = re.compile(
    r"(?:idle|alloc(?:ated)?|mix(?:ed)?|comp(?:leting)?|resv|reserved|plnd|planned|perf(?:ctrs)?|cloud|dynamic_norm"
    r"|dynamic_future"
    r"|pow\w*|futr|cg|invalid_reg)[+~#%$@^-]{0,2}|n/a"
)


def _out_of_service(state: str) -> str:
    """Return ``down``, ``drained`` or ``other`` for a state, or "" if in service."""
    words = state.lower().split("+")
    if any(_DOWN.fullmatch(word) for word in words):
        return "down"
    if any(_DRAINED.fullmatch(word) for word in words):
        return "drained"
    return "" if all(_IN_SERVICE.fullmatch(word) for word in words if word) else "other"


#: Counts of ``sinfo -s`` with nodes that are neither allocated nor idle.
_OTHERS = re.compile(r"\d{1,6}/\d{1,6}/0{0,5}[1-9]\d{0,5}/\d{1,6}")


def _sinfo(report: Sinfo) -> Judged:
    judges = [
        (_check_of_reason(item.reason), _reason_judge(item.nodes, item.reason, f"since {item.since}", item.line))
        for item in report.reasons
    ]
    rows: dict[tuple[str, str], NodesInState] = {}
    for row in report.states:  # a node of several partitions is listed in each
        rows.setdefault((row.nodes, row.state or row.counts), row)
    judges += [
        (_check_of_reason(row.reason) if row.reason else "host.services", _state_judge(row))
        for row in rows.values() if row.nodes not in ("", "0") and _out_of_service(row.state)
    ]  # fmt: skip
    partitions = {row.partition: row for row in report.states if row.availability not in ("", "up", "n/a")}
    judges += [("host.services", _partition_row(row)) for row in partitions.values()]
    judges += [("host.services", _count_judge(row)) for row in rows.values() if _OTHERS.fullmatch(row.counts)]
    return tuple(judges) or (("host.services", _no_reasons),)


def _count_judge(row: NodesInState) -> Judge:
    def judge_part(part: PastedValue) -> Iterator[Finding]:
        other = row.counts.split("/")[2]
        yield unknown(f"partition {row.partition}: {other} nodes are neither allocated nor idle (line {row.line})",
                      subject=row.partition, found=row.counts, expected="none down or drained", evidence=part.evidence,
                      fix="`sinfo -R` lists the nodes and the reasons.")  # fmt: skip

    return judge_part


def _partition_row(row: NodesInState) -> Judge:
    def judge_part(part: PastedValue) -> Iterator[Finding]:
        yield warned(f"partition {row.partition} is {row.availability}: it starts no job (line {row.line})",
                     subject=row.partition, found=row.availability, expected="up", evidence=part.evidence,
                     fix=f"`scontrol show partition {row.partition.rstrip('*')}`; it may be closed on"
                         " purpose.")  # fmt: skip

    return judge_part


def _state_judge(row: NodesInState) -> Judge:
    def judge_part(part: PastedValue) -> Iterator[Finding]:
        silent = ", not responding" if row.state.endswith("*") else ""
        why = f": {row.reason}" if row.reason else ""
        kind = _out_of_service(row.state)
        report = (
            failed if kind == "down" and not _PLANNED.search(row.reason) else unknown if kind == "other" else warned
        )
        nodes = f"{row.nodes} node{'s' * (row.nodes != '1')}" if row.nodes.isdecimal() else row.nodes
        yield report(f"{nodes}: out of service, state {row.state}{silent}{why} (line {row.line})",
                     subject=row.nodes, found=row.state, expected="in service", evidence=part.evidence,
                     fix=f"`sinfo -R` and `scontrol show node {row.nodes}` have the reason.")  # fmt: skip

    return judge_part


def _reason_judge(nodes: str, reason: str, since: str, line: int) -> Judge:
    def judge_part(part: PastedValue) -> Iterator[Finding]:
        report = warned if _PLANNED.search(reason) else failed
        yield report(
            f"{nodes}: taken out of service: {reason} ({since}, line {line})",
            subject=nodes,
            found=reason,
            expected="in service",
            evidence=part.evidence,
            fix=f"Find the cause before resuming it: `preflight check --hosts {nodes}`.",
        )

    return judge_part


def _no_reasons(part: PastedValue) -> Iterator[Finding]:
    if part.complete:
        yield passed("no node is out of service", evidence=part.evidence)


_OUT = frozenset({"DOWN", "DRAIN", "DRAINING", "DRAINED", "FAIL", "FAILING", "NOT_RESPONDING", "ERROR"})


def _nodes(nodes: Sequence[SlurmNode]) -> Judged:
    judges: list[tuple[str, Judge]] = []
    for node in nodes:
        if node.configured:
            if _OUT & set(node.state):
                judges.append(("host.services", _configured_out(node)))
        elif _OUT & set(node.state):
            state = "+".join(node.state)
            words = node.reason or state
            judges.append((_check_of_reason(words), _reason_judge(node.name, words, f"state {state}", node.line)))
        elif node.reason and node.state:
            judges.append((_check_of_reason(node.reason), _leftover_reason(node)))
        elif _out_of_service("+".join(node.state)):
            judges.append(("host.services", _other_state(node)))
    running = any(node.state and not node.configured for node in nodes)
    return tuple(judges) or ((("host.services", _in_service),) if running else ())


def _configured_out(node: SlurmNode) -> Judge:
    def judge_part(part: PastedValue) -> Iterator[Finding]:
        state = "+".join(node.state)
        yield warned(f"{node.name}: its configuration keeps it out of service: State={state} (line {node.line})",
                     subject=node.name, found=state, expected="UNKNOWN or CLOUD", evidence=part.evidence,
                     fix=f"If this is not on purpose, set State=UNKNOWN; `scontrol show node {node.name}` has its "
                     "present state.")  # fmt: skip

    return judge_part


def _other_state(node: SlurmNode) -> Judge:
    def judge_part(part: PastedValue) -> Iterator[Finding]:
        state = "+".join(node.state)
        report = warned if _out_of_service(state) == "drained" else unknown
        words = "it has not registered since slurmctld started" if "UNKNOWN" in node.state else "it may accept no job"
        yield report(f"{node.name}: state {state}: {words} (line {node.line})", subject=node.name, found=state,
                     expected="in service", evidence=part.evidence,
                     fix=f"Run `sinfo -n {node.name}`; on the node: `systemctl status slurmd`.")  # fmt: skip

    return judge_part


def _leftover_reason(node: SlurmNode) -> Judge:
    def judge_part(part: PastedValue) -> Iterator[Finding]:
        yield warned(f"{node.name}: in service ({'+'.join(node.state)}), but still has a reason: {node.reason} (line "
                     f"{node.line})", subject=node.name, found=node.reason, evidence=part.evidence)  # fmt: skip

    return judge_part


def _in_service(part: PastedValue) -> Iterator[Finding]:
    number = sum(not node.configured for node in part.value)
    yield passed(f"{clause(number, 'node', 'is')} in service", evidence=part.evidence)


# --- sacct ----------------------------------------------------------------------------------------------

#: State prefix of an ended job -> the check for the cause, the message, the next step.
_ENDS = (
    ("NODE_FAIL", "host.services", "a node of the job went down or stopped answering",
     "`sinfo -R`; find out why the node went down (console, BMC, kernel log)."),
    ("BOOT_FAIL", "host.services", "its nodes did not boot", "`sinfo -R`; the console of the node."),
    ("OUT_OF_ME", "kernel.events", "it was killed at its memory limit",
     "`sacct -j JOB --format=JobID,MaxRSS,ReqMem`; request more memory, or use fewer data-loader workers."),
    ("TIMEOUT", "trend.job-time", "it reached its time limit: the limit was too short, or the job hung",
     "If its last lines show progress, request more time; otherwise look for a hang: `preflight read LOG`."),
    ("DEADLINE", "trend.job-time", "it could not end before its deadline", "Request less, or a later deadline."),
    ("FAILED", "job.errors", "it ended with an error", "The first error in its output is the cause: `preflight read"
                                                          " LOG`."),
    ("PREEMPTED", "host.services", "it was preempted by another job", "Requeue it from its last checkpoint."),
    ("CANCELLED", "host.services", "it was cancelled: by a person, or after one of its tasks failed",
     "If a task failed first, look there for the cause."),
)  # fmt: skip


#: States of a step that cause another one of its job.
_CAUSES = frozenset({"NODE_FAIL", "OUT_OF_ME"})

#: Further end states of squeue and scontrol.
_OTHER_ENDS = (
    ("LAUNCH_FAILED", "host.services", "it could not be launched", "`scontrol show job JOB`; slurmd's log of its "
     "nodes."),
    ("SPECIAL_EXIT", "job.errors", "it was requeued and is held (special exit)", "`scontrol show job JOB`, then "
     "`scontrol release"
                                                                                   " JOB`."),
    ("STOPPED", "host.services", "it was stopped by a signal", "`scontrol show job JOB`."),
    ("SUSPENDED", "host.services", "it is suspended", "`scontrol show job JOB`; `scontrol resume JOB`."),
    ("REVOKED", "host.services", "its sibling in the federation was started instead", "`scontrol show job JOB`."),
    ("RESV_DEL_HOLD", "host.services", "its reservation was deleted, and it is held", "`scontrol release JOB`."),
)  # fmt: skip
_LIVES = frozenset({"PENDING", "RUNNING", "COMPLETING", "COMPLETED", "CONFIGURING", "REQUEUED", "RESIZING", "STAGE_OUT",
                    "SIGNALING", "REQUEUE_FED", "REQUEUE_HOLD", "EXPEDITING", "POWER_UP_NODE", ""})  # fmt: skip
#: Reasons of jobs that will not start without action, and of jobs that wait normally.
_NEVER = re.compile(
    r"(?i)launch failed|requeued held|JobHeldAdmin|held\b.{0,20}admin|DependencyNeverSatisfied|BadConstraints"
    r"|Invalid\w+|InactiveLimit"
    r"|PartitionConfig|AccountNotAllowed|QOSNotAllowed|JobLaunchFailure|NonZeroExitCode|SystemFailure|RaisedSignal\w*"
    r"|NodeDown"
    r"|DeadLine|PartitionTimeLimit|PartitionNodeLimit|ReservationDeleted|MaxRequeue|BurstBuffer\w*|Prolog\w*"
)
_WAITS = re.compile(
    r"(?i)Priority|Resources|Dependency|BeginTime|None|Licenses|Reservation|JobArrayTaskLimit|Cleaning"
    r"|Prolog|Nodes_?required.*|Fed\w+|WaitingForScheduling|memory .*|Staging\w*"
)


def _jobs(jobs: Sequence[EndedJob]) -> Judged:
    ends = {job.id: end for job in jobs if "." not in job.id and (end := _end_of(job))}
    judges: list[tuple[str, Judge]] = []
    causes = 0
    for job in jobs:
        end = _end_of(job)
        of_job = ends.get(job.id.partition(".")[0]) if "." in job.id else None
        if end and of_job is None:  # a step repeats its job's state
            judges.append((end[1], _end_judge(job, end[2], end[3])))
        elif end and end != of_job and end[0] in _CAUSES:
            judges.insert(causes, (end[1], _end_judge(job, end[2], end[3])))
            causes += 1
        elif not end and job.state.rstrip("+") not in _LIVES:
            judges.append(("host.services", _unknown_state(job)))
        elif job.state.startswith("COMPLETING"):
            judges.append(("host.zombies", _completing(job)))
        elif job.state == "PENDING" and job.reason and not _WAITS.fullmatch(job.reason):
            judges.append((check_of(job.reason, "host.services"), _waiting(job)))
    return tuple(judges) or ((("job.errors", _none_bad),) if jobs else ())


def _end_of(job: EndedJob) -> tuple[str, str, str, str] | None:
    return next((end for end in (*_ENDS, *_OTHER_ENDS) if job.state.startswith(end[0])), None)


def _unknown_state(job: EndedJob) -> Judge:
    def judge_part(part: PastedValue) -> Iterator[Finding]:
        yield unknown(f"job {job.id} is in state {job.state} (line {job.line})", subject=job.nodes or job.id,
                      found=job.state, evidence=part.evidence, fix=f"`scontrol show job {job.id}`")  # fmt: skip

    return judge_part


def _completing(job: EndedJob) -> Judge:
    def judge_part(part: PastedValue) -> Iterator[Finding]:
        on = job.nodes or "its nodes"
        yield unknown(f"job {job.id} is completing on {on} (line {job.line}): a fault if it lasts "
                      "longer than the epilog", subject=job.nodes or job.id, found=job.state, expected="COMPLETED",
                      evidence=part.evidence,
                      fix=f"`scontrol show job {job.id}`; on its nodes: `ps -eo pid,stat,wchan:30,cmd`, the slurmd "
                      "log.")  # fmt: skip

    return judge_part


def _waiting(job: EndedJob) -> Judge:
    def judge_part(part: PastedValue) -> Iterator[Finding]:
        report = warned if _NEVER.search(job.reason) else unknown
        never = ", and will not start without action" if _NEVER.search(job.reason) else ""
        yield report(f"job {job.id} waits: {job.reason}{never} (line {job.line})", subject=job.id, found=job.reason,
                     expected="Priority or Resources", evidence=part.evidence,
                     fix=f"`scontrol show job {job.id}`; `sinfo -R` has the nodes out of service.")  # fmt: skip

    return judge_part


def _end_judge(job: EndedJob, words: str, fix: str) -> Judge:
    def judge_part(part: PastedValue) -> Iterator[Finding]:
        report = warned if job.state.startswith(("CANCELLED", "PREEMPTED", "SUSPENDED", "REVOKED")) else failed
        on = f" on {job.nodes}" if job.nodes else ""
        why = f", {job.reason}" if job.reason else ""
        yield report(f"job {job.id}{on}: {words} ({job.state}{why}{_exit_words(job.exit_code)}, line {job.line})",
                     subject=job.nodes or job.id, found=f"{job.state} {job.exit_code}".strip(), expected="COMPLETED",
                     evidence=part.evidence, fix=fix.replace("JOB", job.id))  # fmt: skip

    return judge_part


def _exit_words(code: str) -> str:
    """Return an exit code, ``code:signal``, in words; empty for success.

    A code above 128 also names a signal.
    """
    match = re.fullmatch(r"(\d{1,5})(?::(\d{1,3}))?", code)
    if not match:
        return ""
    number, by = int(match[1]), int(match[2] or 0)
    if not by and number > 128:
        by = number - 128
    name = next((entry.name for entry in signal.Signals if entry.value == by), "") if by else ""
    return f", exit {code}{f' {name}' if name else ''}" if number or by else ""


def _none_bad(part: PastedValue) -> Iterator[Finding]:
    jobs: Sequence[EndedJob] = part.value
    if part.complete:
        reasons = dict.fromkeys(job.reason for job in jobs if job.state == "PENDING" and job.reason)
        waits = f"; pending for: {', '.join(list(reasons)[:6])}" if reasons else ""
        good = "the only job did not fail" if len(jobs) == 1 else f"none of the {len(jobs)} jobs and steps failed"
        yield passed(f"{good}{waits}", evidence=part.evidence)


# --- scontrol ping, scontrol show partition, sdiag ---------------------------------------------------------

#: Counter, number at which a controller is overloaded, and its meaning: judgement calls.
_BEHIND: tuple[tuple[str, int, str], ...] = (
    ("DBD Agent queue size", 1000, "records wait for slurmdbd: the accounting database is slow or down"),
    ("Agent queue size", 100, "messages to nodes are queued: nodes do not answer, or the controller is overloaded"),
    (
        "Server thread count",
        200,
        "concurrent requests, of at most 256: a program polls the controller too often",
    ),
)


def _control(report: SlurmControl) -> Judged:
    judges: list[tuple[str, Judge]] = [
        ("host.services", _controller(entry)) for entry in report.controllers if entry.state != "UP"
    ]
    judges += [
        ("host.services", _partition(entry))
        for entry in report.partitions if entry.state != "UP" and not entry.reserved
    ]  # fmt: skip
    judges += [
        ("host.services", _maintenance(entry)) for entry in report.partitions
        if entry.reserved and entry.state == "ACTIVE" and "MAINT" in entry.fields.get("Flags", "")
    ]  # fmt: skip
    counters = report.counters or {}
    judges += [
        ("host.services", _behind(name, counters[name], words))
        for name, most, words in _BEHIND if counters.get(name, 0) >= most
    ]  # fmt: skip
    return tuple(judges) or (("host.services", _in_order),)


def _controller(entry: SlurmController) -> Judge:
    def judge_part(part: PastedValue) -> Iterator[Finding]:
        report = failed if entry.role == "primary" else warned
        yield report(f"the {entry.role} controller {entry.host} is {entry.state} (line {entry.line})",
                     subject=entry.host, found=entry.state, expected="UP", evidence=part.evidence,
                     fix=f"`systemctl status slurmctld` and `journalctl -u slurmctld` on {entry.host}")  # fmt: skip

    return judge_part


def _partition(entry: SlurmPartition) -> Judge:
    def judge_part(part: PastedValue) -> Iterator[Finding]:
        state = entry.state or "without a state"
        yield warned(f"partition {entry.name} is {state} and starts no job (line {entry.line})", subject=entry.name,
                     found=entry.state, expected="UP", evidence=part.evidence,
                     fix=f"Unless intended, run `scontrol update PartitionName={entry.name} State=UP`")  # fmt: skip

    return judge_part


def _maintenance(entry: SlurmPartition) -> Judge:
    def judge_part(part: PastedValue) -> Iterator[Finding]:
        nodes = entry.fields.get("Nodes", "its nodes")
        yield warned(f"reservation {entry.name} is active: {nodes} are in maintenance (line {entry.line})",
                     subject=entry.name, found="MAINT", evidence=part.evidence,
                     fix=f"No job starts on it before {entry.fields.get('EndTime', 'its end')}.")  # fmt: skip

    return judge_part


def _behind(name: str, number: int, words: str) -> Judge:
    def judge_part(part: PastedValue) -> Iterator[Finding]:
        yield warned(f"{name} {number}: {words}", found=number, evidence=part.evidence,
                     fix="Run `sdiag` again after a minute, and `sacctmgr show cluster`; "
                         "read slurmctld's log.")  # fmt: skip

    return judge_part


def _in_order(part: PastedValue) -> Iterator[Finding]:
    if part.complete:
        yield passed("the controllers, partitions and queues of Slurm in the text are healthy", evidence=part.evidence)


JUDGES: Judges = {
    "sinfo": _sinfo, "scontrol node": _nodes, "scontrol": _control, **dict.fromkeys(("sacct", "squeue",
    "scontrol job", "seff"), _jobs),
}  # fmt: skip
