"""Error counters of each GPU's NVLinks and PCIe link: totals, and growth.

NVLink errors come from ``nvidia-smi nvlink -e``, or else from NVML.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.evidence.document import Evidence, EvidenceError, Record
from preflight.facts.nvidia.query import NVML
from preflight.facts.two_readings import Readings, output_of, twice
from preflight.parsers.nvidia.nvlink_errors import CRC, DAMAGED, FAILED, NVLINK_ERRORS, RECOVERY, REPLAY, Counts, parse

#: PCIe generation -> transfers per second and lane, in GT/s.
_GIGATRANSFERS = {1: 2.5, 2: 5, 3: 8, 4: 16, 5: 32, 6: 64}


@dataclass(frozen=True)
class LinkGrowth:
    """Error growth of one NVLink in a window, by kind."""

    uuid: str
    link: int
    grown: Mapping[str, int]


#: Field of NVML (nvml.h, NVML_FI_DEV_NVLINK_*) -> kind of error that it counts.
_FIELDS = {
    "161": REPLAY, "162": RECOVERY, "163": CRC, "206": DAMAGED, "207": DAMAGED, "208": DAMAGED, "211": DAMAGED,
    "214": FAILED, "215": RECOVERY, "219": DAMAGED,
}  # fmt: skip


def source(evidence: Evidence) -> str:
    """Return the key of the record with the NVLink errors."""
    if NVLINK_ERRORS in evidence and evidence.record(NVLINK_ERRORS).ok:
        return NVLINK_ERRORS
    try:
        return NVML if any(_of_nvml(evidence.complete_record(NVML)).values()) else NVLINK_ERRORS
    except (EvidenceError, ValueError):
        return NVLINK_ERRORS


def totals(evidence: Evidence) -> Counts:
    """Return the error counts of each NVLink; raises EvidenceError."""
    key = source(evidence)
    try:
        return parse(evidence.text(key)) if key == NVLINK_ERRORS else _of_nvml(evidence.complete_record(key))
    except ValueError as error:
        raise EvidenceError(key, f"cannot be parsed: {error}") from None


def _of_nvml(record: Record) -> Counts:
    """Return NVML's counts of each link, by UUID; raises ValueError."""
    gpus: dict[str, dict[int, dict[str, int]]] = {}
    for gpu in _gpus(record):
        links = gpus.setdefault(str(gpu.get("uuid", "")), {})
        counters = gpu.get("nvlink_errors") or {}
        if not isinstance(counters, Mapping):
            raise ValueError("nvlink_errors has no link counters")
        for link, fields in counters.items():
            if not (link.isascii() and link.isdigit() and len(link) < 4) or not isinstance(fields, Mapping):
                raise ValueError(f"{link[:20]!r} is not a link with its counters")
            counts = links.setdefault(int(link), {})
            for field, number in fields.items():
                if type(number) is not int or number < 0:
                    raise ValueError(f"the counter {field[:20]!r} of link {link} is not a number")
                if kind := _FIELDS.get(field):
                    counts[kind] = counts.get(kind, 0) + number
    return gpus


def growth(evidence: Evidence) -> tuple[list[LinkGrowth], int, float]:
    """Return the links with new errors, the number of links, and the seconds.

    A counter that decreased was reset, so its value is the growth. Raises EvidenceError.
    """
    key = source(evidence)
    readings: Readings[Counts] = twice(
        evidence, key, _of_nvml if key == NVML else lambda record: parse(output_of(record))
    )
    gained, links = [], 0
    for uuid, before in readings.before.items():
        after = readings.after.get(uuid)
        if after is None or set(after) != set(before):
            raise EvidenceError(key, f"its second reading has different links of {uuid[:60]}")
        for link, counts in before.items():
            links += 1
            grown = {
                kind: now - (was if (was := counts.get(kind, 0)) <= now else 0) for kind, now in after[link].items()
            }
            if any(grown.values()):
                gained.append(LinkGrowth(uuid, link, {kind: number for kind, number in grown.items() if number}))
    return gained, links, readings.seconds


def replay_growth(evidence: Evidence) -> tuple[Mapping[str, int], float]:
    """Return GPU UUID -> new PCIe replays, and the seconds of the window.

    Raises EvidenceError.
    """
    readings = twice(evidence, NVML, _replays)
    if not readings.before:
        raise EvidenceError(NVML, "has no PCIe replay counter")
    grown = {
        uuid: now - (before if before <= now else 0)
        for uuid, before in readings.before.items()
        if (now := readings.after.get(uuid)) is not None
    }
    return grown, readings.seconds


def _replays(record: Record) -> dict[str, int]:
    return {
        str(gpu.get("uuid", "")): gpu["pcie_replays"] for gpu in _gpus(record) if type(gpu.get("pcie_replays")) is int
    }


def _gpus(record: Record) -> list[Mapping[str, Any]]:
    """Return NVML's answers for each GPU; raises ValueError."""
    value: Any = record.value
    gpus = value.get("gpus") if isinstance(value, Mapping) else None
    if not isinstance(gpus, list):
        raise ValueError("has no list of GPUs")
    return [gpu for gpu in gpus if isinstance(gpu, Mapping)]


def usual_replays_per_min(generation: int | None, width: int | None) -> int | None:
    """Return PCIe replays per minute at a bit error rate of 1e-12; None if unknown."""
    if generation not in _GIGATRANSFERS or not width or not 0 < width <= 32:
        return None
    return math.ceil(_GIGATRANSFERS[generation] * 60 / 1000 * width)
