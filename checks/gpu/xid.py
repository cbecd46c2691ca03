"""What the kernel's log says of GPUs and NVSwitches: XIDs and SXIDs, judged by the policy table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from preflight import facts
from preflight.checks.applicability import no_gpu
from preflight.checks.gpu.xid_judgement import BAD, judged
from preflight.checks.gpu.xid_policy import RESET, Act, XidPolicy
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.expectations.catalogue import NVSWITCH_IDS
from preflight.facts.node import NodeFacts
from preflight.model import Finding, check, failed, passed, skipped, unknown, warned

if TYPE_CHECKING:
    from preflight.facts.kernel_log import KernelLog

CATALOGUE = "https://docs.nvidia.com/deploy/xid-errors/"


@check(
    "xid.gpu",
    title="The kernel's log holds no XID that takes a GPU out",
    source=f"{CATALOGUE} (catalogue and actions); judgement: table in checks/gpu/xid_policy.py",
    fix=RESET,
    reads=("nvml:gpus",),
    unless=(no_gpu,),
)
def gpu(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Read the XIDs of each GPU from the kernel's log and judge them by the policy table, root cause first.

    ## Why it matters
    An uncorrectable error, a GPU off the bus or a dead GSP takes the job with it, and the next job on the
    same GPU as well.

    ## Verdicts
    The log is read since boot, or as far as it reaches; what came before the driver was loaded, or before
    the driver withdrew its wish for a recovery (Xid 154), is history. Repetitions within a minute count
    once. Xid 74 fails when repeated or with an SXid, NVLink 5 units (144-150) by the word
    Fatal in the line, 154 by what stands after "to". Where the driver itself (565 and newer) asks for no
    recovery now, what a reset cures only warns. An unknown code warns and is quoted.

    ## False alarms
    Dozens of 13, 31, 43 and 45, left behind by one job that was killed: an application's own errors
    never fail a node.
    """
    try:
        log = node.kernel_log
    except EvidenceError as error:
        yield _unread(error)
        return
    found = facts.xid.events(log.lines)
    harmless: Counter[int] = Counter()
    reported = False
    for address in sorted({event.address for event in found.gpus}):
        mine = [event for event in found.gpus if event.address == address]
        policies = [(event, judged(event, found, _recovery(node, address))) for event in mine]
        if (finding := _worst(policies, log, address)) is not None:
            reported = True
            yield finding
        else:
            harmless.update(event.code for event, _ in policies)
    if (harmless or not reported) and not found.unread:
        notes = ", ".join(
            f"{code}" + (f" x{number}" if number > 1 else "") for code, number in sorted(harmless.items())
        )
        yield passed(
            f"no XID that asks for action ({log.since})" + (f"; of applications and notes: {notes}" if notes else ""),
            evidence=[facts.kernel_log.DMESG],
        )
    yield from _rest(log, found.unread, "Xid")


def _rest(log: KernelLog, unread: Sequence[str], kind: str) -> Iterator[Finding]:
    """Report what of the log is missing: lines whose number is not whole, and what was cut off."""
    if unread:
        lines = f"{len(unread)} lines" if len(unread) > 1 else "a line"
        yield unknown(
            f"{lines} with an {kind} whose number or address is not whole", found=unread[0][:200],
            evidence=[facts.kernel_log.DMESG], fix=f"read them on the node: `dmesg | grep {kind}`",
            quote="\n".join(line[:300] for line in unread[:8]),
        )  # fmt: skip
    if log.cut:
        yield unknown(f"the newer part of the kernel's log is missing: {log.cut}", evidence=[facts.kernel_log.DMESG])


def _unread(error: EvidenceError) -> Finding:
    denied = "not permitted" in error.why or "denied" in error.why
    fix = (
        "run with --sudo, or as root: this kernel shows its log to root only (kernel.dmesg_restrict)" if denied else ""
    )
    return unknown(f"could not tell: {error}", evidence=[error.key], fix=fix)


def _recovery(node: NodeFacts, address: str) -> str | None:
    """Return the recovery that the driver asks for now; None where nobody says."""
    try:
        return next((gpu.recovery_action for gpu in node.gpu_health.gpus if gpu.address == address), None)
    except EvidenceError:
        return None


def _worst(policies: Sequence[tuple[facts.xid.XidEvent, XidPolicy]], log: KernelLog, address: str) -> Finding | None:
    """Report the first event of the worst kind, and name what followed."""
    bad = [pair for pair in policies if pair[1].act in BAD]
    worst = bad or [pair for pair in policies if pair[1].act is Act.WARN]
    if not worst:
        return None
    event, policy = worst[0]
    others = [other for other, _ in policies if other is not event]
    when = log.ago(event.at_s)
    then = ", ".join(dict.fromkeys(str(other.code) for other in others))
    report = failed if bad else warned
    return report(
        f"Xid {event.code}: {policy.meaning}" + (f", {when}" if when else "") + (f"; also {then}" if then else ""),
        subject=address, found=event.line[:200], expected=f"no such XID ({log.since})",
        evidence=[facts.kernel_log.DMESG], fix=policy.fix, quote="\n".join(one.line[:300] for one, _ in policies[:8]),
    )  # fmt: skip


@check(
    "xid.nvswitch",
    title="The kernel's log holds no fatal NVSwitch error",
    source="https://docs.nvidia.com/deploy/xid-errors/ (SXid); NVIDIA Fabric Manager user guide, appendix D",
    fix="Drain the node, `systemctl restart nvidia-fabricmanager`, `nvidia-smi -r` (all GPUs); support if it returns.",
    unless=(no_gpu,),
)
def nvswitch(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Read the SXids of the NVSwitches from the kernel's log: fatal or not.

    ## Why it matters
    A fatal switch error stops the NVLink traffic of every GPU behind it; the job hangs in a collective.

    ## Verdicts
    Only the word Fatal in the line fails. NVLink 5 systems (B200 and newer) have no SXids: their
    switches are not on the node's PCI bus, and the check does not apply.

    ## False alarms
    non-fatal errors after an application crashed (12028), and those that were corrected (11012):
    they pass.
    """
    if not any(device.vendor == "10de" and device.device in NVSWITCH_IDS for device in node.pci):
        yield skipped("no NVSwitch on the PCI bus", evidence=["dir:/sys/bus/pci/devices"])
        return
    try:
        log = node.kernel_log
    except EvidenceError as error:
        yield _unread(error)
        return
    events = facts.xid.events(log.lines)
    found = events.switches
    for address in sorted({event.address for event in found if event.fatal}):
        mine = [event for event in found if event.address == address and event.fatal]
        when = log.ago(mine[0].at_s)
        yield failed(
            f"SXid {mine[0].code}, fatal: {mine[0].text[:60]}" + (f", {when}" if when else ""),
            subject=address, found=mine[0].line[:200], expected=f"no fatal SXid ({log.since})",
            evidence=[facts.kernel_log.DMESG],
            quote="\n".join(event.line[:300] for event in mine[:8]),
        )  # fmt: skip
    if not any(event.fatal for event in found) and not events.unread_switches:
        notes = f", {len(found)} that were not" if found else ""
        yield passed(f"no fatal SXid ({log.since}){notes}", evidence=[facts.kernel_log.DMESG])
    yield from _rest(log, events.unread_switches, "SXid")
