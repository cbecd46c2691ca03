"""Judges of a kernel's log."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.checks.gpu.xid import XidContext, judge_sxids, judge_xids
from preflight.checks.host.kernel_events import of_problem, words_of
from preflight.checks.host.kernel_judgement import Xid, judged
from preflight.checks.host.kernel_problem import Window
from preflight.facts import xid
from preflight.model import Finding, failed, passed, warned
from preflight.parsers.host.kernel_events import KernelEvent
from preflight.parsers.host.kernel_text import KernelText
from preflight.recognition.judges import Judges, PastedValue

#: Times from here on are of a wall clock, not seconds since boot.
_WALL_S = 3e8


def _xids(part: PastedValue) -> Iterator[Finding]:
    log: KernelText = part.value
    found = xid.events(log.log_lines, pasted=True)
    if found.gpus or found.unread:
        yield from judge_xids(found, XidContext(part.evidence, pasted=True))
    if found.gpus:
        return
    for kind, report in (("gpu-fallen-off-bus", failed), ("gpu-init-failed", failed), ("gsp-rpc-errors", warned)):
        if events := [event for event in log.events if event.kind == kind]:
            more = f", {len(events)} such lines" if len(events) > 1 else ""
            yield report(f"line {events[0].line}: {events[0].text.strip()[:160]}{more}", found=kind,
                         evidence=part.evidence)  # fmt: skip


def _sxids(part: PastedValue) -> Iterator[Finding]:
    found = xid.events(part.value.log_lines, pasted=True)
    if found.switches or found.unread_switches:
        yield from judge_sxids(found, XidContext(part.evidence, pasted=True))


def _mismatch(part: PastedValue) -> Iterator[Finding]:
    for event in part.value.events:
        if event.kind == "driver-mismatch":
            yield failed(
                f"kernel module and libraries of the driver have different versions (line {event.line})",
                found=event.text.strip()[:200], expected="one version", evidence=part.evidence,
                fix="Reboot after the upgrade, or reload the modules; compare `cat /proc/driver/nvidia/version` with "
                "`nvidia-smi`.",
            )  # fmt: skip
            return


def _events(part: PastedValue) -> Iterator[Finding]:
    """Judge errors of hardware, disks, links and memory; how long ago a line was written is unknown, so each counts."""
    log: KernelText = part.value
    events = log.events
    window = Window(since_boot=all(event.at_s is None or event.at_s < _WALL_S for event in events))
    found = xid.events(log.log_lines, pasted=True)
    xids = [Xid(event.at_s, event.address, event.code) for event in found.gpus if event.at_s == event.at_s]
    judgement = judged(events, window, xids)
    for problem in judgement.problems:
        where = f" (line {problem.events[0].line})"
        yield of_problem(problem, window, "no such line", list(part.evidence), where)
    noted = list(_noted(events, part.evidence))
    yield from noted
    if judgement.notes and not judgement.problems and not noted and part.complete:
        yield passed(f"no fault of the machine in these lines{words_of(judgement, 0)}", evidence=part.evidence)


#: Kinds that other checks judge on a node, and their words.
_NOTED = {
    "nic-pcie-limited": ("a NIC has less PCIe bandwidth than it could use",
                         "Compare `lspci -vv` (LnkCap, LnkSta) of the NIC and of the port above it; reseat the card."),
    "slot-power": ("a NIC sees too little power at its slot", "Look at the slot's power limit and the riser's cables."),
}  # fmt: skip


def _noted(events: tuple[KernelEvent, ...], evidence: tuple[str, ...]) -> Iterator[Finding]:
    """Warn of what is a note on a node: other checks judge it there, or the job's owner does."""
    for event in events:
        if event.kind in _NOTED:
            words, fix = _NOTED[event.kind]
            yield warned(f"{words} (line {event.line})", subject=event.device, found=event.text.strip()[:200],
                         evidence=evidence, fix=fix)  # fmt: skip
        elif event.kind == "out-of-memory" and event.severity == "note" and event.device:
            yield warned(
                f"{event.device} (pid {event.detail}) was killed at its own job's memory limit (line {event.line})",
                subject=event.device, found=event.text.strip()[:200], expected="a job within its limit",
                evidence=evidence, fix="Ask for more memory (`--mem`, the pod's limit), or use fewer data-loader "
                "workers.",
            )  # fmt: skip


JUDGES: Judges = {
    "kernel log": (
        ("xid.gpu", _xids), ("xid.nvswitch", _sxids), ("versions.driver-files", _mismatch), ("kernel.events", _events),
    ),
}  # fmt: skip
