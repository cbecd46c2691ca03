"""Support for GPUDirect RDMA by GPU name and network, and fixes by network.

Sources: CUDA's GPUDirect RDMA documentation (data-centre and professional GPUs), NVIDIA DGX Spark release notes (GB10
has none), AWS's EFA documentation (GPUs of p4d and later).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from preflight._startup.lightclass import dataclass

#: Products without GPUDirect RDMA, then products with it.
_NEVER = re.compile(r"\bGB10\b|\bGeForce\b|\bTITAN\b|\bGTX\b|\bRTX [2-9]0[5-9]0\b|\bJetson\b|\b(?:Orin|Thor)\b", re.I)
_ABLE = re.compile(
    r"\b(?:[AHB][1-9]\d{1,2}X?|H20|H800|A800|GH200|GB[23]00|L4|L20|L40S?|A[23]0?|A1[06]G?|[VPT]100|T4|P4|P40|K[48]0)\b"
    r"|\bRTX (?:A\d{4}|PRO \d{4}|\d{4} Ada)\b|\bQuadro\b|\bTesla\b",
    re.I,
)
#: GPUs of the EFA instances with NICs that reach GPU memory: p4d and later of the P family.
_OF_EFA = re.compile(r"\b(?:A100|H100|H200|B[23]00|GH200|GB[23]00)\b", re.I)
#: File name of AWS topology files: ``p5.48xl-topo.xml``.
_EFA_SHAPE = re.compile(r"\b(p4d|p4de|p5|p5e|p5en|p6|p6e)[.-]", re.I)


@dataclass(frozen=True)
class NetworkFamily:
    """A family of NCCL networks: names, GPUDirect support, and what to do without it."""

    names: re.Pattern[str]
    able: bool | None  # None: depends on the GPU, or unknown
    fix: str


_LOCALITY = (
    "Run `nvidia-smi topo -m`: each GPU needs a NIC behind its own PCIe switch. Move the NIC to another slot; in a "
    "virtual machine, describe the topology in NCCL_TOPO_FILE. NCCL_NET_GDR_LEVEL=PHB allows GPUDirect across a host "
    "bridge."
)
EFA = NetworkFamily(
    re.compile(r"AWS Libfabric|Libfabric|OFI", re.I), None,
    "Read the plug-in's own lines (NET/OFI): an aws-ofi-nccl of the EFA installer, provider efa, "
    "FI_EFA_USE_DEVICE_RDMA=1 where libfabric is older than 1.18; placement as in NCCL_TOPO_FILE of the instance.",
)  # fmt: skip
NETWORKS = (
    EFA,
    NetworkFamily(
        re.compile(r"FasTrak(?:_v\d{1,2})?", re.I), None,
        "Read the plug-in's own lines (NET/FasTrak): its receive daemon (tcpgpudmarxd) must run "
        "beside the job, in the same release as the plug-in, with the variables of its nccl-env-profile.sh.",
    ),
    NetworkFamily(
        re.compile(r"GPUDirectTCPX(?:_v\d{1,2})?", re.I), None,
        "Read the plug-in's own lines (NET/GPUDirectTCPX): its receive daemon (tcpgpudmarxd) must run beside the job, "
        "and NCCL_GPUDIRECTTCPX_SOCKET_IFNAME name the GPU NICs.",
    ),
    NetworkFamily(
        re.compile(r"gIB", re.I), True,
        "Source the plug-in's set_nccl_env.sh on all nodes, and leave NCCL_NET_GDR_LEVEL as it sets it (PIX).",
    ),
    NetworkFamily(
        re.compile(r"UCX.*", re.I), True,
        f"{_LOCALITY}. For the UCX plug-in, `ucx_info -d` must list cuda memory for the ib transports (UCX with CUDA), "
        "and UCX_IB_GPU_DIRECT_RDMA must not be no.",
    ),
    NetworkFamily(
        re.compile(r"SHARP.*", re.I), True,
        f"{_LOCALITY}. The SHARP plug-in (HPC-X) registers GPU memory as NET/IB does; compare with "
        "NCCL_COLLNET_ENABLE=0.",
    ),
    NetworkFamily(
        re.compile(r"IB|IBext(?:_v\d{1,2})?|NCCL RDMA Plugin.*", re.I), True,
        f"{_LOCALITY}. Then check ACS and the IOMMU (gpudirect.path, gpudirect.iommu). Last, run `modprobe "
        "nvidia-peermem`, or use the driver's open kernel modules (DMA-BUF).",
    ),
)  # fmt: skip
_OTHER = NetworkFamily(re.compile(".*"), None, "See the documentation of this network plug-in on GPUDirect RDMA.")


@dataclass(frozen=True)
class Ability:
    """Whether GPUDirect RDMA is possible, and ``why``.

    ``able`` is None if the GPU or network is not named, or its support is not known.
    """

    able: bool | None
    why: str


def network_of(name: str) -> NetworkFamily:
    """Return the family of a network, given NCCL's name for it."""
    return next((known for known in NETWORKS if known.names.fullmatch(name)), _OTHER)


def ability(network: str, gpus: Iterable[str], shape: str = "") -> Ability:
    """Return the ability of GPUs to use GPUDirect RDMA over a network, and why.

    ``shape`` is the name of a topology file.
    """
    names, family = sorted({name.strip() for name in gpus if name.strip()}), network_of(network)
    if never := [name for name in names if _NEVER.search(name)]:
        return Ability(False, f"{never[0]} has no GPUDirect RDMA")
    if family is EFA:
        if match := _EFA_SHAPE.search(shape):
            return Ability(True, f"{match[1]} instances have it")
        if names and all(_OF_EFA.search(name) for name in names):
            return Ability(True, f"{names[0]} instances with EFA have it")
        if names and not any(_OF_EFA.search(name) for name in names) and all(_ABLE.search(name) for name in names):
            return Ability(False, f"EFA of {names[0]} instances (before p4d) stages through host memory")
        return Ability(None, "the text does not name the GPU")
    if not names:
        return Ability(None, "the text does not name the GPU")
    if not all(_ABLE.search(name) for name in names):
        return Ability(None, f"it is not known whether {names[0]} supports GPUDirect RDMA")
    if family.able is None:
        return Ability(None, f"it is not known whether the channel lines of NET/{network} show GPUDirect RDMA")
    return Ability(True, f"{names[0]} has it")
