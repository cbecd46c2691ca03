"""What a parser returns: a typed value, and the gaps in the text that it was read from."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from preflight._startup.lightclass import dataclass, regex

if TYPE_CHECKING:
    from preflight.textprep.lines import Lines

T = TypeVar("T")

#: Marks of lines left out.
_LEFT_OUT = regex(
    r"\s*(?:#\s*)?[\[(<]?\s?(?:\.{3,}|…|snip\w*|truncated|omitted)[\])>]?(?:\s.{0,80})?|\s*\.\.\s*", re.IGNORECASE
)


def left_out(text: str) -> bool:
    """Return whether a line stands for lines that were left out."""
    return ("." in text or "…" in text or "<" in text or "[" in text) and bool(_LEFT_OUT.fullmatch(text))


@dataclass(frozen=True)
class TextGap:
    """A gap in an output: the line of the source, and what is missing there."""

    line: int
    what: str


@dataclass(frozen=True)
class Parsed(Generic[T]):
    """A value read from the lines before ``end``, and what is missing in them."""

    end: int  # index of the first line behind the output
    value: T
    gaps: Sequence[TextGap] = ()


Parser = Callable[["Lines", int], Parsed[T]]


class OutputParser(Protocol):
    """What a module of a format has; ``HINTS``: words one of which stands in each first line (none: any line)."""

    HINTS: tuple[str, ...]

    def begins(self, lines: Lines, at: int) -> bool:
        """Return whether an output begins at a line."""
        ...

    def parse(self, lines: Lines, at: int) -> Parsed[Any]:
        """Read the output from a line on; never raises for the content of a text."""
        ...

    def facts(self, value: Any) -> dict[str, Any]:
        """Return a value as `preflight read --json` prints it."""
        ...

    def summary(self, value: Any) -> str:
        """Return one line for the reader."""
        ...
