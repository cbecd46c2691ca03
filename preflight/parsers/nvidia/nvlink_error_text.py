"""The text of ``nvidia-smi nvlink -e``.

Each counter of each NVLink is on a separate line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import is_prompt
from preflight.textprep.lines import Lines

_GPU = re.compile(r"\s*GPU ([0-9]{1,3}): (.{1,119}?)(?: \(UUID: (GPU-[0-9A-Za-z-]{1,60})\)?)?\s*")
_COUNTER = re.compile(r"\s*Link ([0-9]{1,3}): ([A-Za-z][A-Za-z0-9 /_-]{1,60}?) ?: (\S.{0,60})")
_SILENT = re.compile(
    r"\s*(?:NVML: Unable to retrieve NVLink information.{0,60}|Device does not have or support nvlink)\s*", re.I
)
#: A value that is not a count: not available, or a rate (``15e-255``).
_NOT_COUNTED = re.compile(r"\[?N/A\]?|not supported|[0-9.]{1,20}e[+-]?[0-9]{1,4}|[0-9]{1,12}\.[0-9]{1,12}", re.I)

#: Maximum counters of one text; 16 GPUs with 18 links and 20 counters per link have 5760.
MAX_COUNTERS = 50_000


@dataclass(frozen=True)
class GpuErrors:
    """The counters of one GPU's NVLinks."""

    index: int
    name: str
    uuid: str | None
    links: Mapping[int, Mapping[str, int]]  # link -> name -> number


def begins(lines: Lines, at: int) -> bool:
    """Return whether the output begins at a line: a GPU, followed by counters."""
    return bool(_GPU.fullmatch(lines[at].text)) and any(
        _COUNTER.fullmatch(line.text) for line in lines[at + 1 : at + 3]
    )


def parse_lines(lines: Lines, at: int) -> Parsed[tuple[GpuErrors, ...]]:
    """Read the counters of all GPUs, starting at the line of the first one."""
    gpus: list[GpuErrors] = []
    links: dict[int, dict[str, int]] | None = None
    gaps: list[ParseGap] = []
    counters, end, last = 0, at, at
    while end < len(lines) and end - last < 3:
        text = lines[end].text
        if (match := _GPU.fullmatch(text)) and not any(gpu.index == int(match[1]) for gpu in gpus):
            links = {}
            gpus.append(GpuErrors(int(match[1]), match[2], match[3], links))
        elif links is not None and (match := _COUNTER.fullmatch(text)):
            counters += 1
            if counters > MAX_COUNTERS:
                gaps.append(ParseGap(lines[end].number, f"there are more than {MAX_COUNTERS} counters"))
                break
            if re.fullmatch(r"[0-9]{1,20}", match[3].strip()):
                links.setdefault(int(match[1]), {})[match[2]] = int(match[3])
            elif not _NOT_COUNTED.fullmatch(match[3].strip()):
                gaps.append(ParseGap(lines[end].number, f"{text.strip()[:100]!r} contains no number"))
        elif text.strip() and (is_prompt(text) or not _SILENT.fullmatch(text)):
            break
        if text.strip():
            last = end
        end += 1
    return Parsed(tuple(gpus), tuple(gaps), last + 1 if gpus else at)


HINTS = ("GPU ",)
