"""Formats with typed parsers, whose parts hold the value and documented facts."""

from __future__ import annotations

import re
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


#: Plural nouns of summaries after the number 1.
_ONE = re.compile(
    r"(?<![\w.,/:-])1 (?:(GPU|NIC|port|device|interface|line|event|row|node|pod|counter|link"
    r"|route|rule|unit|error|value)s|(process)es)\b"
)


def _in_singular(summary: str) -> str:
    return _ONE.sub(lambda match: f"1 {match[1] or match[2]}", summary)


def output_format(name: str, describe: Callable[[Any], tuple[dict[str, Any], str]]) -> OutputFormat:
    """Return the output format of a registered parser.

    ``describe`` turns a value into documented facts and a one-line summary.
    """
    parser = registry.parser(name)

    def parse(lines: Lines, at: int) -> ParsedPart:
        parsed = parser.parse_lines(lines, at)
        facts, summary = describe(parsed.value)
        return TypedPart(parsed.end, facts, _in_singular(summary), list(parsed.gaps), parsed.value)

    return OutputFormat(name, parser.begins, parse, parser.hints)
