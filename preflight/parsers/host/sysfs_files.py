"""Files of ``/sys`` by path, as ``grep .`` prints them, except RDMA ports."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed
from preflight.parsers.text_block import block
from preflight.textprep.agreement import counted
from preflight.textprep.lines import Lines

HINTS = ("/sys/",)

#: A path and its content; a directory's name may contain the colons of a PCI address.
_LINE = re.compile(r"\s*(/sys/(?:[\w.@:+,-]{1,128}/){1,24}[\w.@+,-]{1,128}):\s{0,4}(\S.{0,400})")


@dataclass(frozen=True)
class SysfsFiles:
    """The contents of the files and their line numbers, by path."""

    contents: Mapping[str, str]
    lines: Mapping[str, int]

    def by_folder(self) -> Mapping[str, Mapping[str, str]]:
        """Return the contents of the files, by directory and then by file name."""
        folders: dict[str, dict[str, str]] = {}
        for path, value in self.contents.items():
            folder, _, name = path.rpartition("/")
            folders.setdefault(folder, {})[name] = value
        return folders


def begins(lines: Lines, at: int) -> bool:
    """Return whether a list of ``/sys`` files begins at a line."""
    return _LINE.fullmatch(lines[at].text) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[SysfsFiles]:
    """Read the files starting at a line."""
    end, taken = block(lines, at, lambda text: _LINE.fullmatch(text) is not None)
    contents: dict[str, str] = {}
    numbers: dict[str, int] = {}
    for line in taken:
        if match := _LINE.fullmatch(line.text):
            contents.setdefault(match[1], match[2].strip())
            numbers.setdefault(match[1], line.number)
    return Parsed(SysfsFiles(contents, numbers), (), end)


def facts(files: SysfsFiles) -> dict[str, Any]:
    """Return the files as `preflight read --json` prints them."""
    return {"files": dict(files.contents)}


def summary(files: SysfsFiles) -> str:
    """Return a one-line summary of the files."""
    return f"{counted(len(files.contents), 'file')} in {counted(len(files.by_folder()), 'folder')}"
