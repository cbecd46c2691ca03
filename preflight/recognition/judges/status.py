"""Judges of host load, storage, Ray, opensm, neighbours and boots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from preflight.model import Finding, clause, counted, failed, passed, unknown, verb, warned
from preflight.parsers.host.boot_history import BootHistory
from preflight.parsers.host.storage_status import StorageState
from preflight.parsers.host.system_load import LoadReading
from preflight.parsers.infiniband.opensm_log import OpensmLog
from preflight.parsers.network.neighbours import NetworkNeighbour
from preflight.parsers.training.ray_status import RayStatus
from preflight.recognition.judges import Judges, PastedValue
from preflight.recognition.judges.lists import limited

#: Values above which a host is overloaded: load average (more tasks than any node has CPUs), percent of time that CPUs
#: wait for storage, KiB/s of swap traffic, percent of time under pressure, number of zombies. Judgement calls.
_MOST_LOAD, _MOST_WAITING_PCT, _MOST_SWAPPED, _MOST_PRESSURE_PCT, _MOST_ZOMBIES = 512, 25, 256, 25, 8
#: Thresholds of a saturated disk: percent of time busy, milliseconds of latency.
_BUSY_PCT, _LATE_MS = 95, 50


def _worst(part: PastedValue, name: str) -> LoadReading | None:
    readings: Sequence[LoadReading] = part.value
    return max((item for item in readings if item.name == name), key=lambda item: item.value, default=None)


def _tasks(part: PastedValue) -> Iterator[Finding]:
    """Look for a load above any CPU count, and for waiting tasks."""
    load = _worst(part, "load")
    if load is not None and load.value > _MOST_LOAD:
        yield unknown(f"the 15-minute load average is {load.value:g}: that many tasks run or wait for a device "
                      f"(line {load.line})", found=f"{load.value:g}", expected="at most the number of CPUs",
                      evidence=part.evidence, fix="`ps -eo state,pid,wchan:30,cmd | grep '^D'`; `nproc`.")  # fmt: skip
    elif load is not None:
        yield passed(f"the 15-minute load average is {load.value:g}", evidence=part.evidence)


def _zombies(part: PastedValue) -> Iterator[Finding]:
    zombies = _worst(part, "zombies")
    if zombies is not None and zombies.value > _MOST_ZOMBIES:
        yield warned(f"{zombies.value:.0f} processes are zombies (line {zombies.line})", found=f"{zombies.value:.0f}",
                     expected=f"at most {_MOST_ZOMBIES}", evidence=part.evidence,
                     fix="`ps -eo ppid,pid,state,comm | grep ' Z '`; end their parents.")  # fmt: skip


def _memory(part: PastedValue) -> Iterator[Finding]:
    swapped = _worst(part, "swapped_kib_s")
    if swapped is None:
        return
    if swapped.value > _MOST_SWAPPED:
        yield warned(f"the host swaps {swapped.value:.0f} KiB/s (line {swapped.line})", found=f"{swapped.value:.0f}",
                     expected="0", evidence=part.evidence, fix="`ps aux --sort -rss | head`; `free -g`.")  # fmt: skip
    else:
        yield passed("the host does not swap", evidence=part.evidence)


def _storage(part: PastedValue) -> Iterator[Finding]:
    """Look for CPUs and tasks that wait for storage, and for slow disks."""
    readings: Sequence[LoadReading] = part.value
    waiting, pressure = _worst(part, "waiting_pct"), _worst(part, "pressure_pct")
    late = {item.device: item.value for item in readings if item.name == "await_ms" and item.value > _LATE_MS}
    busy = [
        item for item in readings if item.name == "utilization_pct" and item.value >= _BUSY_PCT and item.device in late
    ]
    if waiting is not None and waiting.value > _MOST_WAITING_PCT:
        yield unknown(f"CPUs wait for storage {waiting.value:g}% of the time (line {waiting.line})",
                      found=f"{waiting.value:g}%", expected=f"at most {_MOST_WAITING_PCT}%", evidence=part.evidence,
                      fix="`iostat -x 1 3`; `cat /proc/pressure/io`; the kernel log.")  # fmt: skip
    for item in busy:
        yield unknown(f"{item.device} is busy {item.value:g}% of the time and answers after {late[item.device]:g} ms "
                      f"(line {item.line})", subject=item.device, found=f"{late[item.device]:g} ms",
                      expected=f"at most {_LATE_MS} ms", evidence=part.evidence,
                      fix=f"`smartctl -a /dev/{item.device}`; find out what reads and writes: `iotop -o`.")  # fmt: skip
    if pressure is not None and pressure.value > _MOST_PRESSURE_PCT:
        yield unknown(f"tasks waited {pressure.value:g}% of the last minute for this resource (line {pressure.line})",
                      found=f"{pressure.value:g}%", expected=f"at most {_MOST_PRESSURE_PCT}%", evidence=part.evidence,
                      fix="`grep . /proc/pressure/*` names the resource.")  # fmt: skip
    elif readings and not busy and (waiting is None or waiting.value <= _MOST_WAITING_PCT):
        named = {"waiting_pct", "utilization_pct", "pressure_pct"} & {item.name for item in readings}
        if named:
            yield passed("CPUs, tasks and disks show no long waits", evidence=part.evidence)


#: Healthy and degraded states of file systems; any other state is a fault.
_WELL = frozenset({"HEALTH_OK", "active", "HEALTHY", "TIPS", "ONLINE", "AVAIL", "INUSE"})
_LESS = frozenset({"HEALTH_WARN", "DEGRADED", "arbitrating", "CHECKING", "DEPEND", "unknown", "OFFLINE", "REMOVED"})


@limited
def _states(part: PastedValue) -> Iterator[Finding]:
    states: Sequence[StorageState] = part.value
    bad = [item for item in states if item.state not in _WELL or item.errors]
    for item in bad:
        report = warned if item.state in _LESS or item.state in _WELL else failed
        words = f": {item.words}" if item.words else ""
        yield report(f"{item.name} is {item.state}{words} (line {item.line})", subject=item.name, found=item.state,
                     expected="healthy", evidence=part.evidence,
                     fix="`ceph health detail`, `mmhealth node show`, or `zpool status -v`.")  # fmt: skip
    if states and not bad:
        words = f"{len(states)} states are healthy" if len(states) > 1 else f"{states[0].name} is {states[0].state}"
        yield passed(words, evidence=part.evidence)


@limited
def _ray(part: PastedValue) -> Iterator[Finding]:
    status: RayStatus = part.value
    for line, text in status.failures:
        yield warned(f"a node of the Ray cluster failed: {text} (line {line})", found=text[:200], expected="none",
                     evidence=part.evidence, fix="Read the raylet's log on that node, in /tmp/ray.")  # fmt: skip
    for line, text in (*status.pending, *status.demands):
        yield unknown(f"Ray waits for resources: {text} (line {line})", found=text[:200], expected="none pending",
                      evidence=part.evidence, fix="Compare the demand with usage; a node may be missing.")  # fmt: skip
    if status.shows_failures and not (status.failures or status.pending or status.demands):
        waits = ", and nothing waits for resources" if part.complete else ""
        yield passed(f"no node of the Ray cluster failed{waits}", evidence=part.evidence)


@limited
def _subnet(part: PastedValue) -> Iterator[Finding]:
    """Report nodes that left the subnet, and errors of the subnet manager."""
    log: OpensmLog = part.value
    for event in log.events:
        if event.left:
            yield warned(f"a port of {event.left} left the subnet (line {event.line})", subject=event.left,
                         found=event.text[:200], expected="none", evidence=part.evidence,
                         fix="Look at that node's `ibstat` and kernel log: it rebooted, or its link went down."
                         )  # fmt: skip
    errors = [event for event in log.events if not event.left]
    if errors:
        more = f" and {len(errors) - 1} more" if errors[1:] else ""
        yield unknown(f"the subnet manager reports: {errors[0].text[:200]} (line {errors[0].line}{more})",
                      found=errors[0].text[:200], expected="none", evidence=part.evidence,
                      fix="`ibdiagnet`; look at the port that the line names.")  # fmt: skip
    if log.lines and not log.events:
        yield passed(f"no error in {log.lines} lines of the subnet manager's log", evidence=part.evidence)


@limited
def _neighbours(part: PastedValue) -> Iterator[Finding]:
    rows: Sequence[NetworkNeighbour] = part.value
    silent = [row for row in rows if row.state in ("FAILED", "INCOMPLETE")]
    for row in silent:
        on = f" on {row.interface}" if row.interface else ""
        yield unknown(f"{row.address}{on} does not answer: {row.state} (line {row.line})", subject=row.address,
                      found=row.state, expected="REACHABLE or STALE", evidence=part.evidence,
                      fix=f"If {row.address} is in service, `ping {row.address}`; check link, VLAN and MTU."
                      )  # fmt: skip
    if rows and not silent:
        yield passed(
            f"{clause(len(rows), 'neighbour', 'answers')} or {verb(len(rows), 'has')} answered",
            evidence=part.evidence,
        )


#: Maximum number of boots without an orderly shutdown in a normal last(1) list.
_FEW_BOOTS = 2


def _boots(part: PastedValue) -> Iterator[Finding]:
    history: BootHistory = part.value
    if history.crashes:
        line, time = history.crashes[0]
        boots = counted(len(history.boots), "boot")
        yield warned(f"a session of {time} ended with a crash (line {line}; {boots} listed)",
                     found=counted(len(history.crashes), "crash", "crashes"), expected="none", evidence=part.evidence,
                     fix="`journalctl -b -1 -e`; `ipmitool sel list`.")  # fmt: skip
    elif len(history.boots) - history.shutdowns > _FEW_BOOTS:
        line, time = history.boots[0]
        yield unknown(f"the host booted {len(history.boots)} times, the last time {time} (line {line}); "
                      f"{history.shutdowns} orderly shutdowns are listed", found=f"{len(history.boots)} boots",
                      expected="planned boots only", evidence=part.evidence,
                      fix="`journalctl --list-boots`; `journalctl -b -1 -e` shows how the previous one ended."
                      )  # fmt: skip
    else:
        yield passed(f"{counted(len(history.boots), 'boot')} listed, and no crash", evidence=part.evidence)


JUDGES: Judges = {
    "opensm log": (("fabric.subnet-manager", _subnet),),
    "ip neigh": (("rails.subnets", _neighbours),),
    "last": (("kernel.events", _boots),),
    "system load": (
        ("host.processes", _tasks), ("host.zombies", _zombies), ("kernel.events", _memory),
        ("host.file-systems", _storage),
    ),
    "storage status": (("host.file-systems", _states),),
    "ray status": (("host.services", _ray),),
}  # fmt: skip
