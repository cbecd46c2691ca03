"""Judges of kernel logs."""

from __future__ import annotations

import re
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from preflight._startup.lightclass import replace
from preflight.checks.gpu.xid import XidContext, judge_sxids, judge_xids
from preflight.checks.host.kernel_events import of_problem, words_of
from preflight.checks.host.kernel_judgement import AER_PER_HOUR, HOUR_S, Judged, Xid, counted, judged
from preflight.checks.host.kernel_links import FLAPS, repeated
from preflight.checks.host.kernel_problem import Window
from preflight.facts import xid
from preflight.model import Finding, failed, passed, unknown, warned
from preflight.parsers.host.kernel_events import KernelEvent
from preflight.parsers.host.kernel_text import KernelText, PastedLine
from preflight.recognition.judges import Judge, Judges, PastedValue
from preflight.textprep.plain_text import ends_of

#: Times from this value on are wall-clock times, not seconds since boot.
_WALL_S = 3e8


def _each_host(judge: Judge) -> Judge:
    """Return a judge that runs for each host's lines, and names it in the messages."""

    def judge_hosts(part: PastedValue) -> Iterator[Finding]:
        log: KernelText = part.value
        for host in log.writers:
            own = part if len(log.writers) == 1 else PastedValue(log.of_host(host), part.evidence, part.complete)
            for finding in judge(own):
                yield replace(finding, message=f"{host}: {finding.message}") if host else finding

    return judge_hosts


def _xids(part: PastedValue) -> Iterator[Finding]:
    log: KernelText = part.value
    logged = xid.events(log.log_lines, pasted=True)
    if logged.gpus or logged.unread:
        yield from judge_xids(logged, XidContext(part.evidence, pasted=True))
    for kind, report in _OF_DRIVER[3:] if logged.gpus else _OF_DRIVER:
        if events := [event for event in log.events if event.kind == kind]:
            more = f", {len(events)} such lines" if len(events) > 1 else ""
            yield report(f"line {events[0].line}: {events[0].text.strip()[:160]}{more}", found=kind,
                         evidence=part.evidence)  # fmt: skip


#: Other messages of the GPU driver; the first three are left out if the text has Xids, which report the same.
_OF_DRIVER = (("gpu-fallen-off-bus", failed), ("gsp-rpc-errors", warned), ("gpu-init-failed", failed),
              ("gpu-held", failed), ("gpu-window-invalid", failed), ("gpu-not-taken", failed),
              ("gpu-unpowered", failed))  # fmt: skip


def _sxids(part: PastedValue) -> Iterator[Finding]:
    logged = xid.events(part.value.log_lines, pasted=True)
    if logged.switches or logged.unread_switches:
        yield from judge_sxids(logged, XidContext(part.evidence, pasted=True))


#: Maximum number of lines of the driver's message about mismatched versions.
_MISMATCH = 4


def _mismatch(part: PastedValue) -> Iterator[Finding]:
    for event in part.value.events:
        if event.kind == "driver-mismatch":
            near = (line.message for line in part.value.lines if event.line <= line.number < event.line + _MISMATCH)
            yield failed(
                "the driver's kernel module and libraries have different versions: "
                f"“{ends_of(' '.join(near), 200, 160)}” (line {event.line})",
                found=event.text.strip()[:200], expected="one version", evidence=part.evidence,
                fix="Reboot after the upgrade, or reload the modules; compare `cat /proc/driver/nvidia/version` with "
                "`nvidia-smi`.",
            )  # fmt: skip
            return


def _events(part: PastedValue) -> Iterator[Finding]:
    """Judge errors of hardware, disks, links and memory.

    The age of a line is unknown, so every line counts.
    """
    log: KernelText = part.value
    events = log.events
    window = Window(since_boot=all(event.at_s is None or event.at_s < _WALL_S for event in events))
    logged = xid.events(log.log_lines, pasted=True)
    xids = [Xid(event.at_s, event.address, event.code) for event in logged.gpus if event.at_s == event.at_s]
    judgement = judged(events, window, xids)
    for problem in judgement.problems:
        where = f" (line {problem.events[0].line})"
        yield of_problem(problem, window, "no such line", list(part.evidence), where)
    noted = [
        *_noted(events, part.evidence),
        *_waited(events, judgement, part.evidence),
        *_corrected(events, judgement, part.evidence),
        *_unjudged(events, judgement, window, part.evidence),
    ]
    noted += _repeated_links(log.after_set_up(events), window, part.evidence)
    yield from noted
    strange = _strange(log, events)
    if strange:
        more = f" and {len(strange) - _QUOTED} more such lines" if len(strange) > _QUOTED else ""
        quoted = "; ".join(f"{line.message[:160]} (line {line.number})" for line in strange[:_QUOTED])
        yield unknown(
            f"no rule recognises this: {quoted}{more}",
            found=strange[0].message[:200],
            evidence=part.evidence,
            fix="Read the lines around it, and run `preflight check` on the node.",
        )
    elif log.lines and not (judgement.problems or noted or logged.gpus or logged.switches) and part.complete:
        yield passed(f"no machine fault in these {len(log.lines)} lines{words_of(judgement, 0)}",
                     evidence=part.evidence)  # fmt: skip


#: Maximum number of unknown lines that a finding quotes.
_QUOTED = 3


#: Distance from an event, in seconds or, for lines without a time, in lines, up to which a line belongs to it.
_SAME_S, _SAME_LINES = 2.0, 3


def _strange(log: KernelText, events: Sequence[KernelEvent]) -> list[PastedLine]:
    """Return the lines that may report an unknown fault.

    Lines that differ only in digits are listed once. Lines close to an event, such as a call trace or a device's
    response, belong to the event.
    """
    judged_lines = {code.line.number for code in (*log.xids, *log.sxids)}
    for event in events:
        judged_lines.update(range(event.line, event.line + (_DETAILS if event.kind in _IN_SEVERAL_LINES else 1)))
    near = {line.number + offset for line in log.lines if line.number in judged_lines and line.at_s is None
            for offset in range(-_SAME_LINES, _SAME_LINES + 1)}  # fmt: skip
    times = sorted(line.at_s for line in log.lines if line.number in judged_lines and line.at_s is not None)
    heads = any(event.kind == "iommu-fault" for event in events)
    strange = [line for line in log.lines if line.number not in judged_lines and _TROUBLE.search(line.message)
               and not _USUAL.search(line.message) and not (heads and _HEAD_OF_FAULT in line.message)
               and not (line.number in near if line.at_s is None else _is_near(line.at_s, times))]  # fmt: skip
    return list({line.message.translate(_NO_DIGITS): line for line in reversed(strange)}.values())[::-1]


def _is_near(at_s: float, times: Sequence[float]) -> bool:
    place = bisect(times, at_s)
    return any(abs(time - at_s) <= _SAME_S for time in times[max(0, place - 1) : place + 1])


_NO_DIGITS = str.maketrans("", "", "0123456789")


def _corrected(events: tuple[KernelEvent, ...], judgement: Judged, evidence: tuple[str, ...]) -> Iterator[Finding]:
    """Report corrected errors that are too few to be a fault."""
    covered = {problem.kind for problem in judgement.problems}  # a root port's lines belong to the device's
    few = [event for event in events if event.severity == "corrected" and event.kind not in covered]
    if few:
        same: dict[tuple[str, str], list[KernelEvent]] = defaultdict(list)
        for event in few:
            same[event.kind, event.device].append(event)
        counts: Counter[str] = Counter()
        rate = max((_per_hour(counted(own)) for (kind, _), own in same.items() if kind == "pcie-aer"), default=0)
        for (kind, _), own in same.items():
            counts[kind] += len(counted(own) if kind == "pcie-aer" else own)
        listed = ", ".join(f"{kind} {number}" for kind, number in counts.items())
        devices = ", ".join(list(dict.fromkeys(event.device for event in few if event.device))[:6])
        of = f" of {devices}" if devices else ""
        span = Window().span(few) or "; the time span is unknown"
        if rate > AER_PER_HOUR:
            span += f", but {rate:,.0f} an hour if they go on: {AER_PER_HOUR} are a fault"
        total = counts.total()
        yield unknown(f"{total} corrected hardware error{'s' if total > 1 else ''} ({listed}{of}; the first on line "
                      f"{few[0].line}): "
                      f"too few for a fault{span}", subject=few[0].device,
                      found=few[0].text.strip()[:200], expected="none", evidence=evidence,
                      fix="Count them over a day: `ras-mc-ctl --errors`, `journalctl -k`.")  # fmt: skip


#: Minimum number of errors that have a rate: fewer may be one incident.
_RATED = 5


def _per_hour(events: Sequence[KernelEvent]) -> float:
    """Return the errors per hour after boot; 0 if unknown."""
    times = [event.at_s for event in events if event.at_s is not None and not Window().booting(event)]
    span = max(times) - min(times) if len(times) >= _RATED else 0
    return (len(times) - 1) * HOUR_S / span if span >= 1 else 0


def _unjudged(
    events: tuple[KernelEvent, ...], judgement: Judged, window: Window, evidence: tuple[str, ...]
) -> Iterator[Finding]:
    """Report errors that no rule covers, such as those of device setup at boot."""
    spoken = {problem.kind for problem in judgement.problems} | {kind for kind, _ in _OF_DRIVER} | {"driver-mismatch"}
    kinds: dict[str, list[KernelEvent]] = defaultdict(list)
    for event in events:
        if event.severity in ("fatal", "error") and event.kind not in spoken:
            kinds[event.kind].append(event)
    for kind, own in kinds.items():
        alone = judged(own, window)
        if alone.problems or alone.notes:
            continue
        device = own[0].bus or own[0].device
        of = f" of {device}" if device else ""
        early = " during boot, when drivers set up their devices" if all(map(window.booting, own)) else ""
        more = f", {len(own)} such lines" if len(own) > 1 else ""
        yield unknown(f"an error of kind {kind}{of}{early}: {own[0].text.strip()[:200]} (line {own[0].line}{more})",
                      subject=device, found=own[0].text.strip()[:200], expected="none", evidence=evidence,
                      fix="Check whether it recurs while jobs run: `journalctl -k`.")  # fmt: skip


def _repeated_links(events: Sequence[KernelEvent], window: Window, evidence: tuple[str, ...]) -> Iterator[Finding]:
    """Report links that recovered fewer than FLAPS times.

    One recovery is *unknown*, because the text may be an excerpt. Two are a warning, because a job's packets time out
    while a link is down.
    """
    kinds = {kind: [event for event in events if event.kind == kind] for kind in ("nic-link-down", "nic-link-up")}
    for shown, downs in repeated(kinds, window, 1):
        report = warned if len(downs) > 1 else unknown
        count = f"{len(downs)} times" if len(downs) > 1 else "once"
        first = "the first on " if len(downs) > 1 else ""
        yield report(f"the link of {shown} went down and came back {count} ({first}line "
                      f"{downs[0].line}): {FLAPS} times a day are a fault, and this text may be incomplete",
                      subject=shown, found=count, expected=f"fewer than {FLAPS} times in a day",
                      evidence=evidence,
                      fix="Count them over a day: `journalctl -k | grep -i 'link down'`.")  # fmt: skip


def _waited(events: tuple[KernelEvent, ...], judgement: Judged, evidence: tuple[str, ...]) -> Iterator[Finding]:
    """Report hung tasks, unless a problem already reports them."""
    named = any(problem.kind == "hung-task" for problem in judgement.problems)
    for event in () if named else [event for event in events if event.kind == "hung-task"][:_QUOTED]:
        stalled = any(problem.kind in ("nfs-stalled", "lustre-lost") for problem in judgement.problems)
        report = warned if stalled and "file system" in (event.detail or "") else unknown
        yield report(f"task {event.device} waited for minutes for a {event.detail or 'lock or device'} (line "
                      f"{event.line}): a fault if it persists", subject=event.device, found=event.text.strip()[:200],
                      expected="none", evidence=evidence,
                      fix="`ps -eo pid,state,wchan:30,comm | grep ' D '`; find out what it waits for.")  # fmt: skip


#: The line that precedes each fault of an IOMMU.
_HEAD_OF_FAULT = "DRHD: handling fault"

#: Kinds of events that continue on following lines, and the maximum number of their lines.
_IN_SEVERAL_LINES = frozenset(
    {"pcie-aer", "machine-check", "memory-error", "hardware-error", "hardware-section", "hardware-device"}
)
_DETAILS = 16

#: Words of a line that may report an unknown fault.
_TROUBLE = re.compile(
    r"(?i)\b(?:error|errors|fail(?:ed|ure|s|ing)?|fault|timed? ?out|bug:|warning|call trace|lost|corrupt\w*|reset"
    r"|rejected|refused|unreachable|not responding|suspended|unstable|overflow\w*|nobody cared|table full|dropping"
    r"|offline|dead|hung|stuck|unable|cannot|can't|mismatch|abort\w*|critical|degraded|emergency|expired|throttl\w+"
    r"|exceed\w*|invalid|missing)\b"
)
#: Lines with such a word that healthy machines print at boot: error handlers, and firmware bugs.
_USUAL = re.compile(
    r"(?i)ACPI (?:BIOS )?(?:Error|Warning)|ACPI: .{0,200}(?:_OSC|_PRT|disabled)|errors?=(?:remount|continue|panic)"
    r"|\b(?:HEST|GHES|ERST|BERT|APEI)\b|Correctable Errors collector|Hardware error source"
    r"|has been corrected by h/w|error status/mask="
    r"|EDAC .{0,60}(?:Giving out|Ver:)"
    r"|module verification failed|taints? kernel|Problem loading (?:in-kernel )?X\.?509|integrity: |SGX disabled|TPM"
    r"|AER: enabled|(?:enabled|registered|initiali[sz]ed|supported|Found).{0,60}\b(?:error|reset|fault)\b"
    r"|\b(?:error|reset|fault)\w*\b.{0,40}(?:enabled|registered|initiali[sz]ed|supported)|firmware: failed to load"
    r"|Direct firmware load for|perf: interrupt took too long|reset (?:high|full|super)[\w-]{0,20}speed USB|hung_task"
    r"|can't size|soft offline|invalid context, skipping|HANDLING MCE MEMORY"
    r"|\bBAR \d+: (?:assigned|.{0,24}\[io )|already (?:in use|registered|present)|Firmware Bug"
    r"|invalid BAR|DENIED"
    r"|(?:will not|won't|not) (?:be )?(?:handled|supported)|unable to (?:read|locate) (?:edid|vbios)"
    r"|Fast TSC calibration|debugfs: .{0,100}already present|usb \S{1,16}: .{0,80}descriptor|No Caching mode page"
)


#: Kinds of events that other checks judge on a node -> message and fix.
_NOTED = {
    "nic-pcie-limited": (
        "a NIC has less PCIe bandwidth than it could use",
        "Compare `lspci -vv` (LnkCap, LnkSta) of the NIC and of the port above it; reseat the card.",
    ),
    "slot-power": ("a NIC gets too little power from its slot", "Check the slot's power limit and the riser's cables."),
    "segfault": (
        "a program crashed",
        "Look for the location in its core dump (`coredumpctl`) or its log. The usual cause is a "
        "library from another build, rarely bad memory.",
    ),
}


#: Number of throttling events at which cooling, rather than a load peak, is the cause: a judgement call. Fewer are
#: unknown: the text may be an excerpt.
_HOT = 100


#: Link widths in a kernel message: current and supported.
_WIDTHS = re.compile(r"x(\d{1,2})(?= link|$)")


def _noted(events: tuple[KernelEvent, ...], evidence: tuple[str, ...]) -> Iterator[Finding]:
    """Report events that would be only notes on a node.

    There, other checks judge them, or they concern only the job's owner.
    """
    if hot := [event for event in events if event.kind == "cpu-throttled"]:
        hottest = max(hot, key=lambda event: event.count)
        report = warned if hottest.count >= _HOT else unknown
        processors = dict.fromkeys(event.device for event in hot)
        shown = f"{', '.join(list(processors)[:8])}{', …' if len(processors) > 8 else ''}"
        shown_count = f"{hottest.count} event{'s' * (hottest.count != 1)}"
        yield report(f"CPU {shown}: slowed down by heat, up to {shown_count} (line {hottest.line})",
                     subject=f"CPU {hottest.device}", found=hottest.text.strip()[:200], expected="no throttling",
                     evidence=evidence,
                     fix="Check the airflow, fans and heat sinks: `ipmitool sensor`.")  # fmt: skip
    narrow = set[int]()
    for event in (event for event in events if event.kind == "pcie-narrow"):
        now, most = (int(width) for width in _WIDTHS.findall(event.detail))
        if now < most:
            narrow.add(event.line)
            yield warned(f"{event.device}: its PCIe link has x{now} of x{most} lanes (line {event.line})",
                         subject=event.device, found=f"x{now}", expected=f"x{most}", evidence=evidence,
                         fix="`lspci -vv` (LnkCap, LnkSta) of it and of the port above it; reseat the"
                         " card.")  # fmt: skip
    for event in events:
        if event.kind == "nic-pcie-limited" and event.line in narrow:
            continue  # the same message
        if event.kind in _NOTED:
            words, fix = _NOTED[event.kind]
            printed = f": {event.device}: {event.detail.strip()[:160]}" if event.detail else ""
            yield warned(f"{words}{printed} (line {event.line})", subject=event.device, found=event.text.strip()[:200],
                         evidence=evidence, fix=fix)  # fmt: skip
        elif event.kind == "out-of-memory" and event.severity == "note" and event.device:
            yield warned(
                f"{event.device} (pid {event.detail}) was killed at its job's memory limit (line {event.line})",
                subject=event.device, found=event.text.strip()[:200], expected="a job within its limit",
                evidence=evidence, fix="Request more memory (`--mem`, the pod's limit), or use fewer data-loader "
                "workers.",
            )  # fmt: skip


JUDGES: Judges = {
    "kernel log": (
        ("xid.gpu", _each_host(_xids)), ("xid.nvswitch", _each_host(_sxids)),
        ("versions.driver-files", _each_host(_mismatch)), ("kernel.events", _each_host(_events)),
    ),
}  # fmt: skip
