"""A parser of plain command lines that avoids click, which takes 40 ms to import.

The tables are generated from the click options by the build (``preflight.cli.startup_tables``). If the table is missing
or outdated, or the command line is invalid or unusual, the caller uses click.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    #: Destination, kind, whether it can be repeated, allowed values of the kind.
    Option = tuple[str, str, bool, tuple[Any, ...]]


def parse(command: str, words: Sequence[str]) -> dict[str, Any] | None:
    """Return the values that click would return; None if click must parse them."""
    table = _table(command)
    if table is None:
        return None
    options, arguments, defaults = table
    values = dict(defaults)
    pending = list(arguments)
    rest = iter(words)
    for word in rest:
        if not word.startswith("-"):
            name, choices = pending.pop(0) if pending else ("", ())
            if word not in choices:
                return None
            values[name] = word
            continue
        option, equals, text = word.partition("=")
        if option not in options:
            return None
        name, kind, several, allowed = options[option]
        if kind == "flag":
            if equals:
                return None
            values[name] = True
            continue
        text = text if equals else next(rest, "")
        if not text or (text.startswith("-") and text != "-") or (equals and not option.startswith("--")):
            return None
        value = _value(kind, text, allowed)
        if value is None:
            return None
        values[name] = (*values[name], value) if several else value
    return values


def _value(kind: str, text: str, allowed: tuple[Any, ...]) -> Any:
    """Convert a value as click does; None if click rejects it or may differ."""
    if kind == "path":
        from pathlib import Path

        return Path(text)
    if kind == "choice":
        return text if text in allowed else None
    if kind in ("float", "int"):
        digits, dot, fraction = text.partition(".")
        if not (text.isascii() and len(text) < 10 and digits.isdigit() and (fraction.isdigit() or not dot)):
            return None
        if kind == "int" and dot:
            return None
        number = float(text) if kind == "float" else int(text)
        return number if allowed[0] <= number <= allowed[1] else None
    return text


def _table(
    command: str,
) -> tuple[Mapping[str, Option], Sequence[tuple[str, tuple[str, ...]]], Mapping[str, Any]] | None:
    """Return the table of a command; None if absent, or older than its sources."""
    try:
        from preflight._startup.generated_options import SOURCES, TABLES
    except ImportError:
        return None
    return TABLES.get(command) if all(_is_unchanged(*source) for source in SOURCES[command]) else None


def _is_unchanged(path: str, checksum: int) -> bool:
    """Return whether a source has this checksum, or is in the single-file build."""
    try:
        with open(f"{os.path.dirname(os.path.dirname(__file__))}/{path}", "rb", buffering=0) as stream:
            source = stream.read()
    except OSError:
        return True
    from zlib import crc32

    return crc32(source) == checksum
