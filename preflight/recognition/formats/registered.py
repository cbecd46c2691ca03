"""Formats of the registry of parsers, as parts of a text."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib import import_module
from typing import cast

from preflight.parsers.parsed import OutputParser
from preflight.parsers.registry import NETWORK
from preflight.recognition.detector import OutputFormat, ParsedPart
from preflight.textprep.lines import Lines


def _format(name: str, module: str) -> OutputFormat:
    parser = cast("OutputParser", import_module(f"preflight.parsers.{module}"))
    return OutputFormat(name, parser.begins, functools.partial(_part, parser), parser.HINTS)


def _part(parser: OutputParser, lines: Lines, at: int) -> ParsedPart:
    parsed = parser.parse(lines, at)
    return ParsedPart(
        parsed.end, parser.facts(parsed.value), parser.summary(parsed.value), list(parsed.gaps), parsed.value
    )


def formats(family: Mapping[str, str]) -> tuple[OutputFormat, ...]:
    """Return the formats of a family."""
    return tuple(_format(name, module) for name, module in family.items())


KINDS = formats(NETWORK)
