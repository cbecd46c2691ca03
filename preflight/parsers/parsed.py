"""Result of a parser: a typed value, and the gaps in its text."""

from __future__ import annotations

from typing import Generic, TypeVar

from preflight._startup.lightclass import dataclass

Value = TypeVar("Value")


@dataclass(frozen=True)
class ParseGap:
    """A line at which the text is truncated, invalid or unreadable.

    With ``beside``, the missing text is outside the judged part, as around an excerpt.
    """

    line: int  # line number in the source
    what: str
    beside: bool = False


@dataclass(frozen=True)
class Parsed(Generic[Value]):
    """A value, and the gaps in the text from which it was read."""

    value: Value
    gaps: tuple[ParseGap, ...]  # empty: the output is complete
    end: int  # index of the first line after the output

    def required(self) -> Value:
        """Return the value; raise ValueError, naming the first gap, if there is one."""
        if self.gaps:
            gap = self.gaps[0]
            raise ValueError(f"line {gap.line}: {gap.what}")
        return self.value
