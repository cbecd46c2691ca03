"""NVLink error counters, from ``nvidia-smi nvlink -e``.

Up to NVLink 4, each link has ``Replay Errors``, ``Recovery Errors`` and ``CRC Errors``. NVLink 5 has other counters,
some of them for errors that FEC corrected. Unknown names are skipped, because new drivers add counters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from preflight.parsers.nvidia import nvlink_error_text
from preflight.textprep.lines import Line
from preflight.textprep.plain_text import normalize_text

NVLINK_ERRORS = "cmd:nvidia-smi nvlink -e"

#: Kinds of errors, and the names of their counters. Corrected symbol and FEC errors are not counted as errors.
CRC, REPLAY, RECOVERY, FAILED, DAMAGED = "CRC", "replay", "recovery", "failed recovery", "damaged packet"
_KINDS = (
    (re.compile(r"CRC (?:FLIT |data )?errors?", re.I), CRC),
    (re.compile(r"replay errors?", re.I), REPLAY),
    (re.compile(r"recovery errors?|total link recovery events", re.I), RECOVERY),
    (re.compile(r"link recovery failed events", re.I), FAILED),
    (re.compile(r"(?:malformed packet|buffer overrun|rx|local link integrity|effective) errors?", re.I), DAMAGED),
)

#: UUID -> link -> kind -> number; empty for a GPU without links or counters.
Counts = Mapping[str, Mapping[int, Mapping[str, int]]]


def kind_of(name: str) -> str | None:
    """Return the kind of error that a counter counts.

    It is None for corrected errors and unknown names.
    """
    return next((kind for names, kind in _KINDS if names.fullmatch(name)), None)


def parse(text: str) -> Counts:
    """Read the error counts by GPU UUID, link and kind; raises ValueError.

    A GPU without a UUID is left out.
    """
    lines = [Line(number, line) for number, line in enumerate(normalize_text(text).split("\n"), 1)]
    start = next((at for at, line in enumerate(lines) if line.text.strip()), 0)
    parsed = nvlink_error_text.parse_lines(lines, start)
    rest = next((line for line in lines[parsed.end :] if line.text.strip()), None)
    if rest is not None:
        raise ValueError(f"{rest.text.strip()[:100]!r} is neither a GPU nor a counter of a link")
    gpus = parsed.required()
    if not gpus:
        raise ValueError("the output names no GPU")
    return {gpu.uuid: by_kind(gpu.links) for gpu in gpus if gpu.uuid}


def by_kind(links: Mapping[int, Mapping[str, int]]) -> dict[int, dict[str, int]]:
    """Sum up the counters of each link by kind of error; unknown names are left out."""
    counts: dict[int, dict[str, int]] = {}
    for link, counters in links.items():
        for name, number in counters.items():
            if (kind := kind_of(name)) is not None:
                kinds = counts.setdefault(link, {})
                kinds[kind] = kinds.get(kind, 0) + number
    return counts
