"""Checks of the compatibility of driver, CUDA, PyTorch and NCCL."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.checks.applicability import no_gpu
from preflight.checks.in_logs import IN_LOGS
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.compatibility import (
    FORWARD,
    GUIDE,
    OLDEST_DRIVER,
    Build,
    build,
    driver_version,
    nccl_beside,
    runs,
)
from preflight.facts.node import NodeFacts
from preflight.facts.versions import LIBRARIES, Package
from preflight.model import Finding, check, failed, passed, skipped, unknown, warned

_LOOKED_AT = "file:*/{torch,nvidia_nccl_cu*}-*.dist-info/INSTALLER"


def no_pytorch(node: NodeFacts, site: Site) -> Finding | None:
    """Skip a node without PyTorch; *unknown* if that could not be determined."""
    if _torches(node):
        return None
    looked = [key for key in node.evidence.records if key.endswith(".dist-info/INSTALLER")]
    unread = sorted(key for key in looked if node.evidence.record(key).status not in ("missing", "ok"))
    if unread or not looked:
        return unknown("it is not known whether PyTorch is installed", evidence=unread[:3] or [_LOOKED_AT])
    return skipped(
        "PyTorch is not installed here: run the check in the job's image", evidence=sorted(looked)[:3]
    ).about()


@check(
    "versions.compatibility",
    title="The driver supports the CUDA version of PyTorch and NCCL",
    fault="The driver is too old for the CUDA version of PyTorch or NCCL",
    impact="blocks-job",
    explains=IN_LOGS,
    source=f"{GUIDE}; forward compatibility: the cuda-compat package",
    fix="Install a driver for PyTorch's CUDA version (`torch.version.cuda`), or a PyTorch for the driver's "
    "major version, with a single nvidia-nccl package.",
    action="fix-site",
    answers=("PA-03",),
    reads=(
        "file:*.dist-info/INSTALLER",
        "file:*/torch/version.py",
        FORWARD,
        "nvml:gpus",
        "cmd:nvidia-smi --query-gpu=*",
    ),
    unless=(no_gpu, no_pytorch),
)
def compatibility(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the driver and NCCL with the CUDA version of each installed PyTorch.

    ## Why it matters
    With a driver older than PyTorch's CUDA, each job ends at its first CUDA call with "CUDA driver version is
    insufficient for CUDA runtime version", even if all nodes have the same driver. Two NCCL packages for different CUDA
    versions overwrite each other's library.

    ## Verdicts
    A driver supports all minor versions of its major CUDA version (11: driver 450.80.02, 12: 525.60.13, 13: 580 and
    newer); an older driver fails. With the libcuda of a cuda-compat package, the result is unknown, because the job's
    LD_LIBRARY_PATH decides. PyTorch without CUDA warns, and so does an nvidia-nccl package for another major CUDA
    version. System, conda and user packages are all judged, because preflight does not know which of them a job uses.

    Without PyTorch on the node, the check does not apply, and its checklist item stays open: run `preflight check` in
    the job's image instead.

    ## False alarms
    A spare PyTorch on the host that no job uses.
    """
    torches = _torches(node)
    driver = node.driver
    try:
        version = driver_version(driver.version)
    except ValueError as error:
        raise EvidenceError(driver.evidence, str(error)) from None
    good = []
    for package in torches:
        made = build(node.evidence, package)
        found = [*_driver(node, made, version, driver.version), *_nccl(node, made)]
        yield from found
        if not found:
            good.append(made)
    if good:
        builds = ", ".join(f"PyTorch {one.package.version} for CUDA {one.cuda}" for one in good)
        yield passed(f"driver {driver.version} runs {builds}", found=f"driver {driver.version}; {builds}",
                     evidence=[driver.evidence, *(one.evidence for one in good[:3])])  # fmt: skip


def _torches(node: NodeFacts) -> list[Package]:
    return [package for package in node.packages if package.name == "torch"]


def _driver(node: NodeFacts, made: Build, version: tuple[int, ...], written: str) -> Iterator[Finding]:
    subject = f"torch {made.package.version}"
    evidence = [node.driver.evidence, made.evidence]
    if made.major is None:
        yield warned(f"PyTorch {made.package.version} is built without CUDA and runs on CPUs only", subject=subject,
                     found="no CUDA", expected="a build for CUDA", evidence=evidence,
                     fix="Install a CUDA build of PyTorch for the driver, or remove this one if no job uses it: "
                     "`pip list | grep -i torch`.")  # fmt: skip
        return
    enough = runs(version, made.major)
    needs = ".".join(f"{part:02d}" for part in OLDEST_DRIVER.get(made.major, ()))
    if enough is None:
        yield unknown(
            f"PyTorch {made.package.version} is built for CUDA {made.cuda}, but the oldest "
            f"driver that supports CUDA {made.major} is unknown",
            subject=subject,
            evidence=evidence,
            fix=f"see {GUIDE}",
        )
    elif not enough and _forward(node):
        yield unknown(
            f"driver {written} is older than CUDA {made.major} requires; a cuda-compat package is "
            "installed, but it is unknown whether jobs load it", subject=subject, found=written,
            expected=f"driver {needs} or newer",
            evidence=[*evidence, FORWARD], fix="run in the job: `python -c 'import torch; torch.zeros(1).cuda()'`",
        )  # fmt: skip
    elif not enough:
        yield failed(f"driver {written} is too old for PyTorch {made.package.version}, which is built for CUDA "
                     f"{made.cuda}", subject=subject, found=f"driver {written}", expected=f"driver {needs} or newer",
                     evidence=evidence)  # fmt: skip


def _forward(node: NodeFacts) -> bool:
    """Return whether a forward-compatible libcuda is installed.

    False if the directory was not collected.
    """
    if FORWARD not in node.evidence.records or not node.evidence.exists(FORWARD):
        return False
    return any(name.startswith("libcuda.so") for name in node.evidence.listing(FORWARD))


def _nccl(node: NodeFacts, made: Build) -> Iterator[Finding]:
    beside = nccl_beside(node.packages, made.package)
    wrong = [package for major, package in beside if made.major is not None and major != made.major]
    if wrong:
        names = ", ".join(f"{package.name} {package.version}" for package in wrong)
        yield warned(f"{names} is installed with PyTorch {made.package.version}, which is built for CUDA {made.cuda}",
                     subject=f"torch {made.package.version}", found=names, expected=f"nvidia_nccl_cu{made.major} alone",
                     evidence=[made.evidence, LIBRARIES])  # fmt: skip
