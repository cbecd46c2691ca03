"""The table that ``nvidia-smi`` prints without options.

It has three lines per GPU, and the processes below.
"""

from __future__ import annotations

import re

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.textprep.lines import Lines

_BANNER = re.compile(
    r"\|? ?NVIDIA-SMI (\S{1,20})\s+(?:KMD Version: \S+\s+)?Driver Version: ?(\S{1,20})(?:\s+CUDA (?:UMD )?Version:"
    r" ?(\S{1,12}))?"
)
_BAD = r"ERR!|N/A|Unknown Error|\[?GPU is lost\]?|\[?Unknown Error\]?|\[?GPU requires reset\]?"
_GPU = re.compile(
    rf"\|?\s{{0,4}}(\d{{1,3}})\s{{1,4}}(\S.{{0,60}}?)\s+(On|Off|{_BAD})\s*\|\s*([0-9A-Fa-f]{{4,8}}:[0-9A-Fa-f]{{2}}:"
    rf"[0-9A-Fa-f]{{2}}\.[0-7])\s+(On|Off|{_BAD})\s*\|\s*(\d{{1,12}}|On|Off|{_BAD})\s*\|?\s*"
)
_STATE = re.compile(
    rf"\|?\s*(\d{{1,3}}%|{_BAD})\s+(\d{{1,3}}C|{_BAD})\s+(P\d{{1,2}}|{_BAD})\s+(\d{{1,5}}W|{_BAD})\s*/\s*(\d{{1,5}}W"
    rf"|{_BAD})"
    rf"\s*\|\s*(\d{{1,8}}|{_BAD})(?:MiB)?(?:\s*/\s*(\d{{1,8}}|{_BAD})(?:MiB)?)?\s*\|\s*(\d{{1,3}}"
    rf"|{_BAD})%?\s+(\S.{{0,20}}?)\s*\|?\s*"
)
_MIG = re.compile(r"\|?\s*\|\s*\|\s*(Enabled\*?|Disabled\*?|N/A|ERR!)\s*\|?\s*")
_PROCESS = re.compile(
    r"\|?\s*(\d{1,3})\s+(?:(?:N/A|\d{1,3})\s+(?:N/A|\d{1,3})\s+)?(\d{1,10})\s+(C|G|C\+G"
    r"|M\+C)\s+(\S.{0,80}?)\s+(\d{1,8})MiB\s*\|?\s*"
)
_FRAME = re.compile(
    r"[\s|+=-]*(?:\|\s*GPU\s+Name.*|\|?\s*GPU\s+(?:GI|Name|PID).*|\|?\s*Fan\s+Temp.*|\|?.*MIG M\..*|\|?\s*ID\s+ID\s.*"
    r"|\|?.*Usage\s*\|?|\|?\s*Processes:.*|\|?\s*No running processes found.*|\|\s*)?[\s|+=-]*"
)

#: Maximum GPUs of one table.
MAX_GPUS = 64


@dataclass(frozen=True)
class TableGpu:
    """One GPU of the table; a value that the table lacks is None."""

    index: int
    name: str
    address: str  # as printed
    persistence: bool | None
    uncorrectable: int | None  # volatile ECC errors
    ecc_off: bool = False
    temperature_c: int | None = None
    performance_state: int | None = None
    power_w: int | None = None
    power_cap_w: int | None = None
    memory_used_mib: int | None = None
    memory_total_mib: int | None = None
    utilisation_pct: int | None = None
    compute_mode: str | None = None
    mig: bool | None = None
    errors: tuple[str, ...] = ()  # errors printed instead of values


@dataclass(frozen=True)
class SmiTable:
    """The table of one node: versions, GPUs and processes."""

    driver: str | None
    cuda: str | None
    gpus: tuple[TableGpu, ...]
    processes: tuple[tuple[int, int, str, int], ...]  # GPU, pid, name, MiB
    processes_shown: bool


def begins(lines: Lines, at: int) -> bool:
    """Return whether the table starts at a line: its banner, or a GPU's row."""
    text = lines[at].text
    if "NVIDIA-SMI" in text:
        return bool(_BANNER.match(text))
    return (
        "|" in text
        and bool(_GPU.fullmatch(text))
        and at + 1 < len(lines)
        and bool(_STATE.fullmatch(lines[at + 1].text))
    )


def parse_lines(lines: Lines, at: int) -> Parsed[SmiTable]:
    """Read the table that begins at a line."""
    banner = _BANNER.match(lines[at].text)
    gpus: list[dict[str, object]] = []
    processes: list[tuple[int, int, str, int]] = []
    end, last, shown, gaps = at, at, False, list[ParseGap]()
    instances = False  # within the table of MIG devices
    while end < len(lines) and end - last < 3 and len(gpus) < MAX_GPUS:
        text = lines[end].text
        if end > at and "NVIDIA-SMI" in text:
            break
        instances = instances or "| MIG devices:" in text
        if match := _GPU.fullmatch(text):
            gpus.append(_gpu(match))
        elif gpus and "temperature_c" not in gpus[-1] and (match := _STATE.fullmatch(text)):
            _add_state(gpus[-1], match)
        elif gpus and (match := _MIG.fullmatch(text)):
            gpus[-1]["mig"] = {"Enabled": True, "Disabled": False}.get(match[1].rstrip("*"))
        elif shown and (match := _PROCESS.fullmatch(text)):
            processes.append((int(match[1]), int(match[2]), match[4], int(match[5])))
        elif not (end == at or _FRAME.fullmatch(text) or (instances and text.lstrip()[:1] == "|")):
            end += 1
            continue
        shown = shown or "Processes:" in text or "No running processes" in text
        end += 1
        if text.strip():
            last = end - 1
    if not gpus:
        gaps.append(ParseGap(lines[last].number, "the rows of the GPUs are missing"))
    elif "temperature_c" not in gpus[-1]:
        gaps.append(ParseGap(lines[last].number, f"the table stops within GPU {gpus[-1]['index']}"))
    elif not shown:
        gaps.append(ParseGap(lines[last].number, "the processes below the table are missing", beside=True))
    if banner is None:
        gaps.append(ParseGap(lines[at].number, "the header with the driver version is missing", beside=True))
    made = tuple(TableGpu(**gpu) for gpu in gpus)  # type: ignore[arg-type]
    return Parsed(SmiTable(banner[2] if banner else None, banner[3] if banner else None, made, tuple(processes), shown),
                  tuple(gaps), last + 1)  # fmt: skip


def _gpu(match: re.Match[str]) -> dict[str, object]:
    errors = [word for word in (match[2], match[3], match[6]) if _is_error(word)]
    return {
        "index": int(match[1]), "name": match[2], "address": match[4],
        "persistence": {"On": True, "Off": False}.get(match[3]),
        "uncorrectable": int(match[6]) if match[6].isdecimal() else None, "ecc_off": match[6] == "Off",
        "errors": tuple(errors),
    }  # fmt: skip


def _add_state(gpu: dict[str, object], match: re.Match[str]) -> None:
    names = ("temperature_c", "performance_state", "power_w", "power_cap_w", "memory_used_mib", "memory_total_mib",
             "utilisation_pct")  # fmt: skip
    for name, group in zip(names, range(2, 9), strict=True):
        digits = (match[group] or "").strip("PCW%")
        gpu[name] = int(digits) if digits.isdecimal() else None
    gpu["compute_mode"] = None if _is_error(match[9]) or match[9] == "N/A" else match[9]
    errors = tuple(match[group] for group in range(1, 10) if _is_error(match[group] or ""))
    gpu["errors"] = (*gpu["errors"], *errors)  # type: ignore[misc]


def _is_error(word: str) -> bool:
    return word.strip("[]") in ("ERR!", "Unknown Error", "GPU is lost", "GPU requires reset")


HINTS = ("NVIDIA-SMI", "|")
