"""Checks of GPUDirect RDMA on the host: peer memory, IOMMU."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.checks.applicability import is_efa_node, no_gpu, no_rdma
from preflight.expectations import Site
from preflight.facts.kernel import (
    CMDLINE,
    DMA_BUF,
    EFA_PEER_MODULE,
    IOMMU_GROUPS,
    MODULES,
    NVIDIA_VERSION,
    PEER_MODULES,
    RELEASE,
    TRANSLATED,
    iommu_is_on,
    iommu_types,
    iommu_wish,
    release,
)
from preflight.facts.node import NodeFacts
from preflight.model import Finding, all_of, check, failed, passed, skipped, some_of, unknown, warned
from preflight.parsers.nvidia.driver_version import open_modules

GUIDE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"


@check(
    "gpudirect.peer-memory",
    title="The RDMA driver can access GPU memory",
    fault="The RDMA driver cannot access GPU memory",
    impact="slows-job",
    explains=(("nccl.gpudirect-rdma", "log"),),
    source=f"{GUIDE} (GPU Direct); DMA-BUF for RDMA since kernel 5.12; NVIDIA open GPU kernel modules",
    fix="Run `modprobe nvidia-peermem` and list it in /etc/modules-load.d, or install the driver's open kernel "
    "modules.",
    action="fix-site",
    answers=("NT-GDR-1",),
    unless=(no_gpu, no_rdma),
)
def peer_memory(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Look for RDMA access to GPU memory: a peer-memory module or DMA-BUF.

    ## Why it matters
    Without either, the NIC cannot read or write GPU memory: NCCL stages every byte through host memory and the CPU, at
    a fraction of the bandwidth, and reports it only in its debug log.

    ## Verdicts
    A peer-memory module passes, and so does DMA-BUF, which requires the driver's open kernel modules and kernel 5.12; a
    node with neither fails. Distributions backport DMA-BUF, so open modules on an older kernel are unknown, never a
    failure. Two loaded peer-memory modules conflict, and warn. nvidia_peermem is not loaded automatically after a
    reboot.

    AWS EFA has its own module, efa_nv_peermem, and cannot use nvidia_peermem; without it and DMA-BUF, the result is
    unknown.

    ## False alarms
    A missing nvidia_peermem is harmless where DMA-BUF works, and passes.
    """
    of_efa = is_efa_node(node)
    loaded = [name for name in ((EFA_PEER_MODULE,) if of_efa else PEER_MODULES) if name in node.modules]
    if len(loaded) > 1:
        yield warned(
            f"{' and '.join(loaded)} are both loaded: they serve the same purpose and conflict",
            found=", ".join(loaded),
            expected="nvidia_peermem alone",
            evidence=[MODULES],
            fix="Remove the package of the older module (nv_peer_mem), then reboot.",
        )
    elif loaded:
        yield passed(f"{loaded[0]} is loaded", found=loaded[0], evidence=[MODULES])
    else:
        yield _dma_buf(node, of_efa)


def _dma_buf(node: NodeFacts, of_efa: bool) -> Finding:
    is_open = node.parsed(NVIDIA_VERSION, open_modules)
    major, minor = node.parsed(RELEASE, release)
    flavour = "open" if is_open else "proprietary"
    found = f"no peer-memory module, {flavour} kernel modules, kernel {major}.{minor}"
    keys = [MODULES, NVIDIA_VERSION, RELEASE]
    if is_open and (major, minor) >= DMA_BUF:
        return passed(
            f"RDMA can access GPU memory by DMA-BUF: open kernel modules on kernel {major}.{minor}",
            found=found,
            evidence=keys,
        )
    if of_efa:
        fix = 'run `modprobe efa_nv_peermem`; with older efa drivers, look for "GDRDMA" in the NCCL log'
        return unknown(
            "this EFA node has neither a peer-memory module nor DMA-BUF", found=found, evidence=keys, fix=fix
        )
    if is_open:
        return unknown(
            f"nvidia_peermem is not loaded, and kernel {major}.{minor} has DMA-BUF only if it was backported",
            found=found,
            expected="nvidia_peermem, or kernel 5.12",
            evidence=keys,
            fix='run `modprobe nvidia-peermem`, or look for "DMA-BUF is available" in the job\'s NCCL log',
        )
    return failed(
        "RDMA cannot access GPU memory: nvidia_peermem is not loaded, and there is no DMA-BUF",
        found=found,
        expected="nvidia_peermem, or open kernel modules on kernel 5.12",
        evidence=keys,
    )


_GROUP_TYPES = (
    "file:/sys/bus/pci/drivers/nvidia/*/iommu_group/type",
    "file:/sys/class/infiniband/*/device/iommu_group/type",
)


@check(
    "gpudirect.iommu",
    title="No IOMMU translates between GPU and NIC",
    fault="An IOMMU translates between GPU and NIC",
    impact="slows-job",
    explains=(("nccl.gpudirect-rdma", "log"),),
    source=f"{GUIDE} (PCI Access Control Services); kernel-parameters.txt (iommu=)",
    fix="Boot with `iommu=pt` (or disable the IOMMU in the firmware), then verify with `cat "
    "/sys/kernel/iommu_groups/*/type`.",
    action="fix-site",
    answers=("NT-GDR-1",),
    unless=(no_gpu, no_rdma),
)
def iommu(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Look for GPUs and NICs whose IOMMU domain translates addresses.

    ## Why it matters
    With translation, every peer-to-peer transfer goes through the root complex and the IOMMU's tables: it is slow at
    best, and hangs or fails to register memory at worst.

    ## Verdicts
    A domain that translates (DMA, DMA-FQ) fails; identity passes. Kernels since 5.11 show the domain type; on older
    ones, the boot options are read.

    ## False alarms
    Grace keeps its SMMU on by design, and passes. In a virtual machine without its own IOMMU, the host's is not
    visible, and the check does not apply.
    """
    if not iommu_is_on(node.evidence) and node.in_virtual_machine:
        yield skipped("this virtual machine has no IOMMU of its own, and the host's is not visible",
                      evidence=[IOMMU_GROUPS])  # fmt: skip
    elif not iommu_is_on(node.evidence):
        yield passed("the kernel uses no IOMMU", found="no IOMMU group", evidence=[IOMMU_GROUPS])
    else:
        yield from _by_groups(node, site)


def _by_groups(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Judge the IOMMU by the type of each device's group."""
    types = iommu_types(node.evidence, _GROUP_TYPES)
    translated = {key: word for key, word in types.items() if word in TRANSLATED}
    if site.part is not None and site.part.nic_on_cpu:
        yield passed(f"the SMMU of a {site.part.name} stays on by design", found=_words(types), evidence=[IOMMU_GROUPS])
    elif translated:
        first = next(iter(translated))
        yield failed(
            f"the IOMMU translates addresses for {some_of(len(translated), len(types), 'device')} (GPUs and NICs), "
            "expected passthrough",
            found=_words(types),
            expected="identity",
            evidence=[first, CMDLINE],
        )
    elif types:
        yield passed(
            f"the IOMMU is in passthrough mode for {all_of(len(types), 'device')} (GPUs and NICs)",
            found=_words(types),
            evidence=list(types)[:3],
        )
    else:
        yield _by_boot_options(node)


def _words(types: dict[str, str]) -> str:
    return ", ".join(sorted(set(types.values()))) or "unknown"


def _by_boot_options(node: NodeFacts) -> Finding:
    """Judge the IOMMU by the boot options, for kernels that show no group types."""
    wish = iommu_wish(node.boot_options)
    keys = [CMDLINE, IOMMU_GROUPS]
    if wish in ("passthrough", "off"):
        return passed(
            "the boot options turn the IOMMU off" if wish == "off" else "the boot options request IOMMU passthrough",
            found=wish,
            evidence=keys,
        )
    if wish:
        return failed(
            "the boot options request IOMMU translation, expected iommu=pt",
            found=" ".join(str(option) for option in node.boot_options if "iommu" in option.name),
            expected="iommu=pt",
            evidence=keys,
        )
    return unknown(
        "an IOMMU is on, and neither sysfs nor the boot options show whether it translates",
        expected="identity",
        evidence=keys,
        fix="look for `iommu: Default domain type` in `dmesg`",
    )
