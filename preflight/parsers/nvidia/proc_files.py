"""``/proc/driver/nvidia``: the driver's version, and what it knows of each GPU."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed
from preflight.parsers.record import lines_of_record
from preflight.parsers.text_block import block
from preflight.textprep.lines import Lines

HINTS = ("NVRM version:", "Model:")

_VERSION = re.compile(r"\s*NVRM version:(.{0,200})")
#: The version among the words of that line. A Jetson's has two digits, and is none of a data centre's driver.
_NUMBER = re.compile(r"\s([0-9]{3}\.[0-9]{1,4}(?:\.[0-9]{1,4})?)(?:\s|$)")
_OPEN = "Open Kernel Module"
_MODEL = re.compile(r"\s*Model:\s+(\S.{0,80}?)\s*")
_FIELD = re.compile(r"\s*([A-Z][\w ]{1,24}):\s*(.{0,160})")


@dataclass(frozen=True)
class DriverFiles:
    """The version, or the fields of one GPU."""

    version: str | None
    open_modules: bool | None
    gpu: Mapping[str, str]
    line: int


def begins(lines: Lines, at: int) -> bool:
    """Return whether a file begins at a line."""
    if (match := _VERSION.match(lines[at].text)) and _NUMBER.search(match[1]):
        return True
    ahead = [line.text for line in lines[at + 1 : at + 4]]
    return _MODEL.fullmatch(lines[at].text) is not None and any(
        re.match(r"\s*(?:IRQ|GPU UUID):", text) for text in ahead
    )


def parse_lines(lines: Lines, at: int) -> Parsed[DriverFiles]:
    """Read one file starting at a line."""
    number = lines[at].number
    if match := _VERSION.match(lines[at].text):
        end = at + 1
        if end < len(lines) and lines[end].text.lstrip().startswith("GCC version:"):
            end += 1
        version = _NUMBER.search(match[1])
        return Parsed(DriverFiles(version[1] if version else None, _OPEN in match[1], {}, number), (), end)
    end, taken = block(lines, at, lambda text: _FIELD.fullmatch(text) is not None, blanks=0,
                       again=lambda text: _MODEL.fullmatch(text) is not None)  # fmt: skip
    fields = {match[1]: match[2].strip() for line in taken if (match := _FIELD.fullmatch(line.text))}
    return Parsed(DriverFiles(None, None, fields, number), (), end)


def _loaded(text: str) -> DriverFiles:
    """Read a node's ``/proc/driver/nvidia/version``; raises ValueError."""
    lines = lines_of_record(text)
    at = next((at for at, line in enumerate(lines) if _VERSION.match(line.text)), None)
    if at is None:
        raise ValueError(f"{text.strip()[:80]!r} has no line 'NVRM version:'")
    return parse_lines(lines, at).value


def driver_version(text: str) -> str:
    """Return the version of the loaded module; raises ValueError."""
    if (version := _loaded(text).version) is None:
        raise ValueError(f"{text.strip()[:80]!r} names no NVRM version")
    return version


def open_modules(text: str) -> bool:
    """Return whether the open kernel modules are loaded; raises ValueError."""
    return bool(_loaded(text).open_modules)


def facts(files: DriverFiles) -> dict[str, Any]:
    """Return the file as `preflight read --json` prints it."""
    if files.version:
        return {"driver": files.version, "open_modules": files.open_modules}
    gpu = files.gpu
    return {"product": gpu.get("Model"), "uuid": gpu.get("GPU UUID"), "bus_id": gpu.get("Bus Location"),
            "fields": dict(gpu)}  # fmt: skip


def summary(files: DriverFiles) -> str:
    """Return one line on the file."""
    return (
        f"driver {files.version}" if files.version else f"{files.gpu.get('Model')} {files.gpu.get('Bus Location', '')}"
    )
