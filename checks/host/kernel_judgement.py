"""Rules for kernel log events, from a node or a pasted log.

Faults that ended count for some hours; faults that need a repair or a reboot count since boot.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from preflight._startup.lightclass import dataclass, replace
from preflight.checks.host import kernel_devices, kernel_links, kernel_storage
from preflight.checks.host.kernel_problem import Problem, Window, count, devices_of, listed
from preflight.model import Status, processes, times
from preflight.parsers.host.kernel_events import KernelEvent, of_container, reports_memory

#: Corrected errors of one memory module within a day: mcelog.conf, ce-error-threshold = 10 / 24h. Also applied to the
#: machine checks of one CPU.
CORRECTED_PER_DAY, DAY_S = 10, 86_400
#: Corrected PCIe errors of one device within an hour. A judgement call: the link retries each, and a healthy one has a
#: few a day.
AER_PER_HOUR, HOUR_S = 50, 3600
#: Seconds between a machine check and the memory controller driver's report of the same error. A judgement call.
SAME_S = 5
#: Seconds around an event in which a GPU's Xid may be its effect or its cause.
NEAR_S = 60

#: Kinds that persist until a repair or a reboot.
_LASTING = frozenset({"panic", "oops", "memory-error", "machine-check", "previous-boot", "fs-read-only", "fs-writable",
                      "fs-mounted", "nvme-lost", "disk-removable", "fs-error-recorded", "array-degraded",
                      "array-failed", "array-back"})  # fmt: skip
#: Kinds of GPU events, which are judged with the Xids.
_OF_GPUS = frozenset({"gpu-fallen-off-bus", "gpu-init-failed", "driver-mismatch", "gsp-rpc-errors",
                      "gpu-not-taken", "gpu-unpowered", "gpu-held",
 "gpu-window-invalid"})  # fmt: skip


@dataclass(frozen=True)
class Judged:
    """Problems, notes and outdated events found in one kernel log."""

    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    old: tuple[str, ...]


@dataclass(frozen=True)
class Xid:
    """An Xid that may be related to events close in time."""

    at_s: float
    address: str
    code: int


def judged(events: Sequence[KernelEvent], window: Window, xids: Sequence[Xid] = ()) -> Judged:
    """Judge the events of one log."""
    events = [event for event in events if event.kind not in _OF_GPUS]
    lasting = [event for event in events if event.kind in _LASTING]
    recent = [event for event in events if event.kind not in _LASTING and window.recent(event)]
    past = [event for event in events if event.kind not in _LASTING and not window.recent(event)]
    problems, notes = _all(lasting, recent, window)
    order = {Status.FAIL: 0, Status.WARN: 1, Status.UNKNOWN: 2}
    problems = [_placed(problem, xids) for problem in problems]
    old, _ = _all([], past, replace(window, now_s=None)) if past else ([], [])
    return Judged(tuple(sorted(problems, key=lambda problem: order[problem.status])), tuple(notes),
                  tuple(f"{problem.message}{window.when(problem.events)}" for problem in old))  # fmt: skip


def _all(
    lasting: Sequence[KernelEvent], recent: Sequence[KernelEvent], window: Window
) -> tuple[list[Problem], list[str]]:
    problems: list[Problem] = []
    notes: list[str] = []
    by_kind: dict[str, list[KernelEvent]] = defaultdict(list)
    for event in (*lasting, *recent):
        by_kind[event.kind].append(event)
    for rule in (_panics, _machine_checks, _memory, _aer, _iommu, _slots, _nics, _stalls, _out_of_memory):
        for matches in rule(by_kind, window):
            problems.append(matches) if isinstance(matches, Problem) else notes.append(matches)
    for matches in (*kernel_links.flaps(by_kind, window), *kernel_storage.problems(by_kind, window)):
        problems.append(matches) if isinstance(matches, Problem) else notes.append(matches)
    problems += kernel_devices.problems(by_kind, window)
    return problems, notes


Kinds = Mapping[str, Sequence[KernelEvent]]


def _panics(kinds: Kinds, window: Window) -> Iterator[Problem | str]:
    for kind, words in (("panic", "kernel panic"), ("oops", "the kernel had a fault (oops)")):
        if matches := kinds.get(kind):
            what = matches[0].detail or matches[0].text
            yield Problem(
                Status.FAIL,
                f"{words}: {what[:120].strip()}",
                "",
                kind,
                tuple(matches),
                "Reboot the node; keep the log (kdump, pstore, the BMC's console) for the vendor.",
            )


def _machine_checks(kinds: Kinds, window: Window) -> Iterator[Problem | str]:
    matches = kinds.get("machine-check", ())
    bad = [event for event in matches if event.severity in ("fatal", "error")]
    modules = [event for event in kinds.get("memory-error", ()) if event.severity in ("fatal", "error")]
    for cpu, events in devices_of(bad):
        where = f" on CPU {cpu}" if cpu else ""
        module = _module_of(events, modules)
        where += f", which reports the memory error on {module}" if module else ""
        yield Problem(Status.FAIL, f"{count(events, 'uncorrected machine check')}{where}",
                      f"CPU {cpu}" if cpu else "", "machine-check", events, _REPLACE_CPU)  # fmt: skip
    for cpu, events in devices_of(event for event in matches if event.severity == "corrected"):
        where = f" on CPU {cpu}" if cpu else ""
        if most_within(events, DAY_S) >= CORRECTED_PER_DAY:
            yield Problem(Status.WARN, f"{count(events, 'corrected machine check')}{where}{window.span(events)}",
                          f"CPU {cpu}" if cpu else "", "machine-check", events, _REPLACE_CPU)  # fmt: skip
        else:
            yield f"{count(events, 'corrected machine check')}{where}"
    if storms := tuple(kinds.get("machine-check-storm", ())):
        yield Problem(Status.WARN, "a storm of corrected machine checks: the kernel stopped logging each one", "",
                      "machine-check", storms, _REPLACE_CPU)  # fmt: skip
    vague = tuple(event for event in matches if event.severity == "note" and "events logged" in event.text)
    if len(vague) >= CORRECTED_PER_DAY:
        yield Problem(Status.WARN, f"machine checks were logged {times(len(vague))}{window.span(vague)}", "",
                      "machine-check", vague, _REPLACE_CPU)  # fmt: skip
    elif vague and not bad:
        yield f"machine checks were logged {times(len(vague))} without a severity"
    if earlier := tuple(kinds.get("previous-boot", ())):
        yield Problem(Status.WARN, "the firmware recorded a hardware error of the previous boot", "",
                      "previous-boot", earlier, _REPLACE_CPU)  # fmt: skip


def _module_of(checks: Sequence[KernelEvent], errors: Sequence[KernelEvent]) -> str:
    """Return the memory module whose error all machine checks report; empty if none.

    Each machine check must report memory, and be logged at about the time of an error of that module.
    """
    devices = set()
    for check in checks:
        if not reports_memory(check) or check.at_s is None:
            return ""
        devices.add(next((error.device for error in errors
                          if error.at_s is not None and abs(error.at_s - check.at_s) <= SAME_S), ""))  # fmt: skip
    return devices.pop() if len(devices) == 1 else ""


_REPLACE_CPU = (
    "Drain the node; `ras-mc-ctl --errors`, `mcelog` and the BMC's event log name the faulty part; replace it."
)


def _is_repeated(event: KernelEvent, located: Sequence[float]) -> bool:
    """Return whether an event without a module repeats one that names the module."""
    return not event.device and event.at_s is not None and any(abs(event.at_s - at_s) <= SAME_S for at_s in located)


def _memory(kinds: Kinds, window: Window) -> Iterator[Problem | str]:
    matches = kinds.get("memory-error", ())
    uncorrected = [event for event in matches if event.severity in ("fatal", "error")]
    located = [event.at_s for event in uncorrected if event.device and event.at_s is not None]
    for device, events in devices_of(event for event in uncorrected if not _is_repeated(event, located)):
        where = f" on {device}" if device else ""
        number = sum(event.count for event in events)
        noun = "uncorrected memory error" if number == 1 else "uncorrected memory errors"
        yield Problem(Status.FAIL, f"{number} {noun}{where}", device, "memory-error", events, _REPLACE_DIMM)
    for device, events in devices_of(event for event in matches if event.severity == "corrected"):
        where = f" on {device}" if device else ""
        number = sum(event.count for event in events)
        if window.aged(events) and most_within(events, DAY_S) >= CORRECTED_PER_DAY:
            yield Problem(Status.WARN, f"{number} corrected memory errors{where}{window.span(events)}", device,
                          "memory-error", events, _REPLACE_DIMM)  # fmt: skip
        else:
            yield f"{number} corrected memory error{'s' if number > 1 else ''}{where}"


_REPLACE_DIMM = "Drain the node; `ras-mc-ctl --errors` and the BMC's event log name the module; reseat or replace it."


def _aer(kinds: Kinds, window: Window) -> Iterator[Problem | str]:
    groups: dict[str, list[KernelEvent]] = defaultdict(list)
    last = ""
    for event in kinds.get("pcie-aer", ()):
        if event.detail != _SUPPRESSED:
            last = event.device if event.severity == "corrected" and "PCIe Bus Error" in event.text else last
        groups[last or event.device if event.detail == _SUPPRESSED else event.device].append(event)
    for device, events in groups.items():
        where = f" of {device}" if device else ""
        fatal = tuple(event for event in events if event.severity == "fatal")
        severe = tuple(event for event in events if event.severity == "error" and not window.booting(event))
        corrected = [event for event in events if event.severity == "corrected"]
        unseen = [event for event in corrected if event.detail == _SUPPRESSED]
        corrected = [*counted([event for event in corrected if event.detail != _SUPPRESSED]), *unseen]
        if fatal:
            contained = any(event.detail == "containment event" for event in fatal)
            words = "a fatal PCIe error" if not contained else "the PCIe port contained a fatal error (DPC)"
            yield Problem(Status.FAIL, f"{words}{where}", device, "pcie-aer", fatal, _RESEAT)
        if severe and not fatal:
            yield Problem(Status.WARN, f"{count(counted(severe), 'uncorrected, non-fatal PCIe error')}{where}", device,
                          "pcie-aer", severe, _RESEAT)  # fmt: skip
        stormy = any(not window.booting(event) for event in unseen)
        if stormy or most_within(corrected, HOUR_S) >= AER_PER_HOUR:
            number = _number(corrected)
            more = f", of which the kernel logged {number - unlogged}" if (unlogged := _number(unseen)) else ""
            yield Problem(Status.WARN, f"{number} corrected PCIe errors{where}{window.span(corrected)}{more}", device,
                          "pcie-aer", tuple(corrected), _RESEAT)  # fmt: skip
        elif corrected:
            number = _number(corrected)
            yield f"{number} corrected PCIe error{'s' if number > 1 else ''}{where}"


#: Words of the line that replaces rate-limited kernel messages.
_SUPPRESSED = "suppressed"


def _number(events: Sequence[KernelEvent]) -> int:
    return sum(event.count for event in events)


def _iommu(kinds: Kinds, window: Window) -> Iterator[Problem | str]:
    later = [event for event in kinds.get("iommu-fault", ()) if not window.booting(event, _MAPPED_S)]
    for device, events in devices_of(later, by_bus=True):
        where = f" of {device}" if device else ""
        yield Problem(Status.WARN, f"the IOMMU refused {count(events, 'access')}{where}", device,
                      "iommu-fault", events, _TRANSLATED)  # fmt: skip


#: Seconds after boot by which drivers have mapped their devices' memory: a judgement call.
_MAPPED_S = 300

_TRANSLATED = (
    "A device accesses memory that it is not allowed to; compare driver versions, and boot with iommu=pt for "
    "GPUs and NICs."
)


_RESEAT = "Reseat the card, its riser and cables at the next drain; `lspci -vvv -s` shows its error registers."


def counted(events: Sequence[KernelEvent]) -> Sequence[KernelEvent]:
    """Return PCIe error events without duplicates.

    An error is logged once by the root port that received it, and once by the device.
    """
    own = [event for event in events if "PCIe Bus Error" in event.text]
    return max(own, [event for event in events if "PCIe Bus Error" not in event.text], key=len)


def _slots(kinds: Kinds, window: Window) -> Iterator[Problem | str]:
    added = kinds.get("slot-added", ())
    for slot, events in devices_of(kinds.get("slot-removed", ())):
        if kernel_links.later(events[-1], [event for event in added if event.device == slot]):
            yield f"the card in slot {slot} was removed and reinserted"
        else:
            yield Problem(Status.WARN, f"the card in slot {slot} was removed, or lost its link", f"slot {slot}",
                          "slot-removed", events, _SLOT)  # fmt: skip
    for slot, events in devices_of(kinds.get("slot-power-fault", ())):
        yield Problem(Status.WARN, f"power fault of slot {slot}", f"slot {slot}", "slot-power-fault", events, _SLOT)


_SLOT = "Identify the card (`lspci -vt`, `dmidecode -t slot`); reseat it, check its power, and reboot."


def _nics(kinds: Kinds, window: Window) -> Iterator[Problem | str]:
    stopped = {device for device, _ in devices_of(kinds.get("nic-firmware", ()), by_bus=True)}
    for kind, status, words, fix in _NICS:
        for device, events in devices_of(kinds.get(kind, ()), by_bus=True):
            if kind == "nic-health" and device in stopped:
                continue  # the fault already explains it
            detail = next((f": {event.detail.strip()}" for event in events if event.detail), "")
            what = words.format(device or "a NIC") + detail
            yield Problem(status, f"{what}{window.times(events)}", device, kind, events, fix)
    for kind, words in (("slot-power", "a NIC gets too little power from its slot"),
                        ("nic-pcie-limited", "a NIC's PCIe link is slower than the NIC"),
                        ("cpu-throttled", "processors were throttled by heat")):  # fmt: skip
        if matches := kinds.get(kind):
            yield f"{words} ({listed(event.device for event in matches)})"


_NICS = (
    ("nic-firmware", Status.FAIL, "the firmware of {} stopped",
     "Run `devlink health show`; reboot, and update the firmware."),
    ("nic-health", Status.WARN, "the firmware of {} reports a fault",
     "Run `devlink health show`; update the firmware."),
    ("nic-timeout", Status.WARN, "a queue or command of {} timed out",
     "Read `devlink health show`; reset the NIC or reboot."),
    ("module-hot", Status.WARN, "{} or its module is too hot",
     "Check the airflow; `mlxlink -m` shows its temperature."),
    ("module-error", Status.WARN, "the cable or module of {} is faulty",
     "Reseat the module; replace it if the message returns."),
)  # fmt: skip


def _stalls(kinds: Kinds, window: Window) -> Iterator[Problem | str]:
    hung = tuple(kinds.get("hung-task", ()))
    busy = all(event.detail == "busy disk" for event in hung) and len({event.device for event in hung}) == len(hung)
    if len(hung) == 1 and hung[0].detail:
        yield f"one task waited for a {hung[0].detail} ({hung[0].device})"
    elif hung and busy:  # the kernel repeats the report of a task that still waits after another period
        yield f"{count(hung, 'task')} waited for a busy disk, each once ({listed(event.device for event in hung)})"
    elif hung:
        names = listed(event.device for event in hung)
        yield Problem(
            Status.WARN,
            f"{count(hung, 'report')} of tasks that hung for minutes ({names})",
            "",
            "hung-task",
            hung,
            "The call trace after the line in `dmesg -T` shows what the task waits for: storage, a driver or a lock.",
            _one_process(event.device for event in hung),
        )
    if lockups := tuple(kinds.get("lockup", ())):
        cpus = listed(f"CPU {event.device}" for event in lockups)
        guest = "; the host of this virtual machine may have held the CPU" if window.guest else ""
        yield Problem(
            Status.WARN, f"{count(lockups, 'lockup')} of a CPU ({cpus}){guest}", "", "lockup", lockups, _LOCKED,
            _one_process(event.detail for event in lockups),
        )  # fmt: skip
    if stalls := tuple(kinds.get("rcu-stall", ())):
        what = f"{count(stalls, 'RCU stall')}: a CPU did not respond for a long time"
        yield Problem(Status.WARN, what, "", "rcu-stall", stalls, _LOCKED)


def _one_process(tasks: Iterable[str]) -> tuple[str, ...]:
    """Return the process of tasks such as ``python3:5120``, if they share one."""
    pids = {task.rpartition(":")[2] for task in tasks}
    return processes(pids) if len(pids) == 1 and all(pids) else ()


_LOCKED = "Read the call trace that follows: it names the driver. Update driver or kernel; reboot if it persists."


def _out_of_memory(kinds: Kinds, window: Window) -> Iterator[Problem | str]:
    matches = kinds.get("out-of-memory", ())
    if node := tuple(event for event in matches if event.severity == "error"):
        killed = listed(f"{event.device} (pid {event.detail})" for event in node if event.device)
        what = f": the kernel killed {killed}" if killed else ""
        yield Problem(
            Status.WARN,
            f"the node ran out of memory{what}",
            "",
            "out-of-memory",
            node,
            "Limit the jobs' memory (Slurm: ConstrainRAMSpace), and check that no daemon was killed.",
            () if any(map(of_container, matches)) else processes(event.detail for event in node if event.device),
        )
    if jobs := [event for event in matches if event.severity == "note" and event.device]:
        were = "was" if len(jobs) == 1 else "were"
        yield f"{count(jobs, 'process')} {were} killed at a job's memory limit ({listed(e.device for e in jobs)})"


def most_within(events: Sequence[KernelEvent], seconds: float) -> int:
    """Return the maximum number of events within a period; all if a time is unknown."""
    timed = sorted((event.at_s, event.count) for event in events if event.at_s is not None)
    if len(timed) < len(events):
        return sum(event.count for event in events)
    most = held = start = 0
    for at_s, number in timed:
        held += number
        while timed[start][0] < at_s - seconds:
            held -= timed[start][1]
            start += 1
        most = max(most, held)
    return most


#: Machine faults that may cause a GPU's Xid.
_CAUSES = frozenset({"pcie-aer", "slot-removed", "slot-power-fault", "machine-check", "memory-error", "nic-firmware"})


def _placed(problem: Problem, xids: Iterable[Xid]) -> Problem:
    """Add to a problem's message the Xid closest in time, and which came first."""
    first = problem.events[0].at_s
    if problem.kind not in _CAUSES or first is None:
        return problem
    near = [xid for xid in xids if abs(xid.at_s - first) <= NEAR_S]
    if not near:
        return problem
    xid = min(near, key=lambda xid: abs(xid.at_s - first))
    gap_s = xid.at_s - first
    order = f"{gap_s:.1f} s before" if gap_s >= 0 else f"{-gap_s:.1f} s after"
    cause = ", so this came first" if gap_s >= 0 else ", so this may be its effect"
    return replace(problem, message=f"{problem.message}, {order} Xid {xid.code} of {xid.address or 'a GPU'}{cause}")
