"""Kernel boot options from ``/proc/cmdline``."""

from __future__ import annotations

import re

from preflight._startup.lightclass import dataclass


@dataclass(frozen=True)
class Option:
    """One boot option."""

    name: str
    value: str = ""  # empty for an option without one

    def __str__(self) -> str:
        """Return the option as ``NAME=VALUE``, or ``NAME`` if it has no value."""
        return f"{self.name}={self.value}" if self.value else self.name


def parse(text: str) -> tuple[Option, ...]:
    """Read the kernel's options from ``/proc/cmdline``; raises ValueError.

    The options are returned in order. A quoted value may contain spaces. Words after ``--`` belong to init.
    """
    words = _words(text)
    if not words:
        raise ValueError("the kernel's command line is empty")
    if not text.strip().isprintable():
        raise ValueError(f"{text.strip()[:60]!r} is not a command line")
    found = []
    for word in words:
        if word in ("--", "---"):  # the rest is for init
            break
        name, _, value = word.partition("=")
        found.append(Option(name, value.strip('"')))
    return tuple(found)


def _words(text: str) -> list[str]:
    """Split a command line at unquoted whitespace.

    An unclosed quote is an ordinary character.
    """
    words: list[list[str]] = [[]]
    for part in re.findall(r'\s+|[^\s"]+|"[^"\n]*"|"', text):
        if part.isspace():
            words.append([])
        else:
            words[-1].append(part)
    return ["".join(parts) for parts in words if parts]
