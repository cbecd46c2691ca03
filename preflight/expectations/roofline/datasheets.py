"""FLOP/s and memory of GPUs, from NVIDIA's datasheets."""

from __future__ import annotations

import re

from preflight.expectations.catalogue import GpuModel
from preflight.expectations.roofline.machine import gpu_named

#: GPU in the catalogue -> FLOP/s in dense bfloat16. If a datasheet has only the figure with sparsity, half of that is
#: used.
BF16_FLOPS = {
    "A100 SXM": 312e12, "A800 SXM": 312e12, "H100 SXM": 989e12, "H800 SXM": 989e12, "H200 SXM": 989e12, "H20": 148e12,
    "B200 SXM": 2250e12, "B300 SXM": 2250e12, "GB200": 2500e12, "GB300": 2500e12,
}  # fmt: skip

#: The same in dense FP8.
FP8_FLOPS = {
    "H100 SXM": 1979e12, "H800 SXM": 1979e12, "H200 SXM": 1979e12, "H20": 296e12, "B200 SXM": 4500e12,
    "B300 SXM": 4500e12, "GB200": 5000e12, "GB300": 5000e12,
}  # fmt: skip

#: GPU in the catalogue -> bytes/s of its memory. HGX B200 and B300 have 62 TB/s for eight GPUs (on B200, 7680 bits at
#: 3996 MHz).
_MEMORY_BANDWIDTH = {
    "V100 SXM": 900e9, "A800 SXM": 2039e9, "H100 SXM": 3350e9, "H800 SXM": 3350e9, "H20": 4000e9, "H200 SXM": 4800e9,
    "B200 SXM": 7700e9, "B300 SXM": 7700e9, "GB200": 8000e9, "GB300": 8000e9, "L4": 300e9, "L40": 864e9, "L40S": 864e9,
}  # fmt: skip

#: GPU that is sold with different kinds of memory -> bytes/s of each, by its size in GiB.
_BY_SIZE: dict[str, dict[float, float]] = {"A100 SXM": {40: 1555e9, 80: 2039e9}}

#: GPU in the catalogue -> its power limit in watts.
POWER_W = {
    "V100 SXM": 300, "A100 SXM": 400, "A800 SXM": 400, "H100 SXM": 700, "H800 SXM": 700, "H200 SXM": 700,
    "B200 SXM": 1000, "B300 SXM": 1100, "GB200": 1200, "GB300": 1400,
}  # fmt: skip

#: Memory in GiB of models whose PCI IDs the catalogue does not map to a size.
_MEMORY_GIB = {"B300 SXM": 270.0, "GB300": 279.0}


def memory_gib(gpu: GpuModel) -> float | None:
    """Return the memory of a GPU model in GiB; None if unknown or of several sizes."""
    sizes = {size for _, size in gpu.sizes_gib}
    return float(sizes.pop()) if len(sizes) == 1 else _MEMORY_GIB.get(gpu.name)


def memory_bandwidth(gpu: GpuModel, gib: float | None = None) -> float | None:
    """Return the bytes/s of a model's memory; None if unknown.

    ``gib`` is the size of the memory; it identifies the kind if a model is sold with several.
    """
    kinds = _BY_SIZE.get(gpu.name)
    return _MEMORY_BANDWIDTH.get(gpu.name) if kinds is None else kinds.get(gib or 0)


def bandwidth_of_name(name: str) -> float | None:
    """Return the bytes/s of the memory of a GPU by CUDA name; None if unknown."""
    gpu = gpu_named(name)
    size = re.search(r"-(\d{1,3})GB$", name.strip())
    return memory_bandwidth(gpu, float(size[1]) if size else None) if gpu is not None else None
