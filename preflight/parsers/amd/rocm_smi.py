"""``rocm-smi`` as text and as JSON, with the matrix of link types.

Sources: the tool's help text and manual (ROCm 5.7 to 6.4), and outputs in public reports. Not tested on a
node with AMD GPUs.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

from preflight.parsers.amd.model import (
    AmdErrors,
    AmdGpu,
    AmdLink,
    AmdReport,
    count,
    facts,
    generation,
    measure,
    summary,
    word,
)
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import json_at, json_head
from preflight.textprep.lines import Lines

__all__ = ("HINTS", "begins", "facts", "parse_lines", "summary")

HINTS = ("ROCm System Management Interface", "RAS Info", "GPU[", "Concise Info", "{", "between two GPUs")

_FRAME = re.compile(r"\s*[=_-]{8,}(?: [\w() /.-]{1,60} [=_-]{3,})?\s*")
_HEAD = re.compile(r"\s*=+ (?:ROCm System Management Interface|RAS Info|Concise Info|Link Type between two GPUs) =+\s*")
_TYPES = re.compile(r"\s*=+ Link Type between two GPUs =+\s*")
_TITLE = re.compile(r"\s*=+ .{1,60} =+\s*")
_FIELD = re.compile(r"GPU\[(\d{1,3})\]\s*:\s*(.{1,80}?)(?:\s*:\s+(\S.{0,100}))?\s*")
_RAS = re.compile(
    r"\s*([A-Z][A-Z0-9_]{1,20})\s+(ENABLED|DISABLED|NOT_SUPPORTED|PARITY|\S{1,20})\s+(\d{1,12})\s+(\d{1,12})\s*"
)
_RAS_NAMES = re.compile(r"\s*Block\s+Status\s+Correctable Error\s+Uncorrectable Error\s*")
_CONCISE_NAMES = re.compile(r"\s*(?:Device|GPU)\s+.*(?:Temp|PwrCap|VRAM%).*|\s*\((?:DID|Junction|Socket).*")
_CONCISE = re.compile(r"\s*(\d{1,3})\s+.{0,80}?(\d{1,3}(?:\.\d{1,2})?)°?[cC]\s+.*")
#: The end of a row: power cap in W, and use of memory and GPU in percent.
_CAP = re.compile(r".*\s(\d{1,4}(?:\.\d{1,2})?)W\s+\d{1,3}%\s+\d{1,3}%\s*")
_COLUMNS = re.compile(r"\s+(?:GPU\d{1,4}\s*){1,1024}")
_ROW = re.compile(r"GPU(\d{1,4})((?:\s+\S{1,20}){1,1024})\s*")
_FORMS = (_FRAME, _HEAD, _FIELD, _RAS, _RAS_NAMES, _CONCISE_NAMES, _CONCISE, _COLUMNS, _ROW)

_JSON = re.compile(r'\s*\{\s*"(?:card\d{1,4}|system)"\s*:\s*\{\s*"')
_CARD = re.compile(r"card(\d{1,4})")
_SENSOR = re.compile(r"(?i)temperature \(sensor (edge|junction|memory)\) \(c\)")
_SENSORS = {"edge": "edge", "junction": "hotspot", "memory": "mem"}
_MIB = 1 << 20


def _mib(value: Any) -> int | None:
    size = measure(value)
    return None if size is None else int(size) // _MIB


#: Name of a value in lower case -> field, and how it is read.
_VALUES: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "card series": ("product", word),
    "pci bus": ("address", word),
    "driver version": ("driver", word),
    "vbios version": ("vbios", word),
    "pcie replay count": ("pcie_replays", count),
    "pcie_link_width (lanes)": ("pcie_width", count),
    "pcie_link_speed (0.1 gt/s)": ("pcie_generation", lambda value: generation((measure(value) or 0) / 10)),
    "gpu use (%)": ("utilization_percent", count),
    "vram total memory (b)": ("memory_total_mib", _mib),
    "vram total used memory (b)": ("memory_used_mib", _mib),
}


class _Values:
    """The values of one GPU, as they are read."""

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
        self.temperatures: dict[str, float] = {}
        self.errors: list[AmdErrors] = []
        self.ras: dict[str, str] = {}
        self.links: dict[int, AmdLink] = {}

    def take(self, name: str, value: Any) -> None:
        """Store a value by its printed name."""
        if match := _SENSOR.fullmatch(name.strip()):
            if (degrees := measure(value)) is not None:
                self.temperatures[_SENSORS[match[1].lower()]] = degrees
        elif (field := _VALUES.get(name.strip().lower())) and (read := field[1](value)) is not None:
            self.fields[field[0]] = read

    def gpu(self, index: int) -> AmdGpu:
        """Return the GPU."""
        return AmdGpu(index, **self.fields, temperatures_c=self.temperatures, errors=tuple(self.errors), ras=self.ras,
                      links=self.links)  # fmt: skip


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``rocm-smi`` output begins at a line."""
    text = lines[at].text
    if text.lstrip()[:1] == "{":
        return _JSON.match(json_head(lines, at)) is not None and '"card' in text[:200] + json_head(lines, at)[:4000]
    return bool(_HEAD.fullmatch(text)) or (text.startswith("GPU[") and _FIELD.fullmatch(text) is not None)


def parse_lines(lines: Lines, at: int) -> Parsed[AmdReport]:
    """Read the GPUs starting at a line."""
    gpus: dict[int, _Values] = defaultdict(_Values)
    truncated = False
    if lines[at].text.lstrip()[:1] == "{":
        end, truncated = _of_json(lines, at, gpus)
    else:
        end = _of_text(lines, at, gpus)
    gaps: tuple[ParseGap, ...] = ()
    if truncated or not gpus:
        gaps = (ParseGap(lines[at].number, "the JSON is truncated" if truncated else "no value of a GPU follows"),)
    return Parsed(AmdReport(tuple(values.gpu(index) for index, values in sorted(gpus.items()))), gaps, end)


def _of_json(lines: Lines, at: int, gpus: dict[int, _Values]) -> tuple[int, bool]:
    parsed = json_at(lines, at)
    if parsed is None or not isinstance(parsed[1], Mapping):
        return len(lines), True
    driver = parsed[1].get("system")
    for card, values in islice(parsed[1].items(), 1024):
        if (match := _CARD.fullmatch(card)) and isinstance(values, Mapping):
            own = gpus[int(match[1])]
            for name, value in islice(values.items(), 4096):
                own.take(name, value)
            if isinstance(driver, Mapping):
                own.take("driver version", driver.get("Driver version"))
    return parsed[0], False


def _of_text(lines: Lines, at: int, gpus: dict[int, _Values]) -> int:
    gpu, end, last, columns, types, sensor = 0, at, at, list[int](), False, "hotspot"
    while end < len(lines):
        text = lines[end].text
        if text.strip():
            if not any(form.fullmatch(text) for form in _FORMS):
                break
            last = end
        if _TITLE.fullmatch(text):
            types, columns = _TYPES.fullmatch(text) is not None, []
        elif match := _FIELD.fullmatch(text):
            gpu = int(match[1])
            if match[3]:
                gpus[gpu].take(match[2], match[3])
        elif match := _RAS.fullmatch(text):
            gpus[gpu].errors.append(AmdErrors(match[1], int(match[3]), int(match[4])))
            gpus[gpu].ras[match[1]] = match[2]
        elif types and _COLUMNS.fullmatch(text):
            columns = [int(name[3:]) for name in text.split()]
        elif match := _ROW.fullmatch(text):
            cells = match[2].split()
            if types and len(cells) == len(columns):
                row = {peer: AmdLink(cell) for peer, cell in zip(columns, cells, strict=True) if peer != int(match[1])}
                gpus[int(match[1])].links.update(row)
        elif _CONCISE_NAMES.fullmatch(text):
            sensor = "edge" if "Edge" in text else "hotspot"
        elif match := _CONCISE.fullmatch(text):
            gpus[int(match[1])].temperatures[sensor] = float(match[2])
            if cap := _CAP.fullmatch(text):
                gpus[int(match[1])].fields["power_limit_w"] = float(cap[1])
        end += 1
    return last + 1
