"""Checks of GPU clock settings."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import TYPE_CHECKING

from preflight.checks.applicability import no_gpu
from preflight.checks.gpu.per_gpu import each_gpu
from preflight.expectations import Site
from preflight.expectations.catalogue import gpu_model
from preflight.facts.node import NodeFacts
from preflight.model import Finding, check, skipped, unknown, warned

if TYPE_CHECKING:
    from preflight.facts.nvidia.model import GpuHealth, Health

#: Generations whose default application clock is their highest clock; older ones have a lower default.
_AT_THE_TOP = ("Hopper", "Blackwell")

#: Fraction of the highest clock that is required if the default is not known: a judgement call.
_SHARE = 0.9


def clock_declared(node: NodeFacts, site: Site) -> Finding | None:
    """Skip a node whose application clock is declared; node.expected compares it."""
    declared = site.declared("gpu_settings.application_clock_mhz")
    if not declared:
        return None
    return skipped(f"{declared[''].source} declares the application clock: see node.expected", evidence=["nvml:gpus"])


@check(
    "gpu.clocks",
    title="No GPU's application clock is below its default",
    fault="A GPU's application clock is below its default",
    impact="slows-job",
    source="https://docs.nvidia.com/deploy/nvml-api/ (nvmlDeviceGetApplicationsClock, "
    "nvmlDeviceGetDefaultApplicationsClock, nvmlDeviceGetMaxClockInfo)",
    fix="Compare `nvidia-smi -q -d CLOCK`; `nvidia-smi -rac` resets it. If intended, declare "
    "gpu_settings.application_clock_mhz in the cluster file.",
    action="fix-site",
    gating=False,
    unless=(no_gpu, clock_declared),
)
def clocks(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the application clock of each GPU with its default or highest clock.

    ## Why it matters
    A GPU that was left at half its clock after a test runs at half its speed without any error, and all other GPUs of
    the job wait for it.

    ## Verdicts
    A clock below the default warns. If the driver does not report the default, Hopper and newer GPUs, whose default is
    their highest clock, are compared with 90% of it; older GPUs are unknown. The current clock is not judged, because
    idle GPUs clock down. With `gpu_settings.application_clock_mhz` in the cluster file, node.expected compares the
    clock instead. Newer drivers have no application clocks; clocks locked by `nvidia-smi -lgc` show only under load.

    ## False alarms
    GPUs that are slowed down on purpose, to save power or reduce heat; declare the clock.
    """
    models = {device.address: gpu_model(device) for device in node.gpus_on_bus}
    top = frozenset(address for address, model in models.items() if model and model.generation in _AT_THE_TOP)
    yield from judge_clocks(node.gpu_health, top)


def judge_clocks(health: Health, at_the_top: Container[str] = ()) -> Iterator[Finding]:
    """Judge the application clock of each GPU.

    ``at_the_top`` has the addresses of GPUs whose default clock is their highest.
    """

    def compare(gpu: GpuHealth) -> Finding | None:
        mine, top = gpu.application_clock_mhz or 0, gpu.sm_clock_max_mhz or 0
        if (default := gpu.application_clock_default_mhz) is not None:
            bound, called = default, f"{default} MHz, its default"
        elif gpu.address in at_the_top:
            bound, called = round(_SHARE * top), f"{top} MHz, its highest"
        elif health.pasted and mine >= top:
            return None  # no default is above the highest clock
        else:
            return unknown(f"application clock is {mine} of {top} MHz, but its default is unknown", found=f"{mine} MHz",
                           fix="Declare gpu_settings.application_clock_mhz in the cluster file.")  # fmt: skip
        if mine < bound:
            return warned(f"application clock is {mine} of {top or bound} MHz", found=f"{mine} MHz", expected=called)
        return None

    needs: tuple[str, ...] = ("application_clock_mhz", "sm_clock_max_mhz")
    if health.pasted and all(gpu.application_clock_default_mhz is not None for gpu in health.gpus):
        needs = ("application_clock_mhz",)  # the default decides; a query may lack the highest clock
    good = "has an application clock at or above the default"
    yield from each_gpu(health, compare, what="application clock", good=good, needs=needs)
