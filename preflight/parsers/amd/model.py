"""AMD GPUs as typed values, the same from ``amd-smi`` and ``rocm-smi``.

A field is None, or empty, if the text does not show it, or shows ``N/A``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from preflight._startup.lightclass import dataclass, field
from preflight.textprep.agreement import counted

#: PCIe generation -> transfer rate of a lane in GT/s.
RATES = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}

#: Limit of valid values; larger ones, infinity and NaN are damaged text.
_MOST = 1e15
_NUMBER = re.compile(r"(-?\d{1,15}(?:\.\d{1,6})?)(?:\s?(?:°?[A-Za-z][A-Za-z/]{0,8}|%))?")


@dataclass(frozen=True)
class AmdErrors:
    """Memory errors that a GPU has counted in a block, or in all blocks."""

    block: str  # UMC (memory), GFX, …; "total"
    corrected: int | None = None
    uncorrected: int | None = None
    deferred: int | None = None  # uncorrected data that nothing has read yet


@dataclass(frozen=True)
class AmdLink:
    """The path from a GPU to another one."""

    type: str  # XGMI, PCIE, or another word as printed
    status: str = ""  # ENABLED, DISABLED


@dataclass(frozen=True)
class AmdProcess:
    """A process on a GPU."""

    pid: int
    name: str


@dataclass(frozen=True)
class AmdGpu:
    """One GPU."""

    index: int
    address: str = ""  # PCI address as printed
    product: str | None = None
    driver: str | None = None
    vbios: str | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_replays: int | None = None
    errors: tuple[AmdErrors, ...] = ()
    ras: Mapping[str, str] = field(default_factory=dict)  # block -> ENABLED or DISABLED
    temperatures_c: Mapping[str, float] = field(default_factory=dict)  # edge, hotspot, mem
    slowdown_c: Mapping[str, float] = field(default_factory=dict)  # slowdown limit of each sensor
    throttled: tuple[str, ...] | None = None  # active thermal reasons: hbm_thermal, …; ``unnamed`` if not printed
    power_limit_w: float | None = None
    memory_total_mib: int | None = None
    memory_used_mib: int | None = None
    utilization_percent: int | None = None
    links: Mapping[int, AmdLink] = field(default_factory=dict)  # index of the other GPU -> path
    processes: tuple[AmdProcess, ...] | None = None


@dataclass(frozen=True)
class AmdReport:
    """The GPUs of one output."""

    gpus: tuple[AmdGpu, ...]


def measure(value: Any) -> float | None:
    """Return the number in a value, or None.

    Forms: ``16``, ``"16 GT/s"``, ``{"value": 16, "unit": "GT/s"}``.
    """
    if isinstance(value, Mapping):
        value = value.get("value")
    if isinstance(value, str) and (match := _NUMBER.fullmatch(value.strip())):
        return float(match[1])
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < _MOST:
        return None
    return float(value)


def count(value: Any) -> int | None:
    """Return the integer in a value, or None."""
    number = measure(value)
    return None if number is None else int(number)


def word(value: Any) -> str | None:
    """Return a string of at most 200 characters; None if empty or ``N/A``."""
    text = value.strip()[:200] if isinstance(value, str) else ""
    return None if text in ("", "N/A") else text


def generation(rate: Any) -> int | None:
    """Return the PCIe generation of a transfer rate in GT/s, or None."""
    number = measure(rate)
    return next((number_of for number_of, gt_s in RATES.items() if gt_s == number), None)


def facts(report: AmdReport) -> dict[str, Any]:
    """Return the GPUs as `preflight read --json` prints them.

    Names are those of ``nvidia-smi -q`` where it has the value.
    """
    return {
        "driver": next((gpu.driver for gpu in report.gpus if gpu.driver), None),
        "gpus": [
            {
                "index": gpu.index, "bus_id": gpu.address or None, "product": gpu.product, "vbios": gpu.vbios,
                "pcie": {
                    "generation_current": gpu.pcie_generation, "generation_max": gpu.pcie_generation_max,
                    "width_current": gpu.pcie_width, "width_max": gpu.pcie_width_max, "replays": gpu.pcie_replays,
                },
                "errors": {
                    item.block: {"correctable": item.corrected, "uncorrectable": item.uncorrected,
                                 "deferred": item.deferred} for item in gpu.errors
                },
                "ras": dict(gpu.ras), "temperature_c": gpu.temperatures_c.get("hotspot"),
                "temperatures_c": dict(gpu.temperatures_c), "slowdown_c": dict(gpu.slowdown_c),
                "throttled": None if gpu.throttled is None else list(gpu.throttled),
                "power_limit_w": gpu.power_limit_w, "memory_total_mib": gpu.memory_total_mib,
                "memory_used_mib": gpu.memory_used_mib, "utilization_gpu_percent": gpu.utilization_percent,
                "links": {f"GPU{peer}": {"type": link.type, "status": link.status or None}
                          for peer, link in gpu.links.items()},
                "processes": None if gpu.processes is None else [
                    {"pid": process.pid, "name": process.name or None} for process in gpu.processes
                ],
            }
            for gpu in report.gpus
        ],
    }  # fmt: skip


def summary(report: AmdReport) -> str:
    """Return a one-line summary of the GPUs."""
    products = sorted({gpu.product for gpu in report.gpus if gpu.product})
    named = f" ({', '.join(products[:3])})" if products else ""
    return f"{counted(len(report.gpus), 'AMD GPU')}{named}"
