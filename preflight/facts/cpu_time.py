"""CPU time during a window, from ``/proc/stat`` (proc(5)): shares per CPU."""

from __future__ import annotations

import re
from collections.abc import Mapping

from preflight._startup.lightclass import dataclass
from preflight.evidence.document import Evidence, EvidenceError
from preflight.facts.two_readings import twice

STAT = "file:/proc/stat"

#: Columns of a ``cpuN`` line, in order; those of guests are part of ``user`` and ``nice``.
FIELDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_MOST_CPUS = 8192


@dataclass(frozen=True)
class CpuTime:
    """How one CPU spent a window, in shares from 0 to 1."""

    busy: float  # neither idle nor waiting for input and output
    interrupts: float  # hard and soft interrupts, mostly of the network
    stolen: float  # used by another guest
    kernel: float = 0.0  # kernel work, including interrupts: TCP, page faults, copies


@dataclass(frozen=True)
class CpuWindow:
    """How all CPUs spent a window of ``seconds``."""

    cpus: Mapping[int, CpuTime]
    seconds: float


def parse(text: str) -> dict[int, tuple[int, ...]]:
    """Read ``/proc/stat``: CPU -> ticks by column; raises ValueError without a CPU."""
    found: dict[int, tuple[int, ...]] = {}
    for line in text.split("\n"):
        if match := re.fullmatch(r"cpu([0-9]{1,5})((?: [0-9]{1,20}){4,12})\s*", line):
            ticks = tuple(int(tick) for tick in match[2].split())[: len(FIELDS)]
            found[int(match[1])] = ticks + (0,) * (len(FIELDS) - len(ticks))
        if len(found) > _MOST_CPUS:
            raise ValueError(f"more than {_MOST_CPUS} CPUs")
    if not found:
        raise ValueError("no CPU found")
    return found


def cpu_window(evidence: Evidence) -> CpuWindow:
    """Return the CPUs that were online for the entire window.

    Raises EvidenceError if there are none.
    """
    readings = twice(evidence, STAT, lambda record: parse(record.out))
    cpus: dict[int, CpuTime] = {}
    for cpu in sorted(readings.before.keys() & readings.after.keys()):
        # iowait and idle are estimates that may decrease (proc(5)); negative idle times are impossible.
        grown = [max(0, b - a) for a, b in zip(readings.before[cpu], readings.after[cpu], strict=True)]
        total = sum(grown)
        if not total:
            continue
        share = dict(zip(FIELDS, (ticks / total for ticks in grown), strict=True))
        idle = share["idle"] + share["iowait"]
        cpus[cpu] = CpuTime(1 - idle, share["irq"] + share["softirq"], share["steal"],
                            share["system"] + share["irq"] + share["softirq"])  # fmt: skip
    if not cpus:
        raise EvidenceError(STAT, "no CPU counted any time between its two readings")
    return CpuWindow(cpus, readings.seconds)
