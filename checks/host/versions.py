"""Checks of installed software: the driver's libraries, NCCL."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from preflight import facts
from preflight.checks.applicability import no_gpu
from preflight.checks.in_logs import IN_LOGS
from preflight.expectations import Site
from preflight.facts.kernel import NVIDIA_VERSION
from preflight.facts.node import NodeFacts
from preflight.model import Finding, check, counted, failed, passed, skipped, unknown, warned
from preflight.parsers.nvidia.driver_version import driver_version


@check(
    "versions.driver-files",
    title="The driver's libraries are complete and match the kernel module's version",
    fault="The driver's libraries do not match the kernel module",
    impact="blocks-job",
    explains=IN_LOGS,
    source="NVIDIA driver README: the user-space libraries and the kernel module must have the same version",
    fix="Install one complete driver version and reboot; from an image, remove `libcuda.so*` and `libnvidia-*.so*`.",
    action="fix-site",
    answers=("PA-03",),
    unless=(no_gpu,),
)
def driver_files(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the version of the driver's libraries with the loaded kernel module's.

    Empty files are reported as well.

    ## Why it matters
    After an upgrade without a reboot, or with a library baked into an image, every CUDA call fails with
    "driver/library version mismatch"; an empty library file fails with "invalid ELF header".

    ## Verdicts
    An empty file or a different version fails. Only the version that libcuda.so.1 and libnvidia-ml.so.1 point to
    counts; other versions are harmless.

    ## False alarms
    None known. The forward-compatible libcuda in /usr/local/cuda/compat is ignored.
    """
    libraries = [library for library in node.libraries if not library.name.startswith("libnccl")]
    empty = [library.path for library in libraries if library.size_bytes == 0]
    if empty:
        yield failed(
            f"{counted(len(empty), 'driver library is an empty file', 'driver libraries are empty files')}: "
            f"{', '.join(empty[:3])}",
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
            yield unknown("the loader's usual directories contain no libcuda.so.1 or libnvidia-ml.so.1",
                          evidence=[facts.versions.LIBRARIES],
                          fix="look for them with `ldconfig -p | grep -e libcuda -e nvidia-ml`")  # fmt: skip
        return
    loaded = node.parsed(NVIDIA_VERSION, driver_version)
    wrong = {path: version for path, version in versions.items() if version != loaded}
    if wrong:
        found = " and ".join(sorted(set(wrong.values())))
        yield failed(
            f"the driver's libraries have version {found}, but the kernel module has {loaded}",
            found=found,
            expected=loaded,
            evidence=[facts.versions.LIBRARIES, NVIDIA_VERSION],
            quote="\n".join(f"{path} -> {version}" for path, version in wrong.items()),
        )
    if not wrong and not empty:
        shown = counted(len(versions), "driver library has", "driver libraries have")
        yield passed(f"{shown} the kernel module's version", found=loaded,
                     evidence=[facts.versions.LIBRARIES, NVIDIA_VERSION])  # fmt: skip


def _points_to(target: str) -> str:
    _, _, version = posixpath.basename(target).partition(".so.")
    return version if "." in version else ""


@check(
    "versions.nccl",
    title="The installed NCCL versions agree",
    fault="The system's NCCL differs from PyTorch's",
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
    With two versions, LD_LIBRARY_PATH or a plug-in decides which one is loaded, and ranks from different images fail
    or hang in their first collective.

    ## Verdicts
    Different versions warn. nccl-tests and MPI programs use the system's version. The loader's usual directories and
    the system, conda and user packages are searched.

    ## False alarms
    Jobs that use only PyTorch: its wheels load their own NCCL first.
    """
    system = facts.versions.nccl_in_use(node.libraries)
    bundled = [package for package in node.packages if package.name.startswith("nvidia_nccl")]
    versions = {f"{path}/libnccl.so.2": version for path, version in system.items()}
    versions |= {f"{package.directory} ({package.name})": package.version for package in bundled}
    found = ", ".join(f"{version} in {where}" for where, version in versions.items())
    if not versions:
        yield skipped("neither the system nor a Python package contains NCCL", evidence=[facts.versions.LIBRARIES])
    elif len(set(versions.values())) == 1:
        yield passed(
            f"only NCCL {next(iter(versions.values()))} is installed", found=found, evidence=[facts.versions.LIBRARIES]
        )
    else:
        several = " and ".join(sorted(set(versions.values())))
        yield warned(f"several NCCL versions are installed: {several}", found=found, expected="one version",
                     evidence=[facts.versions.LIBRARIES], quote=found.replace(", ", "\n"))  # fmt: skip
