"""Detection of tool output in a text.

Each format matches the first line of its output and parses to its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from preflight.parsers.output_heads import next_head
from preflight.parsers.parsed import ParseGap
from preflight.textprep.lines import Lines
from preflight.textprep.numbered_text import left_out


@dataclass
class ParsedPart:
    """One parsed output: its documented facts, up to the line before ``end``.

    ``summary`` is one line for the reader.
    """

    end: int
    facts: dict[str, Any]
    summary: str
    cut: list[ParseGap] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether the text has no visible gap."""
        return not self.cut


@dataclass(frozen=True)
class OutputFormat:
    """One output format.

    ``matches`` looks at a line and those after it, ``parse`` reads from there. ``matches`` must be cheap: it runs on
    every line that contains one of the ``hints``, or on every line if there are none. ``parse`` never raises for the
    content of a text.
    """

    name: str
    matches: Callable[[Lines, int], bool]
    parse: Callable[[Lines, int], ParsedPart]
    hints: tuple[str, ...] = ()


@dataclass
class TextPart:
    """One recognised part of a source."""

    kind: str
    first: int
    last: int
    writer: str
    taken: ParsedPart
    text: str
    findings: list[Mapping[str, Any]] = field(default_factory=list)
    stated: Mapping[str, Any] = field(default_factory=dict)  # values in and around it that no typed fact has

    @property
    def judged(self) -> bool:
        """Whether a rule judged any of it."""
        return bool(self.findings)

    @property
    def read_in_full(self) -> bool:
        """Whether the part is complete.

        A pass of a truncated part proves nothing about the rest.
        """
        return all(gap.beside for gap in self.taken.cut)

    def document(self) -> dict[str, Any]:
        """Return the part as `preflight read --json` prints it."""
        return {
            "kind": self.kind,
            "lines": [self.first, self.last],
            "complete": self.taken.complete,
            "read_in_full": self.read_in_full,
            "writer": self.writer or None,
            "facts": self.taken.facts,
            "stated": self.stated,
            "cut": [{"line": cut.line, "what": cut.what} for cut in self.taken.cut],
            "summary": self.taken.summary,
            "judged": self.judged,
            "findings": self.findings,
        }


_NO_DIGITS = str.maketrans("", "", "0123456789")


def _by_hints(lines: Lines, kinds: Sequence[OutputFormat]) -> Callable[[str], Sequence[OutputFormat]]:
    """Return a function that lists the possible formats of a line, by hints.

    The formats are in order.
    """
    # lines that differ only in digits are examined once: a job prints thousands of them
    text = "\n".join({line.text.translate(_NO_DIGITS) for line in lines})
    hints = {hint for kind in kinds for hint in kind.hints if hint.translate(_NO_DIGITS) in text}
    known: dict[frozenset[str], list[OutputFormat]] = {}

    def may_begin(text: str) -> Sequence[OutputFormat]:
        held = frozenset(filter(text.__contains__, hints))
        if held not in known:
            known[held] = [kind for kind in kinds if not kind.hints or not held.isdisjoint(kind.hints)]
        return known[held]

    return may_begin


#: Context lines around a line that a format examines; lengths of repeating line groups.
_FAR, _PERIODS = 1000, (1, 2, 3, 4)


class _Repetition(NamedTuple):
    """Lines that repeat those one period earlier, with their context."""

    start: int
    end: int
    period: int


def _repeated(lines: Lines) -> list[_Repetition]:
    """Return the ranges of long repetitions, in which no format begins."""
    repetitions: list[_Repetition] = []
    for period in _PERIODS:
        first = period
        for at in range(period, len(lines) + 1):
            if (
                at < len(lines)
                and lines[at].text == lines[at - period].text
                and lines[at].number == lines[at - period].number + period
            ):
                continue
            if at - first > 2 * _FAR + period:
                repetitions.append(_Repetition(first + _FAR + period, at - _FAR, period))
            first = at + 1
    return sorted(repetitions)


def parts(lines: Lines, writer: str, kinds: Sequence[OutputFormat]) -> Iterator[TextPart]:
    """Yield the parts of consecutive lines by one writer."""
    may_begin = _by_hints(lines, kinds)
    repeated = _repeated(lines) if len(lines) > 4 * _FAR else []
    at = silent = 0  # no format begins at or before this line
    while at < len(lines):
        while repeated and at >= repeated[0].end:
            del repeated[0]
        if repeated and at >= repeated[0].start and silent >= repeated[0].period:
            at = repeated[0].end
            continue
        text = lines[at].text
        kind = next((kind for kind in may_begin(text) if kind.matches(lines, at)), None) if text else None
        if kind is None:
            at += 1
            silent += 1
            continue
        silent = 0
        taken = kind.parse(lines, at)
        end = max(at + 1, min(taken.end, len(lines)))
        if (other := next_head(kind.name, lines, at + 1, end)) < end:
            taken = kind.parse(lines[at:other], 0)
            end = at + max(1, min(taken.end, other - at))
        last = end - 1
        while last > at and not lines[last].text.strip():
            last -= 1
        # The line after it is included, because the rest may have been there
        taken.cut += [
            ParseGap(line.number, "lines were left out") for line in lines[at : last + 2] if left_out(line.text)
        ]
        text = "\n".join(line.text for line in lines[at : last + 1])
        yield TextPart(kind.name, lines[at].number, lines[last].number, writer, taken, text + "\n")
        at = end
