"""Wrapped lines, joined if that makes the parsed output more complete."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from preflight.recognition.detector import TextPart
from preflight.textprep.lines import Lines
from preflight.textprep.wrapped_lines import unbroken

#: Maximum distance in lines between two parts of one output that a broken line has split.
_GAP = 3
#: Maximum number of lines of a pasted text; logs are longer, and their writers do not wrap lines.
_MOST_LINES = 5000


def prefer_unwrapped(lines: Lines, found: list[TextPart], read: Callable[[Lines], list[TextPart]]) -> list[TextPart]:
    """Return the parts of the lines, or of the joined lines if more complete.

    ``found`` holds the parts of the lines before they are joined; complete parts are returned as they are.
    """
    is_pasted = len(lines) > 0 and lines[-1].number - lines[0].number < _MOST_LINES
    if not is_pasted or (found and _broken(found) == 0):
        return found
    for candidate in unbroken(lines):
        again = read(candidate)
        if again and (not found or (_pieces(again) < _pieces(found) and count_facts(again) >= count_facts(found))):
            found = again
    return found


def count_facts(found: Sequence[TextPart]) -> int:
    """Count the facts of parts.

    Joining unrelated lines hides facts, so a lower count shows that lines were joined wrongly.
    """
    return sum(_leaves(part.taken.facts) for part in found)


def _leaves(facts: Any) -> int:
    if isinstance(facts, dict):
        return sum(map(_leaves, facts.values()))
    return sum(map(_leaves, facts)) if isinstance(facts, list) else facts is not None


def _pieces(found: Sequence[TextPart]) -> tuple[int, int]:
    return _broken(found), len(found)


def _broken(found: Sequence[TextPart]) -> int:
    """Count the signs of broken output: incomplete parts, and adjacent ones of a kind."""
    again = sum(one.kind == other.kind and other.first - one.last <= _GAP
                for one, other in pairwise(found))  # fmt: skip
    return again + sum(not part.taken.complete for part in found)
