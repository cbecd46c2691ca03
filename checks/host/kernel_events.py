"""Checks of the kernel log besides Xids: hardware, disks, links, memory, hangs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from preflight import facts
from preflight._startup.lightclass import replace
from preflight.checks.host.kernel_flood import flood
from preflight.checks.host.kernel_judgement import Judged, Xid, judged
from preflight.checks.host.kernel_links import FLAP, LOST_WITH_LINK
from preflight.checks.host.kernel_problem import Problem, Window
from preflight.checks.host.kernel_storage import OF_SERVERS
from preflight.checks.in_logs import IN_LOGS
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.node import NodeFacts
from preflight.model import Finding, Status, check, failed, passed, skipped, unknown, warned
from preflight.parsers.host.kernel_events import events
from preflight.parsers.host.mounts import MOUNTS, parse
from preflight.parsers.host.raid_arrays import ARRAYS, RaidArray
from preflight.parsers.host.raid_arrays import parse as parse_arrays

if TYPE_CHECKING:
    from preflight.facts.kernel_log import KernelLog

#: Hours for which a past event is relevant, unless the cluster file sets another value.
HOURS, WHY_HOURS = 24.0, "a day: covers a job since its prolog, and is short enough to remember repairs"


@check(
    "kernel.events",
    title="The kernel log shows no fault of memory, processors, PCIe, disks or links",
    fault="The kernel log shows a hardware fault",
    impact="blocks-job",
    explains=(
        ("kernel.events", "names", "*uncorrected memory error*", "*machine check*which reports*"),
        *((effect, on, FLAP, words) for effect, on, _, words in LOST_WITH_LINK),
        ("trend.flaps", "part", FLAP),
        ("nccl.failures", "log", FLAP),
        ("kernel.events", "names", "*I/O errors*; a member of *", "*file system*"),
        ("node.expected", "node", "*uncorrected memory error*", "memory: *"),
        ("rdma.registered", "node", "the firmware of * stopped*"),
        ("kernel.events", "parts", "*lockup*", "*tasks that hung*"),
        ("job.errors", "log", "*ran out of memory*", "*a process was killed*"),
        ("job.errors", "log", "*ran out of memory*", "*a step was killed*"),
        ("job.errors", "log", "/*", "*a file system went read-only or has errors*"),
        ("host.mounts", "names", "NFS server *", "*does not answer*"),
        *((effect, on, "NFS server *", "*lost its server*") for effect, on in IN_LOGS),
    ),
    source="https://docs.kernel.org/admin-guide/ras.html, https://docs.kernel.org/PCI/pcieaer-howto.html; mcelog.conf "
    "(10 corrected errors a day); driver messages: parsers/host/kernel_event_kinds.py",
    fix="Read the lines with `dmesg -T`; drain the node before any hardware work.",
    answers=("AN-9",),
    reads=("cmd:dmesg --raw --level=notice,info", "file:/proc/mdstat"),
)
def kernel_events(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Look for errors of hardware, disks, links and memory in the kernel log.

    ## Why it matters
    The kernel logs the causes of later job failures: a failing memory module, a file system that became read-only, a
    flapping link. Without this check, the scheduler sends the next job to the same node.

    ## Verdicts
    The check fails for a panic or oops, an uncorrected machine check or memory error, and a fatal PCIe error. It also
    fails for an I/O error of a mounted disk, a file system that has errors or became read-only, a disabled NVMe
    controller, and NIC firmware that stopped.

    It warns for 10 corrected memory errors or machine checks in a day, for 50 corrected PCIe errors in an hour or more
    than the kernel logs at a time, and for non-fatal PCIe errors. A link that recovered three times, a card that left
    its slot, an access refused by the IOMMU, and a hot or faulty transceiver warn as well. So do I/O errors of a disk
    that may be unused, an NFS or Lustre server that has not recovered, hung tasks, lockups, an out-of-memory node, and
    a hardware error of the previous boot recorded by the firmware. Past events count for 24 hours
    (`class.X.thresholds.kernel_log_hours`); older events are only listed. Faults that persist until a repair or reboot
    count since boot: panic, uncorrected error, read-only file system, lost controller. If an Xid is close in time, the
    finding states which came first. xid.gpu reports GPU errors. If a log is too long, the part that was read is judged;
    the unread part is unknown, and gates unless a fault was already found. A single message that makes up half of such
    a log warns.

    ## False alarms
    A link that was unplugged three times today. These do not warn: links that change in the ten minutes after boot or
    that stay down; a single task that waits for NFS; tasks that waited once for a busy disk; a process killed at its
    job's memory limit, or in the NUMA nodes it is bound to; optical, virtual, loop and removable drives; and one or two
    NVMe commands without an interrupt.
    """
    try:
        log = node.kernel_log
    except EvidenceError as error:
        yield _unread(node, error)
        return
    notices, why = _notices(node)
    complete = facts.kernel_log.all_levels(log, notices) if notices else log
    hours = site.threshold("kernel_log_hours", HOURS, WHY_HOURS).value
    logged = events((number, line.at_s, line.text) for number, line in enumerate(complete.lines, 1))
    arrays = _arrays(node) if any(event.kind == "io-error" for event in logged) else ()
    window = Window(complete.now_s, hours, guest=node.in_virtual_machine, mounted=_mounted(node), arrays=arrays)
    judgement = judged(logged, window, _xids(log))
    evidence = [facts.kernel_log.DMESG, *([facts.kernel_log.NOTICES] if notices else [])]
    bad = [problem for problem in judgement.problems if problem.status is not Status.UNKNOWN]
    rest = words_of(judgement, hours)
    for problem in bad:
        yield of_problem(problem, window, f"none in the log ({complete.since})", evidence)
    none = "nothing else" if bad else "no fault"
    if complete.cut:
        yield from _cut(complete, none + rest, any(problem.status is Status.FAIL for problem in bad), evidence)
    elif rest or not bad:
        yield passed(f"{none} in the kernel log ({complete.since}){rest}", evidence=evidence)
    if why:
        yield why


def _cut(log: KernelLog, rest: str, judged_bad: bool, evidence: list[str]) -> Iterator[Finding]:
    """Report the missing part of a log that is too long, and a message that floods it.

    The missing part is gating only if no fault was found in the part that was read.
    """
    if storm := flood(log.lines):
        yield warned(
            f"one message floods the kernel log: {storm.lines} of {storm.of_lines} lines are {storm.text[:99]!r}",
            found=storm.text[:200], expected="a log that is short enough to read", evidence=evidence,
            quote=storm.text[:300], fix="Find the source of the message: it displaces other messages from the log.",
        )  # fmt: skip
    until = log.ago(log.lines[-1].at_s)
    since = f", from {until} on" if until else ""
    finding = unknown(
        f"the newer part of the kernel log is missing{since}, because the record {log.cut}; "
        f"the part that was read contains {rest}",
        evidence=evidence, fix="Read the missing part: `dmesg -T | tail -n 1000`.",
    )  # fmt: skip
    yield replace(finding, excused="the part that was read already has a fault") if judged_bad else finding


def _mounted(node: NodeFacts) -> tuple[tuple[str, str], ...]:
    """Return each mounted device and its place; empty if the table was not read."""
    try:
        table = node.parsed(MOUNTS, parse)
    except EvidenceError:
        return ()
    return tuple((mount.disk, mount.place) for mount in table if mount.disk)


def _arrays(node: NodeFacts) -> tuple[RaidArray, ...]:
    """Return the disk arrays; empty if the list was not read."""
    try:
        return node.parsed(ARRAYS, parse_arrays)
    except EvidenceError:
        return ()


def of_problem(problem: Problem, window: Window, expected: str, evidence: list[str], where: str = "") -> Finding:
    """Return the finding for a problem; ``where`` follows its message."""
    finding = failed(
        f"{problem.message}{window.when(problem.events)}{where}", subject=problem.subject,
        found=problem.events[0].text[:200], expected=expected, evidence=evidence, fix=problem.fix,
        quote="\n".join(event.text[:300] for event in problem.events[:8]),
    )  # fmt: skip
    return replace(
        finding, status=problem.status, parts=problem.parts,
        owner="network" if problem.kind == "nic-link-down" else "",
        action="fix-site" if problem.kind in OF_SERVERS else "",
    )  # fmt: skip


def words_of(judgement: Judged, hours: float) -> str:
    """Format notes and outdated events as the end of a sentence."""
    down = [f"{problem.message}" for problem in judgement.problems if problem.status is Status.UNKNOWN]
    noted = [*down, *judgement.notes]
    parts = [("noted", noted), (f"more than {hours:g} h ago", judgement.old)]
    return "".join(f"; {when}: {'; '.join(texts[:_LISTED])}{_more(texts)}" for when, texts in parts if texts)


#: Maximum number of notes in a sentence.
_LISTED = 6


def _more(texts: Sequence[str]) -> str:
    return f" and {len(texts) - _LISTED} more" if len(texts) > _LISTED else ""


def _xids(log: KernelLog) -> list[Xid]:
    if not any("NVRM: Xid" in line.text for line in log.lines):
        return []
    return [Xid(event.at_s, event.address, event.code) for event in facts.xid.events(log.lines).gpus]


def _notices(node: NodeFacts) -> tuple[KernelLog | None, Finding | None]:
    """Return the drivers' notices, or the reason why they are missing.

    Return neither if they were not collected.
    """
    key = facts.kernel_log.NOTICES
    if key not in node.evidence.records:
        return None, None
    try:
        return node.kernel_notices, None
    except EvidenceError as error:
        finding = unknown(f"links that went down could not be read: {error}", evidence=[key],
                       fix="let sudo run `dmesg --raw --level=notice,info` as well (`preflight probes`)")  # fmt: skip
        return None, replace(finding, excused="errors and warnings were read")


def _unread(node: NodeFacts, error: EvidenceError) -> Finding:
    """Return the finding for an unreadable log; on nodes with GPUs, it is gating."""
    denied = any(words in error.why for words in ("not permitted", "denied", "not accessible"))
    fix = (
        "run with --sudo, or as root: this kernel shows its log to root only (kernel.dmesg_restrict)" if denied else ""
    )
    if not node.gpus_on_bus and not node.rdma_nics_on_bus and not node.rdma_devices:
        return skipped(f"the node has neither a GPU nor an RDMA NIC, and the kernel log could not be read: {error}",
                       evidence=[error.key])  # fmt: skip
    finding = unknown(f"the kernel log could not be read: {error}", evidence=[error.key], fix=fix)
    return finding if node.gpus_on_bus else replace(finding, excused="a node without GPUs")
