"""The hardware that a roofline is computed for: GPUs, NVLink and NICs."""

from __future__ import annotations

import re

from preflight._startup.lightclass import dataclass
from preflight.expectations.catalogue import GPUS, GpuModel, Part

#: Pattern of a GPU's name in the CUDA runtime, and its name in the catalogue. Sources: public outputs of nccl-tests;
#: NVIDIA's product pages.
_NAMES = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"V100-SXM[23]-\d+GB", "V100 SXM"),
        (r"A100-SXM4-\d+GB", "A100 SXM"),
        (r"A800-SXM4-\d+GB", "A800 SXM"),
        (r"H100 (?:80GB|96GB) HBM3", "H100 SXM"),
        (r"H800", "H800 SXM"),
        (r"H20", "H20"),
        (r"H200(?: 141GB HBM3e)?", "H200 SXM"),
        (r"B200", "B200 SXM"),
        (r"B300(?: SXM6(?: AC)?)?", "B300 SXM"),
        (r"GB200", "GB200"),
        (r"GB300", "GB300"),
    )
)


#: Types that NVSwitches can sum, and types for minimum and maximum. NCCL uses rings and trees for all others (NCCL 2.18
#: to 2.29, src/include/device.h, ncclNvlsSupported).
_ADDED = frozenset({"int32", "int", "uint32", "int64", "uint64", "half", "bfloat16", "float", "double"})
_COMPARED = _ADDED - {"float", "double"}


def switches_reduce(dtype: str, operation: str | None) -> bool:
    """Return whether NVSwitches can reduce values of a type with an operation.

    Both have their names in nccl-tests. The operation is None if it was not printed; it is then assumed to be the sum.
    """
    return dtype in (_COMPARED if operation in ("min", "max") else _ADDED if operation in ("sum", None) else ())


def gpu_named(name: str) -> GpuModel | None:
    """Return the SXM or NVL72 model with a CUDA name; None if unknown."""
    bare = re.sub(r"^(?:NVIDIA|Tesla) ", "", name.strip())
    for pattern, model in _NAMES:
        if pattern.fullmatch(bare):
            return next((gpu for gpu in GPUS if gpu.name == model), None)
    return None


@dataclass(frozen=True)
class RooflineMachine:
    """The hardware of identical nodes."""

    gpu: GpuModel
    gpus: int  # of a node
    domain: int  # GPUs that NVLink connects: those of a node, or the 72 of a rack
    nvswitch: bool = True
    nics: int | None = None  # NICs of a node in the compute fabric; None if unknown
    nic_gbps: float | None = None  # line rate of one NIC, Gb/s; None if unknown
    sharp: bool | None = None  # whether the fabric's switches reduce; None if unknown
    nvls: bool | None = None  # whether the NVSwitches reduce; None for NCCL's choice
    source: str = ""

    @property
    def nvlink(self) -> float:
        """The line rate of a GPU's NVLinks, GB/s per direction."""
        return self.gpu.nvlink_gbytes_s

    @property
    def nic(self) -> float | None:
        """The line rate of one NIC, GB/s; None if unknown."""
        return self.nic_gbps / 8 if self.nic_gbps is not None else None

    @property
    def node_nics(self) -> float | None:
        """The total line rate of a node's NICs, GB/s; None if unknown."""
        return self.nics * self.nic if self.nics is not None and self.nic is not None else None

    def reduces_in_switch(self, ranks: int) -> bool:
        """Return whether NCCL reduces in NVSwitches with this many ranks.

        It does so with at least 5 GPUs on Hopper and 6 on Blackwell, as measured with NCCL 2.2x.
        """
        if self.nvls is False or not self.nvswitch:
            return False
        least = {"Hopper": 5, "Blackwell": 6}.get(self.gpu.generation)
        return least is not None and ranks >= least


def machine_of(
    part: Part, gpus: int | None = None, nics: int | None = None, nic_gbps: float | None = None
) -> RooflineMachine | None:
    """Return the machine of a part.

    It is None if NVLink does not connect the GPUs, or if their number is unknown.
    """
    number = gpus if gpus is not None else part.gpus
    if number is None or not part.gpu.nvlinks:
        return None
    domain = (part.nvlink_domain or number) if part.nic_on_cpu else number
    return RooflineMachine(
        part.gpu, number, domain, part.nvswitch, nics, nic_gbps, source=f"{part.name}: {part.source}"
    )
