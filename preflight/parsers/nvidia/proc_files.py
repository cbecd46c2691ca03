"""Files of ``/proc/driver/nvidia``: the driver's version, and one file per GPU."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.nvidia.driver_version import loaded_module
from preflight.parsers.parsed import Parsed
from preflight.parsers.text_block import block
from preflight.textprep.lines import Lines

HINTS = ("NVRM version:", "Model:")

_MODEL = re.compile(r"\s*Model:\s+(\S.{0,80}?)\s*")
_FIELD = re.compile(r"\s*([A-Z][\w ]{1,24}):\s*(.{0,160})")


@dataclass(frozen=True)
class DriverFiles:
    """The content of one file: the driver's version, or the fields of one GPU."""

    version: str | None  # None in a GPU's file
    open_modules: bool | None  # None in a GPU's file
    gpu: Mapping[str, str]  # empty in the version file
    line: int


def begins(lines: Lines, at: int) -> bool:
    """Return whether a file of ``/proc/driver/nvidia`` begins at a line."""
    if (module := loaded_module(lines[at].text)) and module.version:
        return True
    ahead = [line.text for line in lines[at + 1 : at + 4]]
    return _MODEL.fullmatch(lines[at].text) is not None and any(
        re.match(r"\s*(?:IRQ|GPU UUID):", text) for text in ahead
    )


def parse_lines(lines: Lines, at: int) -> Parsed[DriverFiles]:
    """Read the file that begins at a line."""
    number = lines[at].number
    if module := loaded_module(lines[at].text):
        end = at + 1
        if end < len(lines) and lines[end].text.lstrip().startswith("GCC version:"):
            end += 1
        return Parsed(DriverFiles(module.version, module.is_open, {}, number), (), end)
    end, taken = block(lines, at, lambda text: _FIELD.fullmatch(text) is not None, blanks=0,
                       again=lambda text: _MODEL.fullmatch(text) is not None)  # fmt: skip
    fields = {match[1]: match[2].strip() for line in taken if (match := _FIELD.fullmatch(line.text))}
    return Parsed(DriverFiles(None, None, fields, number), (), end)


def facts(files: DriverFiles) -> dict[str, Any]:
    """Return the file as `preflight read --json` prints it."""
    if files.version:
        return {"driver": files.version, "open_modules": files.open_modules}
    gpu = files.gpu
    return {"product": gpu.get("Model"), "uuid": gpu.get("GPU UUID"), "bus_id": gpu.get("Bus Location"),
            "fields": dict(gpu)}  # fmt: skip


def summary(files: DriverFiles) -> str:
    """Return a one-line summary of the file."""
    return (
        f"driver {files.version}" if files.version else f"{files.gpu.get('Model')} {files.gpu.get('Bus Location', '')}"
    )
