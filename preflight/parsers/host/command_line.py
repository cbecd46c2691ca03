"""``/proc/cmdline``: the options that the kernel was booted with."""

from __future__ import annotations

import re
from typing import Any

from preflight.parsers.parsed import Parsed
from preflight.textprep.lines import Lines

HINTS = ("BOOT_IMAGE=", "root=", "Kernel command line:", "initrd=")

_LINE = re.compile(
    r"(?:.{0,80}(?:Kernel c|C)ommand line: |/proc/cmdline:)?(?P<options>(?=.{0,4000}\b(?:ro|rw|root=|quiet|console=))"
    r"(?:BOOT_IMAGE=|root=|initrd=)\S{1,400}(?: .{1,8000})?)"
)


def begins(lines: Lines, at: int) -> bool:
    """Return whether a line is the kernel's command line."""
    return _LINE.fullmatch(lines[at].text.strip()) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[str]:
    """Return the options as they are written."""
    match = _LINE.fullmatch(lines[at].text.strip())
    return Parsed(match["options"] if match else "", (), at + 1)


def facts(options: str) -> dict[str, Any]:
    """Return the options as `preflight read --json` prints them."""
    return {"options": options.split()}


def summary(options: str) -> str:
    """Return one line on the options."""
    return f"{len(options.split())} boot options"
