"""Compatibility of driver, CUDA, PyTorch and NCCL."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.checks.applicability import no_gpu
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
    """Report a node without a PyTorch, or of which that is not known."""
    if _torches(node):
        return None
    looked = [key for key in node.evidence.records if key.endswith(".dist-info/INSTALLER")]
    if not looked or any(node.evidence.record(key).status not in ("missing", "ok") for key in looked):
        return unknown("whether a PyTorch is installed is not known", evidence=sorted(looked)[:3] or [_LOOKED_AT])
    return skipped("no PyTorch is installed here: check in the job's image", evidence=sorted(looked)[:3]).about()


@check(
    "versions.compatibility",
    title="The driver runs the CUDA that PyTorch and NCCL were built for",
    fault="The driver is too old for the CUDA of PyTorch or NCCL",
    impact="blocks-job",
    source=f"{GUIDE}; forward compatibility: the cuda-compat package",
    fix="Install a driver of the CUDA that PyTorch was built for (`torch.version.cuda`), or a PyTorch of the driver's "
    "major version; keep one nvidia-nccl package beside it.",
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
    """Compare driver and NCCL with the CUDA of each installed PyTorch.

    ## Why it matters
    A driver that is older than the CUDA of PyTorch ends each job at its first call with "CUDA driver version is
    insufficient for CUDA runtime version", also where all nodes agree on it. Two NCCL packages for different
    CUDA versions write over each other's library.

    ## Verdicts
    Within one major version any minor version runs (11: driver 450.80.02, 12: 525.60.13, 13: 580 and newer); an
    older driver fails. With the libcuda of a cuda-compat package it is unknown, as the job's LD_LIBRARY_PATH decides. A
    PyTorch without CUDA warns, and so does an nvidia-nccl package for another major version of CUDA. Looked at: the
    packages of the system, conda and the user; which of several a job takes is not known, so each is judged.

    Without a PyTorch here it does not apply, and the checklist stays open: jobs bring it in their image, where
    `preflight check` has to run then.

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
                     found="no CUDA", expected="a build for CUDA", evidence=evidence)  # fmt: skip
        return
    enough = runs(version, made.major)
    needs = ".".join(f"{part:02d}" for part in OLDEST_DRIVER.get(made.major, ()))
    if enough is None:
        yield unknown(f"PyTorch {made.package.version} is built for CUDA {made.cuda}, and the oldest driver of that is "
                      "not in the table", subject=subject, evidence=evidence, fix=f"see {GUIDE}")  # fmt: skip
    elif not enough and _forward(node):
        yield unknown(
            f"driver {written} is older than CUDA {made.major}, and a cuda-compat package is here: whether jobs load "
            "it is not known", subject=subject, found=written, expected=f"driver {needs} or newer",
            evidence=[*evidence, FORWARD], fix="in the job: `python -c 'import torch; torch.zeros(1).cuda()'`",
        )  # fmt: skip
    elif not enough:
        yield failed(f"driver {written} is too old for PyTorch {made.package.version}, which is built for CUDA "
                     f"{made.cuda}", subject=subject, found=f"driver {written}", expected=f"driver {needs} or newer",
                     evidence=evidence)  # fmt: skip


def _forward(node: NodeFacts) -> bool:
    """Return whether a forward-compatible libcuda is installed.

    Unknown where the directory was not read.
    """
    if FORWARD not in node.evidence.records or not node.evidence.exists(FORWARD):
        return False
    return any(name.startswith("libcuda.so") for name in node.evidence.listing(FORWARD))


def _nccl(node: NodeFacts, made: Build) -> Iterator[Finding]:
    beside = nccl_beside(node.packages, made.package)
    wrong = [package for major, package in beside if made.major is not None and major != made.major]
    if wrong:
        names = ", ".join(f"{package.name} {package.version}" for package in wrong)
        yield warned(f"{names} is beside PyTorch {made.package.version}, which is built for CUDA {made.cuda}",
                     subject=f"torch {made.package.version}", found=names, expected=f"nvidia_nccl_cu{made.major} alone",
                     evidence=[made.evidence, LIBRARIES])  # fmt: skip
