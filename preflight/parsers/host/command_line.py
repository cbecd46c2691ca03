"""``/proc/cmdline``: the kernel's boot options."""

from __future__ import annotations

import re
from typing import Any

from preflight.parsers.host.boot_options import Option, parse
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.textprep.agreement import counted
from preflight.textprep.lines import Lines

HINTS = ("BOOT_IMAGE=", "root=", "Kernel command line:", "initrd=")

_LINE = re.compile(
    r"(?:.{0,80}(?:Kernel c|C)ommand line: |/proc/cmdline:)?(?P<options>(?=.{0,4000}\b(?:ro|rw|root=|quiet|console=))"
    r"(?:BOOT_IMAGE=|root=|initrd=)\S{1,400}(?: .{1,8000})?)"
)


def begins(lines: Lines, at: int) -> bool:
    """Return whether a line is the kernel's command line."""
    return _LINE.fullmatch(lines[at].text.strip()) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[tuple[Option, ...]]:
    """Return the options in order."""
    match = _LINE.fullmatch(lines[at].text.strip())
    try:
        options = parse(match["options"] if match else "")
    except ValueError as error:
        return Parsed((), (ParseGap(lines[at].number, str(error)),), at + 1)
    return Parsed(options, (), at + 1)


def facts(options: tuple[Option, ...]) -> dict[str, Any]:
    """Return the options as `preflight read --json` prints them."""
    return {"options": [str(option) for option in options]}


def summary(options: tuple[Option, ...]) -> str:
    """Return a one-line summary of the options."""
    return counted(len(options), "boot option")
