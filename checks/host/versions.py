"""Installed software: the driver's libraries, NCCL."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from preflight import facts
from preflight.checks.applicability import no_gpu
from preflight.expectations import Site
from preflight.facts.kernel import NVIDIA_VERSION
from preflight.facts.node import NodeFacts
from preflight.model import Finding, check, failed, passed, skipped, unknown, warned
from preflight.parsers.nvidia.driver_version import driver_version


@check(
    "versions.driver-files",
    title="The driver's libraries are complete and match the kernel module's version",
    fault="The driver's libraries do not fit the kernel module",
    impact="blocks-job",
    source="NVIDIA driver README: the user-space libraries and the kernel module are of one version",
    fix="Install one complete driver version and reboot; in an image remove its own `libcuda.so*` and "
    "`libnvidia-*.so*`.",
    action="fix-site",
    answers=("PA-03",),
    unless=(no_gpu,),
)
def driver_files(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the driver's libraries with the loaded kernel module's version.

    Empty files are reported as well.

    ## Why it matters
    After an upgrade without a reboot, or with a library baked into an image, every CUDA call ends in
    "driver/library version mismatch"; a file of zero bytes in "invalid ELF header".

    ## Verdicts
    A file of zero bytes and another version both fail. Only the version that libcuda.so.1 and libnvidia-ml.so.1
    point to counts: others beside it are harmless.

    ## False alarms
    The forward-compatible libcuda in /usr/local/cuda/compat is not a mismatch, and is ignored.
    """
    libraries = [library for library in node.libraries if not library.name.startswith("libnccl")]
    empty = [library.path for library in libraries if library.size_bytes == 0]
    if empty:
        yield failed(
            f"{len(empty)} driver libraries are empty files: {', '.join(empty[:3])}",
            subject=empty[0] if len(empty) == 1 else "",
            found="0 bytes",
            expected="a shared library",
            evidence=[facts.versions.LIBRARIES],
            quote="\n".join(empty[:8]),
        )
    in_use = [lib for lib in libraries if lib.name in ("libcuda.so.1", "libnvidia-ml.so.1") and lib.target]
    versions = {lib.path: version for lib in in_use if (version := _points_to(lib.target))}
    if not versions:
        if not empty:
            yield unknown("no libcuda.so.1 or libnvidia-ml.so.1 in the loader's usual directories",
                          evidence=[facts.versions.LIBRARIES],
                          fix="look for them with `ldconfig -p | grep -e libcuda -e nvidia-ml`")  # fmt: skip
        return
    loaded = node.parsed(NVIDIA_VERSION, driver_version)
    wrong = {path: version for path, version in versions.items() if version != loaded}
    if wrong:
        found = " and ".join(sorted(set(wrong.values())))
        yield failed(
            f"the driver's libraries are {found}, the kernel module {loaded}",
            found=found,
            expected=loaded,
            evidence=[facts.versions.LIBRARIES, NVIDIA_VERSION],
            quote="\n".join(f"{path} -> {version}" for path, version in wrong.items()),
        )
    if not wrong and not empty:
        yield passed(f"{len(versions)} driver libraries are of the kernel module's version", found=loaded,
                     evidence=[facts.versions.LIBRARIES, NVIDIA_VERSION])  # fmt: skip


def _points_to(target: str) -> str:
    _, _, version = posixpath.basename(target).partition(".so.")
    return version if "." in version else ""


@check(
    "versions.nccl",
    title="There is one NCCL, or the one that PyTorch brought",
    fault="Another NCCL is installed than PyTorch brought",
    impact="drifts",
    source="PyTorch's wheels load the NCCL of their own nvidia-nccl package by RPATH; ld.so(8), LD_LIBRARY_PATH",
    fix="Remove the system's `libnccl.so*` from images with PyTorch wheels, or install the same version.",
    action="fix-site",
    answers=("NT-PIT-4",),
    reads=("file:*.dist-info/INSTALLER",),
    unless=(no_gpu,),
)
def nccl(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the system's NCCL version with that of PyTorch's package.

    ## Why it matters
    With two, LD_LIBRARY_PATH or a plug-in decides which one is loaded, and ranks from different images
    fail in their first collective or hang in it.

    ## Verdicts
    Different versions warn. nccl-tests and MPI programs take the system's. Looked at: the loader's usual
    directories, and the packages of the system, conda and the user.

    ## False alarms
    PyTorch's wheels find their own NCCL first, so jobs that are PyTorch alone never meet the other
    one.
    """
    system = facts.versions.nccl_in_use(node.libraries)
    bundled = [package for package in node.packages if package.name.startswith("nvidia_nccl")]
    versions = {f"{path}/libnccl.so.2": version for path, version in system.items()}
    versions |= {f"{package.directory} ({package.name})": package.version for package in bundled}
    found = ", ".join(f"{version} in {where}" for where, version in versions.items())
    if not versions:
        yield skipped("neither the system nor a Python package here has an NCCL", evidence=[facts.versions.LIBRARIES])
    elif len(set(versions.values())) == 1:
        yield passed(f"one NCCL: {next(iter(versions.values()))}", found=found, evidence=[facts.versions.LIBRARIES])
    else:
        several = " and ".join(sorted(set(versions.values())))
        yield warned(f"several NCCL versions are installed: {several}", found=found, expected="one version",
                     evidence=[facts.versions.LIBRARIES], quote=found.replace(", ", "\n"))  # fmt: skip
