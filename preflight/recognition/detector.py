"""Finds out what each part of a text is: every kind of output says how it begins and reads itself to its end."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from preflight.recognition.start_patterns import next_head
from preflight.textprep.lines import Lines


@dataclass(frozen=True)
class Cut:
    """What is not whole: on which line of the source, and what is missing."""

    line: int
    what: str


@dataclass
class Taken:
    """What a kind has read: facts as the contract names them, up to the line before ``end``.

    ``summary`` says in a line what a person would read in it.
    """

    end: int
    facts: dict[str, Any]
    summary: str
    cut: list[Cut] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether nothing is missing, as far as the text itself can tell."""
        return not self.cut


@dataclass(frozen=True)
class Kind:
    """One kind of output. ``begins`` looks at a line and those after it; ``take`` reads from there.

    ``begins`` must be cheap: it is asked about every line that holds one of the ``signs``, without any about every
    line. ``take`` never raises for what a text holds.
    """

    name: str
    begins: Callable[[Lines, int], bool]
    take: Callable[[Lines, int], Taken]
    signs: tuple[str, ...] = ()


@dataclass
class Part:
    """One recognised part of a source."""

    kind: str
    first: int
    last: int
    writer: str
    taken: Taken
    text: str
    findings: list[Mapping[str, Any]] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """Return the part as `preflight read --json` prints it."""
        return {
            "kind": self.kind,
            "lines": [self.first, self.last],
            "complete": self.taken.complete,
            "writer": self.writer or None,
            "facts": self.taken.facts,
            "cut": [{"line": cut.line, "what": cut.what} for cut in self.taken.cut],
            "summary": self.taken.summary,
            "findings": self.findings,
        }


#: What a person writes who leaves lines out.
_LEFT_OUT = re.compile(
    r"\s*(?:#\s*)?[\[(<]?\s?(?:\.{3,}|…|snip\w*|truncated|omitted)[\])>]?(?:\s.{0,80})?|\s*\.\.\s*", re.IGNORECASE
)


def left_out(text: str) -> bool:
    """Tell whether a line stands for lines that were left out."""
    return ("." in text or "…" in text or "<" in text or "[" in text) and bool(_LEFT_OUT.fullmatch(text))


def _by_signs(lines: Lines, kinds: Sequence[Kind]) -> Callable[[str], Sequence[Kind]]:
    """Return what tells for one of the lines, by the signs that it holds, which kinds may begin with it; in order."""
    text = "\n".join(line.text for line in lines)
    signs = {sign for kind in kinds for sign in kind.signs if sign in text}
    known: dict[frozenset[str], list[Kind]] = {}

    def may_begin(text: str) -> Sequence[Kind]:
        held = frozenset(filter(text.__contains__, signs))
        if held not in known:
            known[held] = [kind for kind in kinds if not kind.signs or not held.isdisjoint(kind.signs)]
        return known[held]

    return may_begin


def parts(lines: Lines, writer: str, kinds: Sequence[Kind]) -> Iterator[Part]:
    """Yield the parts of a stretch of lines that one writer wrote."""
    may_begin = _by_signs(lines, kinds)
    at = 0
    while at < len(lines):
        text = lines[at].text
        kind = next((kind for kind in may_begin(text) if kind.begins(lines, at)), None) if text else None
        if kind is None:
            at += 1
            continue
        taken = kind.take(lines, at)
        end = max(at + 1, min(taken.end, len(lines)))
        if (other := next_head(kind.name, lines, at + 1, end)) < end:
            taken = kind.take(lines[at:other], 0)
            end = at + max(1, min(taken.end, other - at))
        last = end - 1
        while last > at and not lines[last].text.strip():
            last -= 1
        # The line behind it counts as well: what follows there may have been the rest
        taken.cut += [Cut(line.number, "lines were left out") for line in lines[at : last + 2] if left_out(line.text)]
        text = "\n".join(line.text for line in lines[at : last + 1])
        yield Part(kind.name, lines[at].number, lines[last].number, writer, taken, text + "\n")
        at = end
