"""Checks of the kernel log besides Xids: hardware, disks, links, memory, hangs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from preflight import facts
from preflight._startup.lightclass import replace
from preflight.checks.host.kernel_flood import flood
from preflight.checks.host.kernel_judgement import Judged, Xid, judged
from preflight.checks.host.kernel_problem import Problem, Window
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

#: Hours for which an event that is over counts, where the cluster file has no other.
HOURS, WHY_HOURS = 24.0, "a day: covers a job since its prolog, and is short enough that a repair is remembered"


@check(
    "kernel.events",
    title="The kernel's log shows no fault of memory, processors, PCIe, disks or links",
    fault="The kernel's log shows a hardware fault",
    impact="blocks-job",
    source="https://docs.kernel.org/admin-guide/ras.html, https://docs.kernel.org/PCI/pcieaer-howto.html; mcelog.conf "
    "(10 corrected errors a day); the words of the drivers: parsers/host/kernel_event_kinds.py",
    fix="Read the lines with `dmesg -T`; drain the node before its hardware is touched.",
    answers=("AN-9",),
    reads=("cmd:dmesg --raw --level=notice,info", "file:/proc/mdstat"),
)
def kernel_events(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Read errors of hardware, disks, links and memory from the kernel's log.

    ## Why it matters
    The kernel reports first what a job dies of an hour later: a memory module that fails, a file system that went
    read-only, a link that comes and goes. A scheduler that does not read it sends the next job there.

    ## Verdicts
    It fails for a panic or oops, an uncorrected machine check or memory error, a fatal PCIe error, an I/O error of a
    disk that is mounted, a file system that errs or went read-only, an NVMe controller that was given up, and
    firmware of a NIC that stopped. It warns for 10 corrected memory errors or machine checks in a day, 50 corrected
    PCIe errors in an hour, PCIe errors that were not fatal, a link that came back three times, a card that left its
    slot, an access that the IOMMU refused, a hot or faulty module, I/O errors of a disk that may not be in use, an
    NFS or Lustre server that has not come back, tasks that hung, lockups, memory of the node that ran out, and a
    hardware error of the previous boot that the firmware recorded. What is over counts for 24 hours
    (`class.X.thresholds.kernel_log_hours`); older events are listed only. What a repair or a reboot ends counts since
    boot: panic, uncorrected error, read-only file system, lost controller. Where an Xid is near, the order is given.
    GPUs are the matter of xid.gpu. Of a log that is too long, what was read is judged; the rest is unknown, and gates
    unless something has failed already. One message that makes up half of such a log warns.

    ## False alarms
    A link that was unplugged by hand three times today.
    Left out: links in the ten minutes after boot or that stay down; one task that waits for NFS; tasks that waited for
    a busy disk and were not reported again; a process killed at its own job's memory limit, or in the NUMA nodes that
    it is bound to; optical, virtual, loop and removable drives; an NVMe command or two without an interrupt.
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
        yield passed(f"{none} in the kernel's log ({complete.since}){rest}", evidence=evidence)
    if why:
        yield why


def _cut(log: KernelLog, rest: str, judged_bad: bool, evidence: list[str]) -> Iterator[Finding]:
    """Report the missing part of a log that is too long, and what floods it.

    What was read is judged; the missing part decides only where nothing has failed yet.
    """
    if storm := flood(log.lines):
        yield warned(
            f"one message floods the kernel's log: {storm.lines} of {storm.of_lines} lines are {storm.text[:99]!r}",
            found=storm.text[:200], expected="a log that is short enough to be read", evidence=evidence,
            quote=storm.text[:300], fix="Find what writes it: a flood pushes every other message out of the log.",
        )  # fmt: skip
    until = log.ago(log.lines[-1].at_s)
    since = f", all since {until}" if until else ""
    finding = unknown(
        f"the newer part of the kernel's log is missing{since} ({log.cut}); in the part that was read: {rest}",
        evidence=evidence, fix="Read the rest: `dmesg -T | tail -n 1000`.",
    )  # fmt: skip
    yield replace(finding, excused="the part that was read has a fault already") if judged_bad else finding


def _mounted(node: NodeFacts) -> frozenset[str]:
    """Return the devices in the table of mounts; empty where it was not read."""
    try:
        table = node.parsed(MOUNTS, parse)
    except EvidenceError:
        return frozenset()
    return frozenset(mount.disk for mount in table if mount.disk)


def _arrays(node: NodeFacts) -> tuple[RaidArray, ...]:
    """Return the arrays of disks; none where the list was not read or shows none."""
    try:
        return node.parsed(ARRAYS, parse_arrays)
    except EvidenceError:
        return ()


def of_problem(problem: Problem, window: Window, expected: str, evidence: list[str], where: str = "") -> Finding:
    """Return the finding of a problem; ``where`` follows its message."""
    finding = failed(
        f"{problem.message}{window.when(problem.events)}{where}", subject=problem.subject,
        found=problem.events[0].text[:200], expected=expected, evidence=evidence, fix=problem.fix,
        quote="\n".join(event.text[:300] for event in problem.events[:8]),
    )  # fmt: skip
    return replace(finding, status=problem.status)


def words_of(judgement: Judged, hours: float) -> str:
    """Return notes, and events that are too old to count, as the end of a sentence."""
    down = [f"{problem.message}" for problem in judgement.problems if problem.status is Status.UNKNOWN]
    noted = [*down, *judgement.notes]
    parts = [("noted", noted), (f"more than {hours:g} h ago", judgement.old)]
    return "".join(f"; {when}: {'; '.join(texts[:_LISTED])}{_more(texts)}" for when, texts in parts if texts)


#: Notes that a sentence lists.
_LISTED = 6


def _more(texts: Sequence[str]) -> str:
    return f" and {len(texts) - _LISTED} more" if len(texts) > _LISTED else ""


def _xids(log: KernelLog) -> list[Xid]:
    if not any("NVRM: Xid" in line.text for line in log.lines):
        return []
    return [Xid(event.at_s, event.address, event.code) for event in facts.xid.events(log.lines).gpus]


def _notices(node: NodeFacts) -> tuple[KernelLog | None, Finding | None]:
    """Return the drivers' notices, or the reason why not.

    Neither where they were not collected.
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
    """Return that the log is unreadable; it gates on nodes with GPUs, as Xids do."""
    denied = "not permitted" in error.why or "denied" in error.why
    fix = (
        "run with --sudo, or as root: this kernel shows its log to root only (kernel.dmesg_restrict)" if denied else ""
    )
    if not node.gpus_on_bus and not node.rdma_nics_on_bus and not node.rdma_devices:
        return skipped(f"no GPU, no RDMA NIC, and the kernel's log could not be read: {error}", evidence=[error.key])
    finding = unknown(f"the kernel's log could not be read: {error}", evidence=[error.key], fix=fix)
    return finding if node.gpus_on_bus else replace(finding, excused="a node without GPUs")
