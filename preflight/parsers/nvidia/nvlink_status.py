"""``nvidia-smi nvlink -s``: which NVLinks are up and at which rate, where NVML was not asked or did not say."""

from __future__ import annotations

import re

from preflight._startup.lightclass import dataclass
from preflight.textprep.plain_text import normalize_text

NVLINK = "cmd:nvidia-smi nvlink -s"

_GPU = re.compile(r"GPU [0-9]{1,3}: .{1,120}\(UUID: (GPU-[0-9A-Za-z-]{1,60})\)")
_LINK = re.compile(r"Link ([0-9]{1,3}): (?:([0-9]{1,5}(?:\.[0-9]{1,4})?) GB/s|<?inactive>?)", re.I)


@dataclass(frozen=True)
class Links:
    """The NVLinks of one GPU."""

    up: tuple[bool, ...]  # by link number; empty where the tool says that none is up
    gbytes_s: float | None  # rate of the slowest that is up, per direction


def parse(text: str) -> dict[str, Links]:
    """Read the links of each GPU by its UUID; raises ValueError with the line that cannot be read."""
    found: dict[str, list[float | None]] = {}
    uuid = ""
    for line in (line.strip() for line in normalize_text(text).split("\n")):
        if match := _GPU.fullmatch(line):
            uuid = match[1]
            found[uuid] = []
        elif (match := _LINK.fullmatch(line)) and uuid:
            if int(match[1]) != len(found[uuid]):
                raise ValueError(f"{line!r} is not link {len(found[uuid])} of {uuid}: the text is damaged")
            found[uuid].append(float(match[2]) if match[2] else None)
        elif line and "all links are inactive" not in line.lower():
            raise ValueError(f"{line[:100]!r} is neither a GPU nor a link")
    if not found:
        raise ValueError("it names no GPU")
    return {uuid: _links(rates) for uuid, rates in found.items()}


def _links(rates: list[float | None]) -> Links:
    known = [rate for rate in rates if rate is not None]
    return Links(tuple(rate is not None for rate in rates), min(known, default=None))
