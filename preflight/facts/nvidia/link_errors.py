"""Error counters of NVLink and PCIe of each GPU: totals, growth in a window."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.evidence.document import Evidence, EvidenceError, Record
from preflight.facts.nvidia.query import NVML
from preflight.facts.two_readings import Readings, output_of, twice
from preflight.parsers.nvidia.nvlink_errors import NVLINK_ERRORS, Counts, parse

#: Transfers per second and lane of each PCIe generation, in thousand millions.
_GIGATRANSFERS = {1: 2.5, 2: 5, 3: 8, 4: 16, 5: 32, 6: 64}


@dataclass(frozen=True)
class LinkGrowth:
    """What one NVLink gained in a window, by kind of error."""

    uuid: str
    link: int
    grown: Mapping[str, int]


def totals(evidence: Evidence) -> Counts:
    """Return the errors of each NVLink; raises EvidenceError."""
    try:
        return parse(evidence.text(NVLINK_ERRORS))
    except ValueError as error:
        raise EvidenceError(NVLINK_ERRORS, f"cannot be read: {error}") from None


def growth(evidence: Evidence) -> tuple[list[LinkGrowth], int, float]:
    """Return the links that gained errors, the number of links, and the seconds.

    A counter that went back was reset meanwhile: what it has now came since. Raises EvidenceError.
    """
    readings: Readings[Counts] = twice(evidence, NVLINK_ERRORS, lambda record: parse(output_of(record)))
    gained, links = [], 0
    for uuid, before in readings.before.items():
        after = readings.after.get(uuid)
        if after is None or set(after) != set(before):
            raise EvidenceError(NVLINK_ERRORS, f"its second reading has other links of {uuid[:60]}")
        for link, counts in before.items():
            links += 1
            grown = {
                kind: now - (was if (was := counts.get(kind, 0)) <= now else 0) for kind, now in after[link].items()
            }
            if any(grown.values()):
                gained.append(LinkGrowth(uuid, link, {kind: number for kind, number in grown.items() if number}))
    return gained, links, readings.seconds


def replay_growth(evidence: Evidence) -> tuple[Mapping[str, int], float]:
    """Return the PCIe replays that each GPU gained, and the seconds.

    Raises EvidenceError.
    """
    readings = twice(evidence, NVML, _replays)
    if not readings.before:
        raise EvidenceError(NVML, "holds no counter of PCIe replays")
    grown = {
        uuid: now - (before if before <= now else 0)
        for uuid, before in readings.before.items()
        if (now := readings.after.get(uuid)) is not None
    }
    return grown, readings.seconds


def _replays(record: Record) -> dict[str, int]:
    value: Any = record.value
    gpus = value.get("gpus") if isinstance(value, Mapping) else None
    if not isinstance(gpus, list):
        raise ValueError("holds no list of GPUs")
    return {
        str(gpu.get("uuid", "")): gpu["pcie_replays"]
        for gpu in gpus
        if isinstance(gpu, Mapping) and type(gpu.get("pcie_replays")) is int
    }


def usual_replays_per_min(generation: int | None, width: int | None) -> int | None:
    """Return the PCIe replays a minute of one wrong bit in 10^12; None: unknown."""
    if generation not in _GIGATRANSFERS or not width or not 0 < width <= 32:
        return None
    return math.ceil(_GIGATRANSFERS[generation] * 60 / 1000 * width)
