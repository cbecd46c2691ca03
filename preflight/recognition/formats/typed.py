"""Formats with typed parsers, whose parts hold the value and documented facts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from preflight.parsers import registry
from preflight.recognition.detector import OutputFormat, ParsedPart
from preflight.textprep.lines import Lines


@dataclass
class TypedPart(ParsedPart):
    """A parsed output with its parser's value, which the judges use."""

    value: Any = None


def output_format(name: str, describe: Callable[[Any], tuple[dict[str, Any], str]]) -> OutputFormat:
    """Return the output format of a registered parser.

    ``describe`` turns a value into documented facts and a one-line summary.
    """
    parser = registry.parser(name)

    def parse(lines: Lines, at: int) -> ParsedPart:
        parsed = parser.parse_lines(lines, at)
        facts, summary = describe(parsed.value)
        return TypedPart(parsed.end, facts, summary, list(parsed.gaps), parsed.value)

    return OutputFormat(name, parser.begins, parse, parser.hints)
