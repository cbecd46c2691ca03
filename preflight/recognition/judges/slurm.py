"""Judges of Slurm: nodes out of service, jobs that ended badly."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from preflight.model import Finding, failed, passed, unknown, warned
from preflight.parsers.cluster.sacct import EndedJob
from preflight.parsers.cluster.sinfo import NodesInState, Sinfo
from preflight.parsers.cluster.slurm_nodes import SlurmNode
from preflight.parsers.messages.scan import error_in
from preflight.recognition.judges import Judge, Judged, Judges, PastedValue

#: Words of a reason, and the check that judges the same.
_REASONS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.I), check)
    for pattern, check in (
        (r"not responding|unexpectedly rebooted|slurmd|munge|clock", "host.services"),
        (r"kill task failed|not ending|unkillable|zombie", "host.zombies"),
        (r"low (?:real)?memory|low socket|low cpu|low core|low tmpdisk", "host.inventory"),
        (r"xid", "xid.gpu"), (r"ecc|remap|retired", "gpu.ecc-uncorrected"), (r"nvlink|fabric", "nvlink.links"),
        (r"gres/gpu|gpu|nvidia|nvml", "gpu.count"), (r"ib\b|infiniband|rdma|link down|mlx|hca|port", "rdma.port-state"),
        (r"mount|nfs|lustre|gpfs|beegfs", "host.mounts"), (r"disk|file ?system|space", "host.file-systems"),
        (r"prolog|epilog|health|nhc|preflight", "host.services"), (r"oom|memory", "kernel.events"),
    )
)  # fmt: skip
#: Reasons that people give for work that was planned.
_PLANNED = re.compile(
    r"(?i)\b(?:maint\w*|upgrade|reserved|planned|reboot asap|scheduled|testing|test|decommission\w*)\b"
)


def _check_of_reason(reason: str) -> str:
    if (hit := error_in(reason)) is not None:
        return hit[0].check
    return next((check for pattern, check in _REASONS if pattern.search(reason)), "host.services")


#: States of ``sinfo`` in which a node takes no job: down, and taken out by a person or a program.
_DOWN = re.compile(r"(?:down|fail(?:ing|g)?|error|err|unk(?:nown)?|inval|no_respond)\W*|\w+\*")
_DRAINED = re.compile(r"(?:drain(?:ed|ing)?|drng|maint|blocked|boot\^?)\W*")
#: Counts of ``sinfo -s`` with nodes that are neither allocated nor idle.
_OTHERS = re.compile(r"\d{1,6}/\d{1,6}/0{0,5}[1-9]\d{0,5}/\d{1,6}")


def _sinfo(report: Sinfo) -> Judged:
    judges = [
        (_check_of_reason(item.reason), _reason_judge(item.nodes, item.reason, f"since {item.since}", item.line))
        for item in report.reasons
    ]
    rows: dict[tuple[str, str], NodesInState] = {}
    for row in report.states:  # a node of several partitions is listed in each
        rows.setdefault((row.nodes, row.state), row)
    judges += [
        (_check_of_reason(row.reason) if row.reason else "host.services", _state_judge(row))
        for row in rows.values() if row.nodes and (_DOWN.fullmatch(row.state) or _DRAINED.fullmatch(row.state))
    ]  # fmt: skip
    judges += [("host.services", _count_judge(row)) for row in rows.values() if _OTHERS.fullmatch(row.state)]
    return tuple(judges) or (("host.services", _no_reasons),)


def _count_judge(row: NodesInState) -> Judge:
    def judge_part(part: PastedValue) -> Iterator[Finding]:
        other = row.state.split("/")[2]
        yield unknown(f"partition {row.partition}: {other} nodes are neither allocated nor idle (line {row.line})",
                      subject=row.partition, found=row.state, expected="none down or drained", evidence=part.evidence,
                      fix="`sinfo -R` has the nodes and the reasons.")  # fmt: skip

    return judge_part


def _state_judge(row: NodesInState) -> Judge:
    def judge_part(part: PastedValue) -> Iterator[Finding]:
        silent = ", not responding" if row.state.endswith("*") else ""
        why = f": {row.reason}" if row.reason else ""
        report = failed if _DOWN.fullmatch(row.state) and not _PLANNED.search(row.reason) else warned
        yield report(f"{row.nodes}: out of service, state {row.state}{silent}{why} (line {row.line})",
                     subject=row.nodes, found=row.state, expected="in service", evidence=part.evidence,
                     fix=f"`sinfo -R` and `scontrol show node {row.nodes}` have the reason.")  # fmt: skip

    return judge_part


def _reason_judge(nodes: str, reason: str, since: str, line: int) -> Judge:
    def judge_part(part: PastedValue) -> Iterator[Finding]:
        report = warned if _PLANNED.search(reason) else failed
        yield report(f"{nodes}: taken out of service: {reason} ({since}, line {line})", subject=nodes, found=reason,
                     expected="in service", evidence=part.evidence,
                     fix=f"`scontrol show node {nodes}`; look for the cause on the node before it is"
                         f" resumed.")  # fmt: skip

    return judge_part


def _no_reasons(part: PastedValue) -> Iterator[Finding]:
    if part.complete:
        yield passed("no node is out of service", evidence=part.evidence)


_OUT = frozenset({"DOWN", "DRAIN", "DRAINING", "DRAINED", "FAIL", "FAILING", "NOT_RESPONDING", "ERROR", "UNKNOWN"})


def _nodes(nodes: Sequence[SlurmNode]) -> Judged:
    judges: list[tuple[str, Judge]] = []
    for node in nodes:
        if _OUT & set(node.state):
            state = "+".join(node.state)
            words = node.reason or state
            judges.append((_check_of_reason(words), _reason_judge(node.name, words, f"state {state}", node.line)))
        elif node.reason and node.state:
            judges.append((_check_of_reason(node.reason), _leftover_reason(node)))
    return tuple(judges) or ((("host.services", _in_service),) if any(node.state for node in nodes) else ())


def _leftover_reason(node: SlurmNode) -> Judge:
    def judge_part(part: PastedValue) -> Iterator[Finding]:
        yield warned(f"{node.name}: in service ({'+'.join(node.state)}), and it has a reason: {node.reason} (line "
                     f"{node.line})", subject=node.name, found=node.reason, evidence=part.evidence)  # fmt: skip

    return judge_part


def _in_service(part: PastedValue) -> Iterator[Finding]:
    yield passed(f"{len(part.value)} nodes are in service", evidence=part.evidence)


# --- sacct ----------------------------------------------------------------------------------------------

#: How a job ended, by the beginning of its state: the check that judges the cause, what happened, what to do.
_ENDS = (
    ("NODE_FAIL", "host.services", "a node of the job went down or stopped answering",
     "`sinfo -R`; find out why the node went down (console, BMC, kernel log)."),
    ("BOOT_FAIL", "host.services", "its nodes did not boot", "`sinfo -R`; the console of the node."),
    ("OUT_OF_ME", "kernel.events", "it was killed at its memory limit",
     "`sacct -j JOB --format=JobID,MaxRSS,ReqMem`; request more memory, or use fewer data-loader workers."),
    ("TIMEOUT", "trend.job-time", "it reached its time limit: too short, or the job hung",
     "If its last lines show progress, request more time; else look for a hang: `preflight read LOG`."),
    ("DEADLINE", "trend.job-time", "it could not end before its deadline", "Request less, or a later deadline."),
    ("FAILED", "nccl.failures", "it ended with an error", "The first error in its output is the cause: `preflight read"
                                                          " LOG`."),
    ("PREEMPTED", "host.services", "it was preempted by another job", "Requeue it from its last checkpoint."),
    ("CANCELLED", "host.services", "it was cancelled: by a person, or after a task of it failed",
     "If a task failed before it, that one is the cause."),
)  # fmt: skip


def _jobs(jobs: Sequence[EndedJob]) -> Judged:
    complete_jobs = {job.id.partition(".")[0] for job in jobs if "." not in job.id and _end_of(job)}
    judges: list[tuple[str, Judge]] = []
    for job in jobs:
        end = _end_of(job)
        if end and not ("." in job.id and job.id.partition(".")[0] in complete_jobs):  # a step repeats its job's state
            judges.append((end[1], _end_judge(job, end[2], end[3])))
    return tuple(judges) or ((("nccl.failures", _none_bad),) if jobs else ())


def _end_of(job: EndedJob) -> tuple[str, str, str, str] | None:
    return next((end for end in _ENDS if job.state.startswith(end[0])), None)


def _end_judge(job: EndedJob, words: str, fix: str) -> Judge:
    def judge_part(part: PastedValue) -> Iterator[Finding]:
        report = warned if job.state.startswith(("CANCELLED", "PREEMPTED")) else failed
        on = f" on {job.nodes}" if job.nodes else ""
        yield report(f"job {job.id}{on}: {words} ({job.state}, line {job.line})", subject=job.nodes or job.id,
                     found=f"{job.state} {job.exit_code}".strip(), expected="COMPLETED", evidence=part.evidence,
                     fix=fix.replace("JOB", job.id))  # fmt: skip

    return judge_part


def _none_bad(part: PastedValue) -> Iterator[Finding]:
    jobs: Sequence[EndedJob] = part.value
    if part.complete:
        yield passed(f"none of {len(jobs)} jobs and steps ended badly", evidence=part.evidence)


JUDGES: Judges = {"sinfo": _sinfo, "scontrol node": _nodes, "sacct": _jobs}
