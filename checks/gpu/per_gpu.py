"""Helper for checks that judge each GPU on its own.

It yields one finding for each faulty or unreadable GPU, and one for all healthy GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from preflight._startup.lightclass import replace
from preflight.facts.nvidia.model import NOT_IN_OUTPUT
from preflight.model import Finding, agreed, counted, passed, skipped, some_of, unknown

if TYPE_CHECKING:
    from preflight.facts.nvidia.model import GpuHealth, Health

    Judge = Callable[[GpuHealth], Finding | None]


def each_gpu(
    health: Health,
    judge: Judge,
    *,
    what: str,
    good: str,
    needs: tuple[str, ...],
    also: tuple[str, ...] = (),
    hidden: Callable[[GpuHealth], str] = lambda gpu: "",
    additive: bool = False,
) -> Iterator[Finding]:
    """Judge every GPU that answered.

    ``judge`` returns None for a healthy GPU, else a finding. In messages, ``what`` names the judged value, and ``good``
    is the predicate of one healthy GPU, such as "has ECC on".

    A GPU without a readable value is *unknown*, with the driver's message. If the driver reports ``N/A`` for every GPU,
    the check does not apply; if only for some, those are *unknown*. ``also`` lists values that some GPU models do not
    have; ``hidden`` returns the reason why ``N/A`` hides an existing value, or an empty string. ``gpu.driver`` reports
    GPUs that did not answer at all. In pasted text (``health.pasted``), a value that no GPU shows has no finding: its
    section was not pasted. With ``additive``, a GPU in pasted text that lacks some values is still judged by the
    others.
    """
    evidence = health.evidence
    if health.pasted:  # a value that no GPU shows was not pasted
        also = tuple(name for name in also if any(gpu.why(name) != NOT_IN_OUTPUT for gpu in health.gpus
                                                  if getattr(gpu, name) is None) or _any(health, name))  # fmt: skip
    missing = [(gpu, _missing(gpu, needs, also)) for gpu in health.gpus]
    uncut = [(gpu, names) for gpu, names in missing if not (health.pasted and _is_cut(gpu, names))]
    if uncut and all(names and not hidden(gpu) and all(map(gpu.not_reported, names)) for gpu, names in uncut):
        yield skipped(f"the driver does not report the {what} of these GPUs (N/A)", evidence=evidence[:1])
        return
    if health.pasted and all(any(gpu.why(name) == NOT_IN_OUTPUT for name in names) for gpu, names in missing):
        for gpu in health.gpus if additive else ():
            if (finding := judge(gpu)) is not None:
                yield _on(gpu, finding, evidence)
        return
    fine = 0
    for gpu, names in missing:
        if names and additive and health.pasted and (finding := judge(gpu)) is not None:
            yield _on(gpu, finding, evidence)
        elif names:
            shown = gpu.address if health.pasted and ":" in gpu.address else gpu.index
            why = hidden(gpu) or gpu.why(names[0])
            yield unknown(
                f"{gpu.label} does not report its {what}: {why}", subject=gpu.address, found=why, evidence=evidence,
                fix=f"run on the node: `nvidia-smi -q -i {shown}`",
            )  # fmt: skip
        elif (finding := judge(gpu)) is not None:
            yield _on(gpu, finding, evidence)
        else:
            fine += 1
    if fine:
        gpus = counted(fine, "GPU") if health.partial else some_of(fine, len(health.gpus), "GPU")
        yield passed(f"{gpus} {agreed(fine, good)}", evidence=evidence)
    if health.partial and not health.pasted:
        yield unknown(
            f"only {counted(len(health.gpus), 'GPU')} reported their {what}: the query {health.partial}",
            evidence=evidence, fix="find out on the node why it hangs: run `nvidia-smi -q` and `dmesg | grep -i xid`",
        )  # fmt: skip
    elif not health.gpus and not health.pasted:
        yield unknown(f"no GPU reported its {what}: see gpu.driver", evidence=evidence)


def _any(health: Health, name: str) -> bool:
    """Return whether any GPU has a value in field ``name``."""
    return any(getattr(gpu, name) is not None for gpu in health.gpus)


def _is_cut(gpu: GpuHealth, names: list[str]) -> bool:
    """Return whether the pasted text lacks a value of a GPU."""
    return any(gpu.why(name) == NOT_IN_OUTPUT for name in names)


def _on(gpu: GpuHealth, finding: Finding, evidence: tuple[str, ...]) -> Finding:
    return replace(
        finding, message=f"{gpu.label}: {finding.message}", subject=gpu.address or gpu.label, evidence=evidence
    )


def _missing(gpu: GpuHealth, needs: tuple[str, ...], also: tuple[str, ...]) -> list[str]:
    lacking = [name for name in needs if getattr(gpu, name) is None]
    return lacking + [name for name in also if getattr(gpu, name) is None and not gpu.not_reported(name)]
