"""Checks of Xids and SXids in the kernel log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from preflight import facts
from preflight._startup.lightclass import dataclass
from preflight.checks.applicability import no_gpu, no_nvswitch
from preflight.checks.gpu.xid_judgement import BAD, judged
from preflight.checks.gpu.xid_policy import REPLACE, RESET, Act, XidPolicy
from preflight.checks.in_logs import IN_LOGS
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.node import NodeFacts
from preflight.model import ACTIONS, Finding, check, counted, failed, passed, unknown, verb, warned
from preflight.parsers.nvidia.xid_marks import is_cleared, no_row_left, own_words, required_recovery
from preflight.textprep.plain_text import ends_of

if TYPE_CHECKING:
    from preflight.facts.kernel_log import KernelLog
    from preflight.facts.xid import Events, XidEvent

CATALOGUE = "https://docs.nvidia.com/deploy/xid-errors/"

#: Messages about Xids that take the NVLinks of a GPU down: those of the links, and of a GPU off the bus.
LINKS_LOST = ("*: NVLink *", "*Xid 79: *")


@check(
    "xid.gpu",
    title="The kernel log has no Xid that requires taking a GPU out of service",
    fault="The kernel log has an Xid that requires taking a GPU out of service",
    impact="blocks-job",
    explains=(
        ("gpu.recovery-action", "part"),
        ("gpu.ecc-uncorrected", "part"),
        ("gpu.row-remap", "part"),
        ("gpu.retired-pages", "part"),
        ("nvlink.errors", "part"),
        ("counters.gpu-links", "part"),
        *(("gpu.driver", "unknown", f"*Xid {code}: *") for code in (79, 119, 120)),  # the driver waits for the GPU
        *IN_LOGS,
        *((effect, on, "*memory error*", "*ECC error*") for effect, on in IN_LOGS),
        *((effect, on, "*Xid 79: *", "*unknown error*") for effect, on in IN_LOGS),
        *((effect, on, "*: NVLink *", "*NVLink error*") for effect, on in IN_LOGS),
        *((effect, "part", words) for words in LINKS_LOST for effect in ("nvlink.links", "topology.nvlink")),
    ),
    source=f"{CATALOGUE} (catalogue and actions); judgement: table in checks/gpu/xid_policy.py",
    fix=RESET,
    action="reset",
    separate=True,
    reads=("nvml:gpus",),
    unless=(no_gpu,),
)
def gpu(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Judge the Xids of each GPU in the kernel log, and report the most severe one.

    ## Why it matters
    An uncorrectable error, a GPU off the bus or a dead GSP ends the job, and the next job on the same GPU as well.

    ## Verdicts
    The log is read since boot, or as far back as it reaches. Events from before the driver was loaded, or before it
    withdrew its recovery request (Xid 154), are ignored. Repetitions within a minute are counted once. Xid 74 fails
    when repeated or with an SXid; 144 to 146 and 149 (NVLink 5) fail if marked as Fatal; 154 depends on the action
    after "to". If the driver (565 and newer) requests no recovery now, faults that a reset fixes only warn. An unknown
    code warns and is quoted.

    The action is the first one in the catalogue, unless the driver requires another (154). The catalogue has no action
    for 167 to 169; preflight isolates the node.

    ## False alarms
    None known: dozens of 13, 31, 43 and 45 from a killed job are application errors, which never fail a node.
    """
    try:
        log = node.kernel_log
    except EvidenceError as error:
        yield _unread(error)
        return
    context = XidContext(
        (facts.kernel_log.DMESG,), f" ({log.since})", log.ago, lambda address: _recovery(node, address)
    )
    yield from judge_xids(facts.xid.events(log.lines), context)
    if log.cut:
        yield _cut(log)


def _nowhere(address: str) -> str | None:
    """Return None: the recovery that the driver requests is not known."""
    return None


@dataclass(frozen=True)
class XidContext:
    """Context of a kernel log that its lines do not show."""

    evidence: tuple[str, ...]
    since: str = ""  # period that the log covers, in brackets
    ago: Callable[[float], str] = lambda at_s: ""
    recovery: Callable[[str], str | None] = _nowhere  # recovery that the driver requests for a GPU now
    pasted: bool = False  # if true, application errors warn, and messages name the GPU


def judge_xids(found: Events, context: XidContext) -> Iterator[Finding]:
    """Judge each GPU's Xids by the policy table, and report the most severe one."""
    harmless: Counter[int] = Counter()
    reported = False
    for address in sorted({event.address for event in found.gpus}):
        mine = [event for event in found.gpus if event.address == address]
        policies = [(event, judged(event, found, context.recovery(address))) for event in mine]
        if (finding := _worst(policies, context, address)) is not None:
            reported = True
            yield finding
        else:
            harmless.update(event.code for event, _ in policies)
    if (harmless or not reported) and not found.unread:
        notes = ", ".join(
            f"{code}" + (f" x{number}" if number > 1 else "") for code, number in sorted(harmless.items())
        )
        yield passed(
            f"no Xid that requires action{context.since}"
            + (f"; application errors and notes: {notes}" if notes else ""),
            evidence=context.evidence,
        )
    yield from _unreadable(found.unread, "Xid", context)


def _unreadable(unread: Sequence[str], kind: str, context: XidContext) -> Iterator[Finding]:
    """Report lines with an incomplete code or PCI address."""
    if unread:
        lines, them = (f"{len(unread)} lines", "them") if len(unread) > 1 else ("a line", "it")
        yield unknown(
            f"{lines} of the kernel log {verb(len(unread), 'has')} an {kind} whose number or address is "
            "incomplete", found=unread[0][:200],
            evidence=context.evidence, fix=f"read {them} on the node: `dmesg | grep {kind}`",
            quote="\n".join(line[:300] for line in unread[:8]),
        )  # fmt: skip


def _cut(log: KernelLog) -> Finding:
    return unknown(
        f"the newer part of the kernel log is missing: the record {log.cut}", evidence=[facts.kernel_log.DMESG]
    )


def _unread(error: EvidenceError) -> Finding:
    denied = any(words in error.why for words in ("not permitted", "denied", "not accessible"))
    fix = (
        "run with --sudo, or as root: this kernel shows its log to root only (kernel.dmesg_restrict)" if denied else ""
    )
    return unknown(str(error), evidence=[error.key], fix=fix)


def _recovery(node: NodeFacts, address: str) -> str | None:
    """Return the recovery that the driver requests for a GPU now; None if unknown."""
    try:
        return next((gpu.recovery_action for gpu in node.gpu_health.gpus if gpu.address == address), None)
    except EvidenceError:
        return None


#: Fix for an error that an application causes.
APPLICATION_FIX = (
    "Check the application first (`compute-sanitizer`, its own log); if other programs fail on this GPU as well, "
    "drain it and run `dcgmi diag -r 3`."
)


#: Fix for a memory error whose row is remapped by the next reset of the GPU.
REMAP_FIX = (
    "Restart the application; drain the GPU and reset it with `nvidia-smi -r -i N`, which activates the remapped row."
)


#: Fix if the row remapper has no reserved row left for a bank.
NO_ROW_LEFT = (
    "Drain the node, reset the GPU or reboot, then have the GPU replaced (RMA): a memory bank has no reserved row left."
)


#: Codes of test messages, and of the driver's request to recover, which may be withdrawn.
_NO_EVENT = frozenset({106, 107, 152, 153, 154})


#: Number of equal Xids of one GPU in a text at which they need attention: a judgement call.
_REPEATED = 10


def _worst(policies: Sequence[tuple[XidEvent, XidPolicy]], context: XidContext, address: str) -> Finding | None:
    """Report the first event of the worst kind, and list the other codes.

    Return None if no event requires a finding.
    """
    bad = [pair for pair in policies if pair[1].act in BAD]
    worst, noted = bad or [pair for pair in policies if pair[1].act is Act.WARN], False
    if not worst and context.pasted:
        worst = [pair for pair in policies if pair[1].act is Act.APPLICATION or pair[0].code == 43]
        noted = not worst  # other checks judge the announced state on a node
        worst = worst or [pair for pair in policies if pair[1].act is Act.NOTE and pair[0].code not in _NO_EVENT]
    if not worst:
        return None
    event, policy = worst[0]
    others = Counter(other.code for other, _ in policies if other.code != event.code)
    times = sum(other.code == event.code for other, _ in policies)
    when = context.ago(event.at_s)
    then = ", ".join(f"{code} x{number}" if number > 1 else f"{code}" for code, number in others.items())
    if 154 in others and (required := _required(policies)):
        then += f"; the driver requires: {required}"
    named = f"{address or 'a GPU'}: " if context.pasted else ""
    words = own_words(event.text).strip(" .") if context.pasted else ""
    printed = f" (“{ends_of(words, 120, 80)}”)" if words and words.lower() not in policy.meaning.lower() else ""
    report = failed if bad else unknown if noted and times < _REPEATED else warned
    deciding = _deciding(policies, worst)
    fix, action = deciding.fix or (APPLICATION_FIX if policy.act is Act.APPLICATION else ""), deciding.action
    if event.code == 94 and any(other.code == 63 and "reset gpu" in other.text.lower() for other, _ in policies):
        fix, action = REMAP_FIX, "reset"
    remapping = [other for other, _ in bad if other.code == 64]
    if action in ("reset", "reboot") and any(no_row_left(other.text) for other in remapping):
        fix, action = NO_ROW_LEFT, "replace"
    elif remapping and fix == RESET:
        fix = REPLACE
    often = "" if times == 1 else ", twice" if times == 2 else f", {times} times"
    code = f"Xid {event.code}" if event.coded else f"Xid {event.code} (from a line without a code)"
    return report(
        f"{named}{code}: {policy.meaning}{printed}{often}"
        + (f", {when}" if when else "") + (f"; also Xid {then}" if then else "")
        + (f" (line {event.number})" if event.number else ""),
        subject=address, found=event.line[:200], expected=f"no such Xid{context.since}", evidence=context.evidence,
        fix=fix, action=action,
        quote="\n".join(one.line[:300] for one, _ in policies[:8]),
    )  # fmt: skip


def _required(policies: Sequence[tuple[XidEvent, XidPolicy]]) -> str | None:
    """Return the last recovery that the driver required; None if withdrawn."""
    last = [event.text for event, _ in policies if event.code == 154][-1]
    return None if is_cleared(last) else required_recovery(last)


def _deciding(policies: Sequence[tuple[XidEvent, XidPolicy]], worst: Sequence[tuple[XidEvent, XidPolicy]]) -> XidPolicy:
    """Return the policy that sets the action: the last Xid 154, else the strongest."""
    required = [policy for event, policy in policies if event.code == 154 and policy.act in BAD]
    return (
        required[-1]
        if required
        else max((policy for _, policy in worst), key=lambda policy: ACTIONS.index(policy.action))
    )


@check(
    "xid.nvswitch",
    title="The kernel log has no fatal NVSwitch error",
    fault="The kernel log has a fatal NVSwitch error",
    impact="blocks-job",
    explains=(("gpu.fabric-state", "node"), ("nvlink.links", "node"), ("topology.nvlink", "node")),
    source="https://docs.nvidia.com/deploy/xid-errors/ (SXid); NVIDIA Fabric Manager user guide, appendix D",
    fix="Drain the node, `systemctl restart nvidia-fabricmanager`, `nvidia-smi -r` (all GPUs); contact support "
    "if the error returns.",
    action="reset",
    unless=(no_gpu, no_nvswitch),
)
def nvswitch(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Look for fatal NVSwitch errors (SXids) in the kernel log.

    ## Why it matters
    A fatal switch error stops the NVLink traffic of every GPU behind it; the job hangs in a collective.

    ## Verdicts
    Only lines with the word Fatal fail. NVLink 5 systems (B200 and newer) have no SXids: their switches are not on the
    node's PCI bus, and the check does not apply.

    ## False alarms
    A switch that has been reset since: the line remains in the log until the driver is reloaded. Non-fatal errors after
    an application crash (12028) and corrected errors (11012) pass.
    """
    try:
        log = node.kernel_log
    except EvidenceError as error:
        yield _unread(error)
        return
    context = XidContext((facts.kernel_log.DMESG,), f" ({log.since})", log.ago)
    yield from judge_sxids(facts.xid.events(log.lines), context)
    if log.cut:
        yield _cut(log)


def judge_sxids(events: Events, context: XidContext) -> Iterator[Finding]:
    """Judge each NVSwitch's SXids by whether their lines contain the word Fatal."""
    found = events.switches
    for address in sorted({event.address for event in found if event.fatal}):
        mine = [event for event in found if event.address == address and event.fatal]
        when = context.ago(mine[0].at_s)
        named = f"{address or 'a switch'}: " if context.pasted else ""
        line = f" (line {mine[0].number})" if mine[0].number else ""
        yield failed(
            f"{named}SXid {mine[0].code}, fatal: {mine[0].text[:60]}" + (f", {when}" if when else "") + line,
            subject=address, found=mine[0].line[:200], expected=f"no fatal SXid{context.since}",
            evidence=context.evidence, quote="\n".join(event.line[:300] for event in mine[:8]),
        )  # fmt: skip
    fatal = {event.address for event in found if event.fatal}
    rest = [event for event in found if event.address not in fatal]
    if rest and context.pasted:
        codes = ", ".join(dict.fromkeys(f"{event.code} ({event.text[:60]})" for event in rest[:6]))
        yield unknown(
            f"{rest[0].address or 'a switch'}: {counted(len(rest), 'non-fatal SXid')}: {codes}",
            subject=rest[0].address, found=rest[0].line[:200], expected="none", evidence=context.evidence,
            fix="Most follow from a GPU or program error: look for an Xid before them, and run `nvidia-smi nvlink -e`.",
        )  # fmt: skip
    elif not fatal and not events.unread_switches:
        notes = f"; {counted(len(found), 'non-fatal SXid')}" if found else ""
        yield passed(f"no fatal SXid{context.since}{notes}", evidence=context.evidence)
    yield from _unreadable(events.unread_switches, "SXid", context)
