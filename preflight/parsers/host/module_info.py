"""``modinfo``: one kernel module's file, version and parameters."""

from __future__ import annotations

import re
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed
from preflight.parsers.text_block import block
from preflight.textprep.lines import Lines

HINTS = ("filename:",)

_HEAD = re.compile(r"\s*filename:\s+(?:\S{1,300}/)?([\w-]{1,60})\.ko(?:\.\w{1,4})?\s*|\s*filename:\s+\(builtin\)\s*")
_FIELD = re.compile(r"\s*([a-z_]{2,24}):\s*(.{0,2000})")


@dataclass(frozen=True)
class ModuleInfo:
    """One kernel module's fields in order; a name such as ``parm`` may be repeated."""

    name: str
    fields: tuple[tuple[str, str], ...]

    def value(self, name: str) -> str | None:
        """Return the first value of a field; None if it is missing."""
        return next((value for field, value in self.fields if field == name), None)


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``modinfo`` output begins at a line."""
    return _HEAD.fullmatch(lines[at].text) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[ModuleInfo]:
    """Read the fields starting at a line."""
    head = _HEAD.fullmatch(lines[at].text)
    assert head is not None
    end, taken = block(lines, at, lambda text: _FIELD.fullmatch(text) is not None, blanks=0,
                       again=lambda text: _HEAD.fullmatch(text) is not None)  # fmt: skip
    fields = tuple((match[1], match[2].strip()) for line in taken if (match := _FIELD.fullmatch(line.text)))
    name = head[1] or next((value for field, value in fields if field == "name"), "")
    return Parsed(ModuleInfo(name, fields), (), end)


def facts(info: ModuleInfo) -> dict[str, Any]:
    """Return the module as `preflight read --json` prints it."""
    parameters = [value for name, value in info.fields if name == "parm"]
    fields: dict[str, Any] = {}
    for name, value in info.fields:
        if name not in ("parm", "alias"):
            fields.setdefault(name, value)
    return {"module": info.name or None, "version": info.value("version"), "fields": fields, "parameters": parameters}


def summary(info: ModuleInfo) -> str:
    """Return a one-line summary of the module."""
    return f"{info.name or 'a module'} {info.value('version') or 'without a version'}"
