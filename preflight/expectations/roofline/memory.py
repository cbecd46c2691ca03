"""Bandwidths of GPU memory, from NVIDIA's datasheets."""

from __future__ import annotations

import re

from preflight.expectations.catalogue import GpuModel
from preflight.expectations.roofline.machine import gpu_named

#: GPU in the catalogue -> bytes/s. The A100 is sold with two kinds of memory, which its size distinguishes.
_BYTES_PER_S = {
    "V100 SXM": 900e9, "H100 SXM": 3350e9, "H800 SXM": 3350e9, "H20": 4000e9, "H200 SXM": 4800e9, "B200 SXM": 8000e9,
    "B300 SXM": 8000e9, "GB200": 8000e9, "GB300": 8000e9, "L4": 300e9, "L40": 864e9, "L40S": 864e9,
}  # fmt: skip
_A100 = {"40": 1555e9, "80": 2039e9}


def memory_bandwidth(gpu: GpuModel) -> float | None:
    """Return the bytes/s of a model's memory; None if unknown or ambiguous."""
    return _BYTES_PER_S.get(gpu.name)


def bandwidth_of_name(name: str) -> float | None:
    """Return the bytes/s of the memory of a GPU by CUDA name; None if unknown."""
    if size := re.fullmatch(r"(?:NVIDIA )?A100-SXM4-(40|80)GB", name.strip()):
        return _A100[size[1]]
    gpu = gpu_named(name)
    return memory_bandwidth(gpu) if gpu is not None else None
