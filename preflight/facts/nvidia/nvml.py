"""NVML's answers (``nvml:gpus``) as :class:`GpuHealth`.

Every value comes from a separate call, except where one call returns several.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from preflight.evidence.document import Evidence, EvidenceError
from preflight.facts.nvidia.model import (
    COMPUTE_MODES,
    FABRIC_STATES,
    NOT_REPORTED,
    RECOVERY_ACTIONS,
    Gathered,
    GpuFabric,
    GpuHealth,
    Health,
    Process,
)
from preflight.facts.nvidia.query import NVML

_MIB = 2**20

#: Fields with the same name and unit as in the answer.
_NUMBERS = (
    "temperature_c", "temperature_margin_c", "temperature_slowdown_c", "event_reasons", "pcie_generation",
    "pcie_generation_max", "pcie_width", "pcie_width_max", "performance_state", "sm_clock_mhz", "sm_clock_max_mhz",
    "application_clock_mhz", "application_clock_default_mhz", "pcie_replays",
    "cuda_cores", "ecc_volatile_dram_corrected", "ecc_volatile_dram_uncorrected", "ecc_aggregate_dram_corrected",
    "ecc_aggregate_dram_uncorrected",
)  # fmt: skip

#: Field -> key of the answer, and the index or key of the value in it.
_POSITIONS: Mapping[str, tuple[str, int]] = {
    "remapped_corrected": ("remapped_rows", 0), "remapped_uncorrected": ("remapped_rows", 1),
    "retired_single": ("retired_pages", 0), "retired_double": ("retired_pages", 1),
    "utilisation_pct": ("utilisation", 0), "memory_utilisation_pct": ("utilisation", 1),
}  # fmt: skip
_FLAGS: Mapping[str, tuple[str | int, ...]] = {
    "persistence": ("persistence",), "retired_pending": ("retired_pending",),
    "mig": ("mig", 0), "mig_pending": ("mig", 1), "ecc": ("ecc", 0), "ecc_pending": ("ecc", 1),
    "remap_pending": ("remapped_rows", 2), "remap_failure": ("remapped_rows", 3),
    "sram_threshold_exceeded": ("sram", "threshold_exceeded"),
}  # fmt: skip
_BYTES: Mapping[str, tuple[str, ...]] = {
    "memory_total_mib": ("memory_total_bytes",), "bar1_total_mib": ("bar1_total_bytes",),
    "memory_reserved_mib": ("memory", "reserved_bytes"), "memory_used_mib": ("memory", "used_bytes"),
}  # fmt: skip

#: Two-bit fields of the fabric's health mask: position -> fault (nvml.h, NVML_GPU_FABRIC_HEALTH_MASK_*).
_HEALTH_BITS = {0: "degraded bandwidth", 2: "route recovery in progress", 4: "route unhealthy",
                6: "access timeout recovery"}  # fmt: skip
_MISCONFIGURED = {
    2: "incorrect system GUID", 3: "incorrect chassis serial number", 4: "no partition", 5: "insufficient NVLinks",
    6: "incompatible GPU firmware", 7: "invalid location", 8: "GPU state invalid",
}  # fmt: skip


def read_health(evidence: Evidence) -> Health:
    """Return NVML's answers; raises EvidenceError if the record is incomplete."""
    value = evidence.value(NVML)
    try:
        return _health(value, "")
    except ValueError as error:
        raise EvidenceError(NVML, str(error)) from None


def part(evidence: Evidence) -> Health | None:
    """Return NVML's answers up to the GPU on which it hung; None if unusable."""
    try:
        record = evidence.record(NVML)
        found = _health(record.value, record.describe())
    except (EvidenceError, ValueError):
        return None
    return found if found.gpus else None


def _health(value: Any, partial: str) -> Health:
    if not isinstance(value, Mapping) or not isinstance(value.get("gpus"), list):
        raise ValueError("has no list of GPUs")
    if not isinstance(value.get("driver"), str):
        raise ValueError("has no driver version")
    gpus, silent = [], []
    for gpu in value["gpus"]:
        if not isinstance(gpu, Mapping):
            raise ValueError("an entry of the list of GPUs is not an object")
        try:
            gpus.append(_gpu(gpu, value["driver"]))
        except ValueError as error:
            silent.append(f"GPU {gpu.get('index', '?')}: {gpu.get('errors') or error}"[:200])
    return Health(value["driver"], tuple(gpus), tuple(silent), (NVML,), partial)


def _gpu(raw: Mapping[str, Any], driver: str) -> GpuHealth:
    found, number = Gathered(), _Reader(raw)
    for name in _NUMBERS:
        found.take(name, number, name)
    for name, at in _FLAGS.items():
        found.take(name, number.flag, *at)
    for name, at in _POSITIONS.items():
        found.take(name, number, *at)
    for name, at in _BYTES.items():
        found.take(name, number.mib, *at)
    for kind in ("limit", "enforced", "default"):
        found.take(f"power_{kind}_w", number.thousandth, f"power_{kind}_mw")
    for name in ("name", "vbios", "inforom", "gsp", "serial"):
        found.take(name, number.text, name)
    for span in ("volatile", "aggregate"):
        for severity in ("corrected", "uncorrected"):
            found.take(f"ecc_{span}_sram_{severity}", _sram, number, span, severity)
    found.take("remap_banks", lambda: tuple(number("remap_banks", position) for position in range(5)))
    found.take("recovery_action", number.word, "recovery_action", RECOVERY_ACTIONS)
    found.take("compute_mode", number.word, "compute_mode", COMPUTE_MODES)
    found.take("fabric", _fabric, number)
    found.take("processes", _processes, number)
    found.take("links", _links, number)
    found.take("link_gbytes_s", number.thousandth, "nvlink", "speed_mbytes_s")
    return found.gpu(number("index"), number.text("bus_id"), number.text("uuid"), driver)


class _Reader:
    """Access to one GPU's answers; a ValueError is the reason for a missing value."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self._raw = raw

    def raw(self, key: str) -> Any:
        """Return NVML's answer to one call; raises ValueError."""
        if key in self._raw:
            return self._raw[key]
        refused = self._raw.get("not_supported")
        if isinstance(refused, list) and key in refused:
            raise ValueError(NOT_REPORTED)
        errors = self._raw.get("errors")
        if isinstance(errors, Mapping) and key in errors:
            raise ValueError(str(errors[key])[:200])
        raise ValueError("not in the output")

    def __call__(self, key: str, inside: str | int | None = None) -> int:
        """Return an integer, or one inside a list or an object; raises ValueError."""
        value = self.raw(key)
        if isinstance(inside, int):
            value = value[inside] if isinstance(value, list) and len(value) > inside else None
        elif inside is not None:
            value = value.get(inside) if isinstance(value, Mapping) else None
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"{key} is {str(value)[:60]!r}, not a number")
        if abs(value) >= 2**64:  # NVML's numbers have 64 bits
            raise ValueError(f"{key} is larger than any number of NVML")
        return value

    def flag(self, key: str, inside: str | int | None = None) -> bool:
        """Return whether a number is not 0."""
        return bool(self(key, inside))

    def mib(self, key: str, inside: str | int | None = None) -> int:
        """Return a number of bytes in MiB."""
        return round(self(key, inside) / _MIB)

    def thousandth(self, key: str, inside: str | int | None = None) -> float:
        """Return a number of mW in W, or of MB/s in GB/s."""
        return self(key, inside) / 1000

    def text(self, key: str) -> str:
        """Return a non-empty string; raises ValueError."""
        value = self.raw(key)
        if not isinstance(value, str) or not value:
            raise ValueError(f"{key} is {str(value)[:60]!r}, not a text")
        return value

    def word(self, key: str, words: Mapping[int, str]) -> str:
        """Return nvidia-smi's name for a number, or ``unknown (N)``."""
        value = self(key)
        return words.get(value, f"unknown ({value})")


def _sram(number: _Reader, span: str, severity: str) -> int:
    """Return SRAM errors, which newer drivers report in a separate call."""
    try:
        return number(f"ecc_{span}_sram_{severity}")
    except ValueError as error:
        try:
            return number("sram", f"{span}_{severity}")
        except ValueError:
            raise error from None


def _fabric(number: _Reader) -> GpuFabric:
    state = number("fabric", "state")
    if state == 0:
        raise ValueError(NOT_REPORTED)
    raw = number.raw("fabric")
    status, uuid, mask = number("fabric", "status"), raw.get("cluster_uuid"), raw.get("health_mask")
    return GpuFabric(
        state=FABRIC_STATES.get(state, f"unknown ({state})"),
        status="Success" if status == 0 else f"NVML error {status}",
        faults=_faults(mask) if isinstance(mask, int) else (),
        clique=number("fabric", "clique"),
        cluster_uuid=uuid if isinstance(uuid, str) else "",
    )


def _faults(mask: int) -> tuple[str, ...]:
    found = [fault for shift, fault in _HEALTH_BITS.items() if mask >> shift & 3 == 1]
    wrong = mask >> 8 & 15
    if wrong > 1:
        found.append("incorrect configuration: " + _MISCONFIGURED.get(wrong, f"unknown ({wrong})"))
    return tuple(found)


def _processes(number: _Reader) -> tuple[Process, ...]:
    value = number.raw("processes")
    if not isinstance(value, list):
        raise ValueError("processes is not a list")
    return tuple(sorted((_process(one) for one in value), key=lambda process: process.pid))


def _process(raw: Any) -> Process:
    one = _Reader(raw if isinstance(raw, Mapping) else {})
    found = Gathered()
    found.take("used_mib", one.mib, "used_bytes")
    found.take("name", one.text, "name")
    return Process(one("pid"), found.values.get("name", ""), found.values.get("used_mib"))


def _links(number: _Reader) -> tuple[bool, ...]:
    value = number.raw("nvlink")
    states = value.get("active") if isinstance(value, Mapping) else None
    if not isinstance(states, list):
        raise ValueError("nvlink names no states")
    if wrong := [state for state in states if state not in (0, 1)]:
        raise ValueError(f"the state of {len(wrong)} links: {str(wrong[0])[:60]}")
    return tuple(state == 1 for state in states)
