"""Helpers for judges: uncertain faults, memory use, GPU counts, long lists."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence

from preflight.checks.gpu.processes import PRESSURE_PCT
from preflight.checks.gpu.state import IDLE_PCT
from preflight.model import Finding, Status, failed, passed, unknown, warned
from preflight.recognition.judges import Judge, PastedValue, shortened

#: Maximum number of findings per check and part; one more summarises the rest.
MOST_FINDINGS = 8


def unsure(message: str, **details: object) -> Finding:
    """Report a port's fault as unknown, because the text does not show its use."""
    fix = (
        "Run `preflight check` on the node, where it finds the job's ports, or check whether the port "
        "is spare or for storage."
    )
    return unknown(f"{message}; the text does not show whether a job uses it", **{"fix": fix, **details})


#: Smallest odd number of GPUs that suggests a lost one: boards and chassis have 1, 2, 4, 6, 8, 10 or 16.
_ODD = 5


def judge_memory_use(
    label: str, subject: str, used_mib: int, total_mib: int, evidence: Sequence[str], utilisation_pct: int | None
) -> Iterator[Finding]:
    """Report GPU memory that is nearly full, or figures that contradict each other.

    A GPU that computes may use all of its memory: only a job that starts beside it would lack memory.
    """
    share = f"{used_mib} of {total_mib} MiB"
    if used_mib > total_mib:
        yield unknown(f"{label}: {share} are used: the text contradicts itself", subject=subject, found=share,
                      evidence=evidence)  # fmt: skip
    elif used_mib * 100 >= PRESSURE_PCT * total_mib and (utilisation_pct or 0) >= IDLE_PCT:
        yield passed(f"{label}: {used_mib * 100 / total_mib:.0f}% of its memory is used, while it computes",
                     subject=subject, found=f"{share}, {utilisation_pct}% utilisation", evidence=evidence)  # fmt: skip
    elif used_mib * 100 >= PRESSURE_PCT * total_mib:
        yield warned(f"{label}: {used_mib * 100 / total_mib:.0f}% of its memory is used", subject=subject,
                     found=share, evidence=evidence)  # fmt: skip


#: Commands that list the GPUs on the bus and their last errors.
NVIDIA_BUS = "`lspci -d 10de: | grep -c -e 3D -e VGA`; `dmesg -T | grep -i xid`."


def judge_number_of_gpus(number: int, evidence: tuple[str, ...], fix: str = NVIDIA_BUS) -> Iterator[Finding]:
    """Report an odd number of five or more GPUs, which no board has."""
    if number >= _ODD and number % 2:
        yield unknown(
            f"{number} GPUs are listed, an odd number: one may have fallen off the bus, or the job has only these",
            found=number,
            expected="the node's GPUs",
            evidence=evidence,
            fix=fix,
        )


def narrow(full: int, listed: int) -> Callable[..., Finding]:
    """Return the constructor of findings for a GPU with fewer lanes than possible.

    It fails if most GPUs of the model, and at least two, have all lanes; otherwise the slot may have fewer by design.
    """
    return failed if full > 1 and 2 * full > listed else warned


def limited(judge: Callable[[PastedValue], Iterator[Finding]]) -> Judge:
    """Return a judge that yields its first findings, and summarises the rest."""

    @functools.wraps(judge)
    def limited_judge(part: PastedValue) -> Iterator[Finding]:
        yield from shortened(judge(part), MOST_FINDINGS, every=(Status.PASS,))

    return limited_judge
