"""Error counters of every NVLink, as ``nvidia-smi nvlink -e`` prints them.

Up to NVLink 4 each link has ``Replay Errors``, ``Recovery Errors`` and ``CRC Errors``; NVLink 5 has other names, some
of them for what forward error correction repaired. A name that is not known is passed over: each driver adds some.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from preflight.textprep.plain_text import normalize_text

NVLINK_ERRORS = "cmd:nvidia-smi nvlink -e"

#: Kinds of error, and the names that count as each; those that a link corrected (symbols, FEC) are not errors.
CRC, REPLAY, RECOVERY, FAILED, DAMAGED = "CRC", "replay", "recovery", "failed recovery", "damaged packet"
_KINDS = (
    (re.compile(r"CRC (?:FLIT |data )?errors?", re.I), CRC),
    (re.compile(r"replay errors?", re.I), REPLAY),
    (re.compile(r"recovery errors?|total link recovery events", re.I), RECOVERY),
    (re.compile(r"link recovery failed events", re.I), FAILED),
    (re.compile(r"(?:malformed packet|buffer overrun|rx|local link integrity|effective) errors?", re.I), DAMAGED),
)

_GPU = re.compile(r"GPU [0-9]{1,3}: .{1,120}\(UUID: (GPU-[0-9A-Za-z-]{1,60})\)")
_COUNTER = re.compile(r"Link ([0-9]{1,3}): ([A-Za-z][A-Za-z0-9 /_-]{1,60}?) ?: (\S.{0,60})")
_SILENT = re.compile(r"NVML: Unable to retrieve NVLink information.{0,60}|Device does not have or support nvlink", re.I)
_NONE = re.compile(r"\[?N/A\]?|not supported", re.I)

#: Counters of one text: 16 GPUs with 18 links of 20 counters are 5760.
_MOST = 50_000

#: UUID -> link -> kind -> number; a GPU without links or counters has none.
Counts = Mapping[str, Mapping[int, Mapping[str, int]]]


def parse(text: str) -> Counts:
    """Read the errors of each link by the GPU's UUID; raises ValueError."""
    gpus: dict[str, dict[int, dict[str, int]]] = {}
    links: dict[int, dict[str, int]] | None = None
    counters = 0
    for line in (line.strip() for line in normalize_text(text).split("\n")):
        if match := _GPU.fullmatch(line):
            links = gpus[match[1]] = {}
        elif (match := _COUNTER.fullmatch(line)) and links is not None:
            counters += 1
            if counters > _MOST:
                raise ValueError(f"it has more than {_MOST} counters")
            kind = next((kind for names, kind in _KINDS if names.fullmatch(match[2])), None)
            if kind is None or _NONE.fullmatch(match[3]):
                continue
            if not re.fullmatch(r"[0-9]{1,20}", match[3]):
                raise ValueError(f"{line[:100]!r} holds no number")
            counts = links.setdefault(int(match[1]), {})
            counts[kind] = counts.get(kind, 0) + int(match[3])
        elif line and not _SILENT.fullmatch(line):
            raise ValueError(f"{line[:100]!r} is neither a GPU nor a counter of a link")
    if not gpus:
        raise ValueError("it names no GPU")
    return gpus
