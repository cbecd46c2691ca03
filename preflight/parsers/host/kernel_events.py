"""Kernel log events other than Xids, with their devices and severities."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from preflight._startup.lightclass import dataclass, replace
from preflight.parsers.host.kernel_event_kinds import CORRECTED, DISK, ERROR, FATAL, KINDS, NETWORK_FS, NOTE, Kind

#: Maximum characters of a line that are examined, and maximum lines of a hung task's call trace.
_LONGEST, _TRACE = 1000, 60


@dataclass(frozen=True)
class KernelEvent:
    """One event of the kernel log."""

    kind: str
    severity: str  # fatal, error, corrected, note
    device: str  # as in the line; empty if not named
    at_s: float | None  # on the log's clock; None if the line has no readable time
    text: str
    line: int  # line number in the log, or in the pasted text
    count: int = 1
    bus: str = ""  # PCI address or memory controller that the device belongs to
    detail: str = ""  # process, state or cause
    state: str = ""  # bank status of a machine check: 16 hexadecimal digits


def events(lines: Iterable[tuple[int, float | None, str]]) -> tuple[KernelEvent, ...]:
    """Find the events in lines, each given as number, time in seconds and text."""
    lines = list(lines)
    present = present_kinds([text for _, _, text in lines])
    if not present:
        return ()
    matched = [event for number, at_s, text in lines for event in of_line(text, at_s, number, present)]
    return tuple(_joined(matched, [text for _, _, text in lines]))


def present_kinds(texts: Sequence[str]) -> tuple[Kind, ...]:
    """Return the kinds that have a hint in any of the texts."""
    joined = "\n".join(texts)
    hints = {hint for kind in KINDS for hint in kind.hints}
    held = {hint for hint in hints if hint in joined}
    return tuple(kind for kind in KINDS if not held.isdisjoint(kind.hints))


def of_line(
    text: str, at_s: float | None = None, number: int = 0, kinds: Sequence[Kind] = KINDS
) -> Iterator[KernelEvent]:
    """Yield the events of one line, at most one of each kind."""
    text = text[:_LONGEST]
    done: set[str] = set()
    for kind in kinds:
        if kind.name in done or not any(hint in text for hint in kind.hints):
            continue
        if match := kind.pattern.search(text):
            done.add(kind.name)
            groups = {name: value or "" for name, value in match.groupdict().items()}
            yield _event(kind, groups, text, at_s, number)


def _event(kind: Kind, groups: dict[str, str], text: str, at_s: float | None, number: int) -> KernelEvent:
    who = groups.get("who", "")
    count = (
        int(groups["n"])
        if kind.name in ("memory-error", "fs-error-recorded", "cpu-throttled", "pcie-aer") and groups.get("n")
        else 1
    )
    event = KernelEvent(kind.name, kind.severity, groups.get("dev", ""), at_s, text, number, count,
                        groups.get("bus", ""), who)  # fmt: skip
    if kind.name == "pcie-aer" and who and kind.severity == NOTE:
        return replace(event, severity=_aer_severity(who))
    if kind.name == "machine-check" and "Bank" in text and len(who) == 16:
        return replace(event, severity=_bank_severity(who), detail=f"bank {groups['n']}", state=who)
    if kind.name == "machine-check" and (bank := re.search(r"Bank \d{1,3}: ([0-9a-f]{16})", who)):
        return replace(event, state=bank[1])
    if kind.name == _STATE:
        return replace(event, detail=f"bank {groups['n']}", state=who)
    if kind.name in ("hardware-error", *_PARTS):
        return replace(event, bus=groups["n"])
    if kind.name == "out-of-memory" and groups.get("n"):
        return replace(event, detail=groups["n"], state=who)
    return event


def _aer_severity(words: str) -> str:
    if words.lower().startswith("correct"):
        return CORRECTED
    return FATAL if "(Fatal)" in words else ERROR


def _bank_severity(status: str) -> str:
    """Return the severity encoded in an x86 bank's status.

    Bit 63 marks a valid status, bit 61 an uncorrected error, and bit 57 a corrupt processor context.
    """
    value = int(status, 16)
    if not value >> 63 & 1:
        return NOTE
    if not value >> 61 & 1:
        return CORRECTED
    return FATAL if value >> 57 & 1 else ERROR


#: Lines that name the kind and the device of a firmware error.
_PARTS = ("hardware-section", "hardware-device")

#: Kind of the line with the processor and bank status of a preceding machine check; maximum distance in lines.
_STATE, _STATE_LINES = "machine-check-state", 3

#: The firmware's severity of a hardware error -> severity of the event.
_SEVERITIES = {"corrected": CORRECTED, "recoverable": ERROR, "fatal": FATAL}

#: What a hung task waits for, and the functions in its call trace that indicate it.
_WAITS = (("network file system", NETWORK_FS), ("busy disk", DISK))
#: Constraints of a job; a process that is killed under them does not show that the node lacks memory.
_OF_JOB = ("CONSTRAINT_CPUSET", "CONSTRAINT_MEMORY_POLICY")


def reports_memory(check: KernelEvent) -> bool:
    """Return whether the bank status of a machine check indicates a memory error.

    The error codes are from the Intel SDM, volume 3B: a memory controller (0000 0000 1MMM CCCC), and poisoned memory
    read as data (0x0134) or as instructions (0x0150). On AMD, 0x011b is DRAM. Bit 12, which is ignored here, marks
    filtered corrected errors.
    """
    code = int(check.state, 16) & 0xEFFF if check.state else 0
    return 0x0080 <= code <= 0x00FF or code in (0x0134, 0x0150, 0x011B)


#: Words in the control group of a process in a container.
_CONTAINERS = ("kubepods", "docker", "containerd", "crio-", "libpod")


def of_container(killed: KernelEvent) -> bool:
    """Return whether a killed process ran in a container, where it has another PID."""
    return any(word in killed.text for word in _CONTAINERS)


def _joined(matched: Sequence[KernelEvent], texts: Sequence[str]) -> Iterator[KernelEvent]:
    """Join each event with its further lines: section, call trace or constraint."""
    sections = {event.bus: event.detail for event in matched if event.kind == "hardware-section"}
    devices = {event.bus: event.detail for event in matched if event.kind == "hardware-device"}
    hung = {event.text for event in matched if event.kind == "hung-task"}
    places = {text[:_LONGEST]: at for at, text in enumerate(texts) if text[:_LONGEST] in hung} if hung else {}
    constraint: KernelEvent | None = None  # line before the one that names the killed process
    for event in _with_states(matched):
        if event.kind in _PARTS:
            continue
        if event.kind == "out-of-memory":
            killed = "oom-kill:" not in event.text
            if constraint is not None:
                yield replace(constraint, device="", detail=constraint.state) if killed else _killed(constraint)
            bound = constraint is not None and constraint.state in _OF_JOB
            constraint = None if killed else event
            if killed:
                yield replace(event, severity=NOTE) if bound else event
            continue
        if event.kind == "hardware-error":
            severity, section = _SEVERITIES.get(event.detail, NOTE), sections.get(event.bus, "")
            kind = "pcie-aer" if "PCIe" in section else "memory-error" if "memory" in section else "machine-check"
            yield replace(
                event, kind=kind, severity=severity, device=devices.get(event.bus, ""), bus="", detail=section
            )
        elif event.kind == "hung-task":
            trace = [*_trace(texts, places.get(event.text))]
            waits = (what for what, functions in _WAITS if any(map(functions.search, trace)))
            yield replace(event, detail=next(waits, "busy disk" if "in I/O wait" in event.text else ""))
        else:
            yield event
    if constraint is not None:
        yield _killed(constraint)


def _killed(constraint: KernelEvent) -> KernelEvent:
    """Return the event of a process for which the log has no line of its own.

    Without a constraint, the node itself was out of memory.
    """
    return replace(constraint, severity=ERROR) if constraint.state == "CONSTRAINT_NONE" else constraint


def _with_states(matched: Sequence[KernelEvent]) -> list[KernelEvent]:
    """Join machine checks with the processor and status on a line below (AMD).

    Corrected errors get no processor, because any processor may log the errors of a memory module.
    """
    joined: list[KernelEvent] = []
    last = -1  # index of the machine check that still has no state
    for event in matched:
        if event.kind == _STATE:
            if last >= 0 and event.line - joined[last].line <= _STATE_LINES:
                cpu = event.device if joined[last].severity in (FATAL, ERROR) else ""
                joined[last] = replace(joined[last], device=cpu, detail=event.detail, state=event.state)
            last = -1
            continue
        if event.kind == "machine-check" and not event.state:
            last = len(joined)
        joined.append(event)
    return joined


def _trace(texts: Sequence[str], place: int | None) -> Iterator[str]:
    """Yield the lines after a hung task's line, up to the next hung task."""
    for line in texts[place + 1 : place + _TRACE] if place is not None else ():
        if "INFO: task " in line:
            return
        yield line[:_LONGEST]
