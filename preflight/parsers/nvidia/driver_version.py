"""``/proc/driver/nvidia/version``: the version and kind of the loaded module."""

from __future__ import annotations

import re

from preflight._startup.lightclass import dataclass

_LINE = re.compile(r"^\s{0,80}NVRM version:(.{0,200})", re.MULTILINE)
#: The version in that line. That of a Jetson driver may have only two parts.
_NUMBER = re.compile(r"\s([0-9]{3}\.[0-9]{1,4}(?:\.[0-9]{1,4})?)(?:\s|$)")
_OPEN = "Open Kernel Module"


@dataclass(frozen=True)
class DriverModule:
    """The driver's loaded kernel module; a version that the text lacks is None."""

    version: str | None
    is_open: bool


def loaded_module(text: str) -> DriverModule | None:
    """Return the module that the line ``NVRM version:`` names; None without it."""
    if not (line := _LINE.search(text)):
        return None
    version = _NUMBER.search(line[1])
    return DriverModule(version[1] if version else None, _OPEN in line[1])


def driver_version(text: str) -> str:
    """Return the version of the loaded module; raises ValueError."""
    module = loaded_module(text)
    if module is None or module.version is None:
        raise ValueError(f"{text.strip()[:80]!r} contains no NVRM version")
    return module.version


def open_modules(text: str) -> bool:
    """Return whether the open kernel modules are loaded; raises ValueError."""
    if (module := loaded_module(text)) is None:
        raise ValueError(f"{text.strip()[:80]!r} has no line 'NVRM version:'")
    return module.is_open
