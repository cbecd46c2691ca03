"""Check of CPU time over a window."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.checks.window_load import IDLE
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.cpu_time import STAT
from preflight.facts.node import NodeFacts
from preflight.model import Finding, check, clause, passed, warned
from preflight.textprep.plain_text import fold_ids


@check(
    "counters.cpu",
    title="The CPUs are not overloaded during the window",
    fault="The CPUs are overloaded",
    impact="slows-job",
    source="proc(5), /proc/stat; the shares are judgements",
    fix="Run `mpstat -P ALL 1` and `top -H` to see what uses the CPUs. Spread interrupts that hit one CPU "
    "(`set_irq_affinity.sh IF`); if TCP or staging runs instead of RDMA, see nccl.transport; for stolen time, "
    "contact the provider.",
    action="fix-site",
    answers=("NT-CPU-1",),
    window=True,
)
def cpu(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Judge the busy, interrupt and stolen time of this process's CPUs over a window.

    ## Why it matters
    NCCL's proxy threads, data loaders and the network's interrupts share these CPUs. If the CPUs are overloaded, the
    GPUs wait. The usual cause is a transport that copies through the host (TCP, staging, Gloo).

    ## Verdicts
    CPUs that are more than 90% busy on average, a CPU with more than 80% of its time in interrupts, and more than 5% of
    time stolen by the hypervisor warn. While the network is loaded, a single CPU that is more than 90% busy, and spends
    more than half of its time in the kernel, also warns: typically, a thread sends over TCP. The limits are judgements.
    The average over a window hides much shorter spikes.

    A CPU that is fully busy in user code is reported but not judged: NCCL's threads poll by design, data loaders
    compute, and a thread that copies through host memory looks the same. A CPU that is fully busy in the kernel while
    no RDMA port is loaded is not judged either, because it may send over TCP or write a file; the checklist item then
    stays open.

    ## False alarms
    A CPU benchmark or a build that runs on the node; a polling kernel thread (io_uring, vhost), or one that writes a
    checkpoint.
    """
    window = node.cpu_window
    try:
        allowed = node.allowed_cpus
    except EvidenceError:
        allowed = frozenset(window.cpus)
    mine = {number: time for number, time in window.cpus.items() if number in allowed} or dict(window.cpus)
    busy = sum(time.busy for time in mine.values()) / len(mine)
    stolen = sum(time.stolen for time in mine.values()) / len(mine)
    flooded = frozenset(number for number, time in mine.items() if time.interrupts > 0.8)
    loaded = _loaded(node)
    full = frozenset(n for n, time in mine.items() if time.busy > 0.9 and time.kernel > 0.5 and n not in flooded)
    user = frozenset(number for number, time in mine.items() if time.busy > 0.9) - full - flooded
    during = f"in {window.seconds:.0f} s {_TRAFFIC[loaded]}"
    cpus = clause(len(mine), "CPU", "was")
    bad = [
        (busy > 0.9, f"{cpus} {100 * busy:.0f}% busy on average {during}", f"{100 * busy:.0f}%", "at most 90%"),
        (bool(flooded), f"CPU {fold_ids(flooded)} mostly handled interrupts {during}",
         f"{100 * max(time.interrupts for time in mine.values()):.0f}% of its time", "at most 80%"),
        (bool(full) and bool(loaded), f"CPU {fold_ids(full)} was busy, mostly in the kernel, {during}",
         f"{100 * max((mine[n].kernel for n in full), default=0):.0f}% of its time in the kernel", "at most 50%"),
        (stolen > 0.05, f"the hypervisor took {100 * stolen:.0f}% of the CPUs' time {during}", f"{100 * stolen:.0f}%",
         "at most 5%"),
    ]  # fmt: skip
    for wrong, message, found, expected in bad:
        if wrong:
            yield warned(message, found=found, expected=f"{expected} (judgement)", evidence=[STAT])
    if not any(wrong for wrong, *_ in bad):
        polling = f"; CPU {fold_ids(user)} more than 90% busy, mostly in user code" if user else ""
        polling += f"; CPU {fold_ids(full)} more than 90% busy, mostly in the kernel" if full else ""
        good = passed(f"{cpus} {100 * busy:.0f}% busy on average {during}", found=f"{100 * busy:.0f}%{polling}",
                      evidence=[STAT])  # fmt: skip
        yield good if loaded else good.about()  # an idle node proves nothing about collectives


_TRAFFIC = {True: "under RDMA traffic", False: "without RDMA traffic", None: "(RDMA traffic unknown)"}


def _loaded(node: NodeFacts) -> bool | None:
    """Return whether RDMA loads a port of the node; None if unknown."""
    try:
        loads = [port.load for port in node.port_growth.values()]
    except EvidenceError:
        return None
    if any((load or 0) >= IDLE for load in loads):
        return True
    return None if all(load is None for load in loads) else False
