"""Detection of tool output in a text.

A format recognises the first line of its output, and parses up to the end of the output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from preflight.parsers.output_heads import next_head
from preflight.parsers.parsed import ParseGap
from preflight.textprep.lines import Lines
from preflight.textprep.numbered_text import left_out


@dataclass
class ParsedPart:
    """One parsed output, up to the line before ``end``.

    ``facts`` have their documented names; ``summary`` is one line for the reader.
    """

    end: int
    facts: dict[str, Any]
    summary: str
    cut: list[ParseGap] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether the parser found no gap in the text."""
        return not self.cut


@dataclass(frozen=True)
class OutputFormat:
    """One output format: how to recognise and parse it.

    ``matches`` examines a line and those after it; ``parse`` reads from there. ``matches`` must be cheap: it runs on
    every line that contains one of the ``hints``, or on every line if there are none. ``parse`` never raises because of
    a text's content.
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
    stated: Mapping[str, Any] = field(default_factory=dict)  # values in and around the part that no typed fact holds
    unsettled: bool = False  # a warning is unknown in part, such as whether a job uses the port

    @property
    def judged(self) -> bool:
        """Whether the part has a finding."""
        return bool(self.findings)

    @property
    def read_in_full(self) -> bool:
        """Whether all gaps are outside the judged part.

        A pass of a truncated part proves nothing about what is missing.
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


@lru_cache(maxsize=8)
def _triples(hints: frozenset[str]) -> tuple[dict[str, frozenset[str]], frozenset[str]]:
    """Return the three-character pieces of each hint without digits, and of all hints."""
    bare = {hint: hint.translate(_NO_DIGITS) for hint in hints}
    each = {hint: frozenset(map("".join, zip(text, text[1:], text[2:], strict=False))) for hint, text in bare.items()}
    return each, frozenset().union(*each.values())


def _held(hints: frozenset[str], text: str) -> set[str]:
    """Return the hints in a text without digits.

    A thousand searches take 1.5 s per megabyte; few hints have all their pieces in a text.
    """
    each, wanted = _triples(hints)
    present = wanted.intersection(map("".join, zip(text, text[1:], text[2:], strict=False)))
    return {hint for hint, own in each.items() if own <= present and hint.translate(_NO_DIGITS) in text}


def _by_hints(lines: Lines, kinds: Sequence[OutputFormat]) -> Callable[[str], Sequence[OutputFormat]]:
    """Return a function that lists the formats that may begin at a line.

    These have a hint in the line, or no hints at all; they are in the order of ``kinds``.
    """
    # lines that differ only in digits are examined once: a job prints thousands of them
    text = "\n".join({line.text.translate(_NO_DIGITS) for line in lines})
    hints = _held(frozenset(hint for kind in kinds for hint in kind.hints), text)
    known: dict[frozenset[str], list[OutputFormat]] = {}

    def may_begin(text: str) -> Sequence[OutputFormat]:
        held = frozenset(filter(text.__contains__, hints))
        if held not in known:
            known[held] = [kind for kind in kinds if not kind.hints or not held.isdisjoint(kind.hints)]
        return known[held]

    return may_begin


#: Number of lines around a line that a format may examine, and lengths of repeating groups of lines.
_FAR, _PERIODS = 1000, (1, 2, 3, 4)


class _Repetition(NamedTuple):
    """A range of lines that repeat those one period earlier, as does their context."""

    start: int
    end: int
    period: int


def _repeated(lines: Lines) -> list[_Repetition]:
    """Return the ranges of lines in long repetitions, which ``parts`` may skip."""
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
    """Yield the recognised parts in the lines of one writer, in order."""
    may_begin = _by_hints(lines, kinds)
    repeated = _repeated(lines) if len(lines) > 4 * _FAR else []
    at = silent = 0  # ``silent``: number of lines before ``at`` since the last output
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
        # The line after the part counts too: a marker there may replace the rest of the output
        taken.cut += [
            ParseGap(line.number, "lines were left out") for line in lines[at : last + 2] if left_out(line.text)
        ]
        text = "\n".join(line.text for line in lines[at : last + 1])
        yield TextPart(kind.name, lines[at].number, lines[last].number, writer, taken, text + "\n")
        at = end
