"""Lines that a terminal, a mail or a page broke at a width: put together where an output is then read better."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from preflight.recognition.detector import TextPart, left_out
from preflight.textprep.lines import Line, Lines

#: Widths at which lines are broken: mails at 72 and more, screens at up to 240.
_NARROWEST, _WIDEST = 60, 240
#: The narrowest screen that people work on.
_SCREEN = 76
#: Screens as wide as this are so common that one line of that width is enough; blanks at the end hide the others.
_USUAL = frozenset((80, 100, 120, 132, 160))
#: Lines between two pieces of one output, where a broken line could not be read.
_GAP = 3
#: Lines of what somebody pasted; logs are longer, and what writes them breaks no lines.
_MOST_LINES = 5000
#: What no line begins with: a page that colours code put a line's pieces on lines of their own. How many tell it.
_REST = re.compile(r"[\]):](?:\s|\d|$)")
_LEAST_RESTS = 4
#: A word of this length at most is carried over as a whole.
_WORD = 40


def prefer_unwrapped(lines: Lines, found: list[TextPart], read: Callable[[Lines], list[TextPart]]) -> list[TextPart]:
    """Return the parts of the lines, or of the joined lines if these are more complete.

    ``found`` are the parts of the lines as they are. Complete parts stay as they are.
    """
    if len(lines) > _MOST_LINES or (found and _broken(found) == 0):
        return found
    for candidate in _unbroken(lines):
        again = read(candidate)
        if again and (not found or (_pieces(again) < _pieces(found) and count_facts(again) >= count_facts(found))):
            found = again
    return found


def count_facts(found: Sequence[TextPart]) -> int:
    """Count the facts of parts; joining unrelated lines hides some."""
    return sum(_leaves(part.taken.facts) for part in found)


def _leaves(facts: Any) -> int:
    if isinstance(facts, dict):
        return sum(map(_leaves, facts.values()))
    return sum(map(_leaves, facts)) if isinstance(facts, list) else facts is not None


def _pieces(found: Sequence[TextPart]) -> tuple[int, int]:
    return _broken(found), len(found)


def _broken(found: Sequence[TextPart]) -> int:
    """Return how many pieces are missing: what is cut, and what begins anew after a line or two."""
    again = sum(one.kind == other.kind and other.first - one.last <= _GAP
                for one, other in pairwise(found))  # fmt: skip
    return again + sum(not part.taken.complete for part in found)


def _unbroken(lines: Lines) -> Iterator[list[Line]]:
    """Yield the lines put together, as for a screen and as for a mail."""
    if sum(bool(_REST.match(line.text)) for line in lines) >= _LEAST_RESTS:
        yield _joined(lines, lambda line, after: line + after if _REST.match(after) else None)
    widths = Counter(len(line.text) for line in lines)
    widest = max(widths, default=0)
    if not _NARROWEST <= widest <= _WIDEST:
        return
    if (widths[widest] > 1 or widest in _USUAL) and widest >= _SCREEN:
        yield _joined(lines, lambda line, after: _screen(line, after, widest))
    # a mail's lines end where the next word did not fit; its width is a little more than its longest line
    yield _joined(lines, lambda line, after: _mail(line, after, widest))


def _screen(line: str, after: str, width: int) -> str | None:
    """Return two lines as one if a screen of that width broke it; blanks at the end of a line are lost."""
    if len(line) == width:
        return line + after
    if width - len(line) <= 8 and after[:1].isspace():
        return line.ljust(width) + after
    return None


def _mail(line: str, after: str, width: int) -> str | None:
    """Return two lines as one if the first word of the second did not fit below that width."""
    words = after.split(None, 1)
    if not words or after[:1].isspace() or not width - _WORD <= len(line):
        return None
    return f"{line} {after}" if len(line) + 1 + len(words[0]) > width else None


def _joined(lines: Lines, join: Callable[[str, str], str | None]) -> list[Line]:
    found: list[Line] = []
    tail = ""
    for line in lines:
        one = join(tail, line.text) if found and tail and line.text and not left_out(line.text) else None
        if one is None:
            found.append(line)
        else:
            found[-1] = Line(found[-1].number, found[-1].text + one[len(tail) :])
        tail = line.text
    return found
