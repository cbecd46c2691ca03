"""``rocm-smi`` and ``amd-smi``: memory errors and temperatures of AMD GPUs.

Sources: the tools' help texts and manuals (ROCm 5.7 to 6.4).
"""

from __future__ import annotations

import re
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.textprep.lines import Lines

HINTS = ("ROCm System Management Interface", "RAS Info", "GPU[", "GPU: ", "Concise Info")

_FRAME = re.compile(r"\s*[=_-]{8,}(?: [\w() /.-]{1,60} [=_-]{3,})?\s*")
_HEAD = re.compile(r"\s*=+ (?:ROCm System Management Interface|RAS Info|Concise Info) =+\s*")
_FIELD = re.compile(r"GPU\[(\d{1,3})\]\s*:\s*(.{1,80}?)(?:\s*:\s+(\S.{0,100}))?\s*")
_RAS = re.compile(
    r"\s*([A-Z][A-Z0-9_]{1,20})\s+(ENABLED|DISABLED|NOT_SUPPORTED|PARITY|\S{1,20})\s+(\d{1,12})\s+(\d{1,12})\s*"
)
_RAS_NAMES = re.compile(r"\s*Block\s+Status\s+Correctable Error\s+Uncorrectable Error\s*")
_CONCISE_NAMES = re.compile(r"\s*(?:Device|GPU)\s+.*(?:Temp|PwrCap|VRAM%).*|\s*\((?:DID|Junction|Socket).*")
_CONCISE = re.compile(r"\s*(\d{1,3})\s+.{0,80}?(\d{1,3}(?:\.\d{1,2})?)°?[cC]\s+.*")
_AMD_GPU = re.compile(r"GPU: (\d{1,3})\s*")
_AMD_FIELD = re.compile(r"\s{2,40}([A-Z][A-Z0-9_]{1,60}):(?: (.{1,120}?))?\s*")
_NUMBER = re.compile(r"(\d{1,12}(?:\.\d{1,3})?)(?: ?(?:°?C|W|%))?")


@dataclass(frozen=True)
class AmdReading:
    """One value of an AMD GPU."""

    gpu: int
    name: str  # block with ECC errors, or field, as printed
    value: float
    line: int
    corrected: bool = False  # the value counts corrected errors
    uncorrected: bool = False  # the value counts uncorrected errors
    temperature: bool = False  # the value is a temperature in °C


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``rocm-smi`` or ``amd-smi`` output begins at a line."""
    text = lines[at].text
    if _HEAD.fullmatch(text) or (text.startswith("GPU[") and _FIELD.fullmatch(text)):
        return True
    after = lines[at + 1 : at + 2]
    return _AMD_GPU.fullmatch(text) is not None and bool(after) and _AMD_FIELD.fullmatch(after[0].text) is not None


_FORMS = (_FRAME, _HEAD, _FIELD, _RAS, _RAS_NAMES, _CONCISE_NAMES, _CONCISE, _AMD_GPU, _AMD_FIELD)


def parse_lines(lines: Lines, at: int) -> Parsed[tuple[AmdReading, ...]]:
    """Read the values starting at a line."""
    readings: list[AmdReading] = []
    gpu, end, last = 0, at, at
    while end < len(lines):
        text = lines[end].text
        if text.strip() and not any(form.fullmatch(text) for form in _FORMS):
            break
        if text.strip():
            last = end
        number = lines[end].number
        if match := _AMD_GPU.fullmatch(text) or _FIELD.fullmatch(text):
            gpu = int(match[1])
        if (match := _FIELD.fullmatch(text)) and match[3]:
            readings += _reading(gpu, match[2].strip(), match[3].strip(), number)
        elif match := _RAS.fullmatch(text):
            readings.append(AmdReading(gpu, match[1], float(match[3]), number, corrected=True))
            readings.append(AmdReading(gpu, match[1], float(match[4]), number, uncorrected=True))
        elif match := _CONCISE.fullmatch(text):
            readings.append(AmdReading(int(match[1]), "temperature", float(match[2]), number, temperature=True))
        elif (match := _AMD_FIELD.fullmatch(text)) and match[2]:
            readings += _reading(gpu, match[1], match[2].strip(), number)
        end += 1
    gaps = () if readings else (ParseGap(lines[at].number, "no value of a GPU follows"),)
    return Parsed(tuple(readings), gaps, last + 1)


def _reading(gpu: int, name: str, value: str, line: int) -> list[AmdReading]:
    if (match := _NUMBER.fullmatch(value)) is None:
        return []
    lower = name.lower()
    uncorrected = "uncorrect" in lower
    corrected = "correct" in lower and not uncorrected
    heat = "temperature" in lower or (lower in ("edge", "hotspot", "junction", "mem") and "C" in value)
    return [AmdReading(gpu, name, float(match[1]), line, corrected, uncorrected, heat)]


def facts(readings: tuple[AmdReading, ...]) -> dict[str, Any]:
    """Return the values as `preflight read --json` prints them."""
    return {
        "gpus": sorted({item.gpu for item in readings}),
        "readings": [
            {"gpu": item.gpu, "name": item.name, "value": item.value, "line": item.line,
             "errors": "uncorrectable" if item.uncorrected else "correctable" if item.corrected else None}
            for item in readings
        ],
    }  # fmt: skip


def summary(readings: tuple[AmdReading, ...]) -> str:
    """Return a one-line summary of the values."""
    return f"{len({item.gpu for item in readings})} AMD GPUs, {len(readings)} values"
