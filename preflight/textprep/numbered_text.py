"""A text that is part of a source: its lines know their numbers there."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from preflight._startup.lightclass import dataclass
from preflight.textprep.plain_text import numbered

#: What stands where lines of a source were left out; every parser knows it from texts that people cut.
LEFT_OUT = "[...]"


@dataclass(frozen=True)
class NumberedText:
    """Lines of a source, with their ``numbers`` in it; None: all lines, from 1."""

    text: str
    numbers: Sequence[int] | None = None

    @property
    def complete(self) -> bool:
        """Whether the text is all of its source."""
        return self.numbers is None

    @property
    def last(self) -> int:
        """The number of the last line."""
        return self.text.count("\n") + 1 if self.numbers is None else self.numbers[-1] if self.numbers else 1

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield (number, line); of a long run of empty lines only its beginning."""
        if self.numbers is None:
            yield from numbered(self.text)
        elif self.numbers:
            yield from zip(self.numbers, self.text.split("\n"), strict=True)

    def number(self, line: int) -> int:
        """Return the number in the source of a line of this text, which counts from 1."""
        if self.numbers is None or not self.numbers:
            return line
        return self.numbers[min(max(line, 1), len(self.numbers)) - 1]

    def end(self, most: int) -> NumberedText:
        """Return the last lines, ``most`` of them at most."""
        begin = len(self.text)
        for _ in range(most):
            if (begin := self.text.rfind("\n", 0, begin)) < 0:
                return self
        first = self.text.count("\n", 0, begin) + 2
        numbers = range(first, self.last + 1) if self.numbers is None else self.numbers[first - 1 :]
        return NumberedText(self.text[begin + 1 :], numbers)

    def between(self, spans: Iterable[tuple[int, int]]) -> Iterator[str]:
        """Yield the available lines of each span.

        A span is two numbers of lines; both lines are part of it.
        """
        lines = self.text.split("\n")
        for first, last in spans:
            if self.numbers is None:
                yield "\n".join(lines[first - 1 : last])
            else:
                yield "\n".join(lines[bisect_left(self.numbers, first) : bisect_left(self.numbers, last + 1)])


#: Marks of lines left out.
_LEFT_OUT = re.compile(
    r"\s*(?:#\s*)?[\[(<]?\s?(?:\.{3,}|…|snip\w*|truncated|omitted)[\])>]?(?:\s.{0,80})?|\s*\.\.\s*", re.IGNORECASE
)


def left_out(text: str) -> bool:
    """Return whether a line stands for omitted lines."""
    return ("." in text or "…" in text or "<" in text or "[" in text) and bool(_LEFT_OUT.fullmatch(text))
