"""A text with the line numbers of its source."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from preflight._startup.lightclass import dataclass
from preflight.textprep.plain_text import numbered

#: Marker for omitted lines of a source. People shorten texts in the same way, so all parsers recognise it.
LEFT_OUT = "[...]"


@dataclass(frozen=True)
class NumberedText:
    """Lines of a source; ``numbers`` are their line numbers, None for all from 1."""

    text: str
    numbers: Sequence[int] | None = None

    @property
    def complete(self) -> bool:
        """Whether the text is the complete source."""
        return self.numbers is None

    @property
    def last(self) -> int:
        """The number of the last line."""
        return self.text.count("\n") + 1 if self.numbers is None else self.numbers[-1] if self.numbers else 1

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield (number, line); a long run of empty lines of a source is shortened."""
        if self.numbers is None:
            yield from numbered(self.text)
        elif self.numbers:
            yield from zip(self.numbers, self.text.split("\n"), strict=True)

    def number(self, line: int) -> int:
        """Convert a line number in this text, from 1, to the source line number."""
        if self.numbers is None or not self.numbers:
            return line
        return self.numbers[min(max(line, 1), len(self.numbers)) - 1]

    def end(self, most: int) -> NumberedText:
        """Return the last ``most`` lines; all if there are fewer."""
        begin = len(self.text)
        for _ in range(most):
            if (begin := self.text.rfind("\n", 0, begin)) < 0:
                return self
        first = self.text.count("\n", 0, begin) + 2
        numbers = range(first, self.last + 1) if self.numbers is None else self.numbers[first - 1 :]
        return NumberedText(self.text[begin + 1 :], numbers)

    def between(self, spans: Iterable[tuple[int, int]]) -> Iterator[str]:
        """Yield the text of each span, as far as its lines are available.

        A span is its first and last source line number.
        """
        lines = self.text.split("\n")
        for first, last in spans:
            if self.numbers is None:
                yield "\n".join(lines[first - 1 : last])
            else:
                yield "\n".join(lines[bisect_left(self.numbers, first) : bisect_left(self.numbers, last + 1)])


#: Markers of omitted lines.
_LEFT_OUT = re.compile(
    r"\s*(?:#\s*)?[\[(<]?\s?(?:\.{3,}|…|snip\w*|truncated|omitted)[\])>]?(?:\s.{0,80})?|\s*\.\.\s*", re.IGNORECASE
)


def left_out(text: str) -> bool:
    """Return whether a line is a marker for omitted lines."""
    return ("." in text or "…" in text or "<" in text or "[" in text) and bool(_LEFT_OUT.fullmatch(text))
