"""Check of the driver against the CUDA version of the job's NCCL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from preflight.checks.logs import cited, no_nccl
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.compatibility import GUIDE, OLDEST_DRIVER, driver_version, runs
from preflight.facts.job import RunFacts
from preflight.model import Finding, check, each_of, failed, passed, unknown, warned

if TYPE_CHECKING:
    from preflight.parsers.nccl_log import NcclLog

_VERSION = "set NCCL_DEBUG=INFO in the job: the first lines of its log then contain both versions"


@check(
    "nccl.built-for",
    title="The driver supports the CUDA version of the job's NCCL",
    fault="The driver is too old for the job's NCCL",
    impact="blocks-job",
    source=f"{GUIDE}; lines `NCCL version 2.21.5+cuda12.4` and `cudaDriverVersion 12040`, NCCL 2.3 … 2.30",
    fix="`nvidia-smi` prints the driver's CUDA version: install a driver for NCCL's major CUDA version, or use an "
    "older image.",
    action="fix-job",
    answers=("PA-03",),
    scope="run",
    gating=False,  # judges a past job
    unless=(no_nccl,),
)
def built_for(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the CUDA version that NCCL was built for with that of the driver.

    Both are read from the job's log.

    ## Why it matters
    A job brings NCCL in its image. If NCCL was built for a newer major CUDA version than the driver supports, its
    first call fails with "CUDA driver version is insufficient for CUDA runtime version".

    ## Verdicts
    A driver supports all minor versions of its major CUDA version, and older major versions. A newer major version
    fails, or warns if the log names several drivers and only some are too old. If the log names no driver, the drivers
    in its hosts' evidence are used: one that is too old warns, because the image may contain its own libcuda
    (cuda-compat). A log without NCCL's CUDA version is unknown; RCCL is not judged.

    ## False alarms
    One log of several jobs on different nodes.
    """
    for key, log in run.nccl_logs.items():
        yield _of_log(run, key, log)


def _of_log(run: RunFacts, key: str, log: NcclLog) -> Finding:
    name = key.removeprefix("log:")
    at: dict[str, Any] = {"subject": name, "evidence": [key]}
    if not log.built_for:
        return unknown(f"{name}: the log does not name NCCL's CUDA version", fix=_VERSION, **at)
    newest = max(log.built_for, key=lambda one: _numbers(one.name))
    wanted, build = _numbers(newest.name)[0], f"{name}: NCCL is built for CUDA {newest.name}"
    if not log.cuda_drivers:
        return _by_hosts(run, log, wanted, build, at)
    drivers = ", ".join(sorted(log.cuda_drivers, key=_numbers))
    old = [one for one in log.cuda_drivers if _numbers(one)[0] < wanted]
    if not old:
        return passed(
            f"{build}, and the driver{'s support' if len(log.cuda_drivers) > 1 else ' supports'} CUDA {drivers}",
            found=f"CUDA {drivers}",
            **at,
        )
    at |= {"found": f"drivers of CUDA {drivers}", "expected": f"CUDA {wanted} or newer", "quote": cited(newest.first)}
    if len(old) == len(log.cuda_drivers):
        return failed(f"{build}, but the driver supports at most CUDA {drivers}", **at)
    return warned(f"{build}, and only some drivers support it: the log names CUDA {drivers}", **at)


def _by_hosts(run: RunFacts, log: NcclLog, wanted: int, build: str, at: dict[str, Any]) -> Finding:
    """Judge a log that names no driver by the drivers of its hosts."""
    fits: dict[str, bool | None] = {}
    for node in (run.host(host) for host in log.hosts):
        try:
            if node is not None:
                fits[f"{node.node} ({node.driver.version})"] = runs(driver_version(node.driver.version), wanted)
        except (EvidenceError, ValueError):
            continue
    old = [driver for driver, fit in fits.items() if fit is False]
    if old:
        least = ".".join(f"{part:02d}" for part in OLDEST_DRIVER[wanted])
        named = ", ".join(old[:4]) + (f" and {len(old) - 4} more" if len(old) > 4 else "")
        drivers = "the driver is" if len(old) == 1 else "the drivers are"
        return warned(f"{build}, but {drivers} older on {named}",
                      found=named, expected=f"driver {least} or newer, or cuda-compat in the image",
                      **at)  # fmt: skip
    if not log.hosts or len(fits) < len(log.hosts) or None in fits.values():
        return unknown(f"{build}, and the log does not name the driver's CUDA version", fix=_VERSION, **at)
    where = next(iter(fits)) if len(fits) == 1 else each_of(len(fits), "host")
    return passed(f"{build}, and the driver of {where} supports it", found=", ".join(list(fits)[:4]), **at)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
