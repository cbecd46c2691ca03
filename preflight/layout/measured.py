"""Bandwidths that nccl-tests measured, as ratios to the typical ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from preflight._startup.lightclass import replace
from preflight.expectations.roofline.machine import gpu_named
from preflight.layout.hardware import Hardware
from preflight.layout.job import LayoutError
from preflight.layout.placement import Spread
from preflight.layout.step import bandwidth
from preflight.parsers.nccl_tests.model import Report

#: Minimum message size, in bytes, at which a run measures bandwidth rather than latency.
LARGE = 64 << 20

_COLLECTIVES = frozenset({"all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv"})


def with_measurements(
    hardware: Hardware, reports: Mapping[str, Sequence[Report]]
) -> tuple[Hardware, dict[str, str], list[str]]:
    """Return the hardware with measured ratios, their origins, and unused runs.

    A ratio is measured / typical bus bandwidth for the same collective, ranks and links. It applies to this collective
    over this level of links; the best of several runs is used. Each unused run has a reason.
    """
    shares: dict[str, float] = {}
    origins: dict[str, str] = {}
    unused: list[str] = []
    for key, of_file in reports.items():
        name = key.removeprefix("log:")
        for report in of_file:
            where = f"{name}:{report.first_line}"
            if why := _unusable(hardware, report):
                unused.append(f"{where}: not used: {why}")
                continue
            assert report.nranks is not None
            assert report.nnodes is not None
            assert report.collective is not None
            best = report.best(LARGE)
            assert best is not None
            spread = _spread(hardware, report, report.nranks, report.nnodes)
            try:
                customary, _ = bandwidth(replace(hardware, measured={}), report.collective, spread)
            except LayoutError as error:
                unused.append(f"{where}: not used: {error}")
                continue
            level = f"{report.collective}/{spread.level}"
            if best.busbw_gbytes_s / customary > shares.get(level, 0.0):
                shares[level] = best.busbw_gbytes_s / customary
                origins[level] = f"{where}: {best.busbw_gbytes_s:.4g} GB/s over {report.nranks} GPUs"
    return replace(hardware, measured=shares), origins, unused


def _unusable(hardware: Hardware, report: Report) -> str:
    """Return the reason why a run does not apply to the cluster; empty if it does."""
    models = {model.name if (model := gpu_named(name)) is not None else name for name in report.device_names}
    if report.collective not in _COLLECTIVES:
        return f"{report.collective or 'an unknown collective'} is not part of the plan"
    if report.nranks is None or report.nnodes is None or report.groups > 1 or report.copies > 1:
        return "its ranks and hosts are not known, or it ran in several groups"
    if report.status != "ok":
        return "it did not complete successfully"
    if report.best(LARGE) is None:
        return f"it has no message of at least {LARGE >> 20} MiB"
    if models and models != {hardware.gpu.name}:
        return f"it ran on {', '.join(sorted(models))}, but the plan is for {hardware.gpu.name}"
    if report.nranks < 2 or report.nranks % report.nnodes or report.nranks // report.nnodes > hardware.machine.gpus:
        return f"{report.nranks} ranks on {report.nnodes} hosts do not fit {hardware.part}"
    return ""


def _spread(hardware: Hardware, report: Report, ranks: int, nodes: int) -> Spread:
    machine, units = hardware.machine, hardware.fabric.units
    labels = {name.partition(".")[0]: unit for name, unit in units.items()}
    above = {labels[host] for host in report.hosts if host in labels}
    complete = bool(units) and all(host in labels for host in report.hosts)
    domains = 1 if nodes * machine.gpus <= machine.domain else nodes
    return Spread(ranks, nodes, domains, len(above) if complete else None, ranks // domains)
