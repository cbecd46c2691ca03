"""Error counters of NVLinks, from ``nvidia-smi nvlink -e``.

Up to NVLink 4 each link has ``Replay Errors``, ``Recovery Errors`` and ``CRC Errors``; NVLink 5 has other names, some
of them for errors corrected by FEC. Unknown names are skipped, because each driver adds some.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from preflight.parsers.nvidia import nvlink_error_text
from preflight.textprep.lines import Line
from preflight.textprep.plain_text import normalize_text

NVLINK_ERRORS = "cmd:nvidia-smi nvlink -e"

#: Kinds of error, and the names of their counters; corrected ones (symbols, FEC) are not errors.
CRC, REPLAY, RECOVERY, FAILED, DAMAGED = "CRC", "replay", "recovery", "failed recovery", "damaged packet"
_KINDS = (
    (re.compile(r"CRC (?:FLIT |data )?errors?", re.I), CRC),
    (re.compile(r"replay errors?", re.I), REPLAY),
    (re.compile(r"recovery errors?|total link recovery events", re.I), RECOVERY),
    (re.compile(r"link recovery failed events", re.I), FAILED),
    (re.compile(r"(?:malformed packet|buffer overrun|rx|local link integrity|effective) errors?", re.I), DAMAGED),
)

#: UUID -> link -> kind -> number; a GPU without links or counters has none.
Counts = Mapping[str, Mapping[int, Mapping[str, int]]]


def kind_of(name: str) -> str | None:
    """Return the kind of error of a counter's name.

    None for corrected errors and unknown names.
    """
    return next((kind for names, kind in _KINDS if names.fullmatch(name)), None)


def parse(text: str) -> Counts:
    """Read the errors of each link by the GPU's UUID; raises ValueError."""
    lines = [Line(number, line) for number, line in enumerate(normalize_text(text).split("\n"), 1)]
    start = next((at for at, line in enumerate(lines) if line.text.strip()), 0)
    parsed = nvlink_error_text.parse_lines(lines, start)
    rest = next((line for line in lines[parsed.end :] if line.text.strip()), None)
    if rest is not None:
        raise ValueError(f"{rest.text.strip()[:100]!r} is neither a GPU nor a counter of a link")
    gpus = parsed.required()
    if not gpus:
        raise ValueError("it names no GPU")
    return {gpu.uuid: by_kind(gpu.links) for gpu in gpus if gpu.uuid}


def by_kind(links: Mapping[int, Mapping[str, int]]) -> dict[int, dict[str, int]]:
    """Return the counters of each link by kind instead of by name."""
    counts: dict[int, dict[str, int]] = {}
    for link, counters in links.items():
        for name, number in counters.items():
            if (kind := kind_of(name)) is not None:
                kinds = counts.setdefault(link, {})
                kinds[kind] = kinds.get(kind, 0) + number
    return counts
