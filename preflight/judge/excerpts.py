"""Excerpts of a finding's evidence, near its subject."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from preflight._startup.lightclass import replace
from preflight.evidence.document import Evidence, EvidenceError

if TYPE_CHECKING:
    from preflight.evidence.document import Record
    from preflight.model import Finding

    Names = Sequence["_Name"]

T = TypeVar("T")

_LINES, _CHARS = 14, 1200

#: Maximum number of records that a finding quotes.
RECORDS = 3

#: Maximum number of characters searched for all findings of a report; beyond it, findings get the heads of their
#: records. Without this limit, a log of thousands of failed runs would be searched from its start for each of them.
SEARCHED_CHARS = 16 << 20

#: Number of values whose text is cached for the next finding; number of characters at which a text is large.
_REMEMBERED, _LARGE = 32, 1 << 16

#: A PCI address: tools write its domain with four digits, eight digits, or not at all.
_PCI = re.compile(r"(?:[0-9a-f]{4,8}:)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")


class _Name(NamedTuple):
    """A name of a subject: its pattern, and its word, which is faster to find."""

    word: str  # in lower case
    pattern: re.Pattern[str]


class Search:
    """Search for the lines that name a subject, within a budget of characters.

    It serves all findings of one report: thousands of them may need the text of one record.
    """

    def __init__(self, chars: int = SEARCHED_CHARS) -> None:
        self._left = self._joined = chars
        self._made: dict[tuple[int, Callable[[Any], Any]], tuple[Any, Any]] = {}

    def once(self, value: Any, make: Callable[[Any], T]) -> T:
        """Return the result of ``make`` for a value, cached for adjacent findings."""
        place = id(value), make
        if place not in self._made:
            if len(self._made) >= _REMEMBERED:
                self._made.clear()
            self._made[place] = value, make(value)  # the value is referenced, so its id is not reused
        return cast("T", self._made[place][1])

    def first_part(self, parts: Sequence[tuple[Mapping[str, Any], str]], names: Names) -> Mapping[str, Any] | None:
        """Return the first part with one of the names; None if there is none.

        Also None once the budget is spent.
        """
        for name in names:
            for part, text in parts:
                self._left -= len(text)
                if self._left < 0:
                    return None
                if name.pattern.search(text):
                    return part
        return None

    def shortened(self, lines: Sequence[str]) -> Sequence[str]:
        """Return the lines of a value.

        Once too many characters of large values have been returned, only the start of each line is.
        """
        size = sum(map(len, lines))
        self._joined -= size if size > _LARGE else 0
        return lines if size <= _LARGE or self._joined > 0 else [line[:_CHARS] for line in lines]

    def first_line(self, text: str, names: Names) -> int:
        """Return the offset of the first line with one of the names.

        0 if no line has one, or once the budget is spent.
        """
        for name in names:
            self._left -= len(text)
            if self._left < 0:
                return 0
            if name.word in self.once(text, str.lower) and (match := name.pattern.search(text)):
                return text.rfind("\n", 0, match.start()) + 1
        return 0


def excerpts(finding: Finding, node: str, evidence: Evidence | None, search: Search) -> Iterator[dict[str, str]]:
    """Yield node, record key and text of each excerpt.

    If the finding has its own quote, only that is yielded.
    """
    if finding.quote:
        yield {"node": node, "key": finding.evidence[0] if finding.evidence else "", "text": finding.quote}
        return
    names, words = _names(finding.subject), _words(finding.message)
    for key in finding.evidence[:RECORDS]:
        try:
            record = evidence.record(key) if evidence else None
        except EvidenceError:
            continue
        if record is not None and evidence is not None and type(raw := evidence.records[key]) is not dict:
            record = replace(record, out=getattr(raw, "excerpt_text", record.out))
        if record is not None and (text := _passage(record, names, words, search)):
            yield {"node": node, "key": key, "text": text}


def _names(subject: str) -> Names:
    """Return the names of a subject in evidence: "mlx5_3 port 1", then "mlx5_3"."""
    full_name = subject.lower()
    if address := _PCI.fullmatch(full_name):
        words = [address.group(1)]
    else:
        words = list(dict.fromkeys(word for word in (full_name, full_name.partition(" ")[0]) if word))
    return [_Name(word, re.compile(rf"(?<!\w){re.escape(word)}(?!\w)", re.IGNORECASE)) for word in words]


def _words(message: str) -> frozenset[str]:
    """Return the keywords of a finding: "17 of 18 NVLinks are up" gives "nvlink"."""
    return frozenset(word.rstrip("s") for word in re.findall(r"[a-z]{4,}", message.lower()))


def _passage(record: Record, names: Names, words: frozenset[str], search: Search) -> str:
    if record.entries:
        text = "  ".join(record.entries)
    elif record.value is not None:
        text = "\n".join(search.shortened(list(_lines(record.value, names, words, search))))
    else:
        text = search.once(record.out, _stripped) or record.err.strip("\n")
    cut = _cut(text, names, search)
    described = record.describe()
    return f"[{described}]\n{cut}".rstrip("\n") if described else cut


def _cut(text: str, names: Names, search: Search) -> str:
    """Return the head of a text, or the lines starting at the subject."""
    head = _head(text, 0)
    if len(head) == len(text):
        return text
    first = 0 if any(name.pattern.search(head) for name in names) else search.first_line(text, names)
    if not first:
        return f"{head}\n[…]"
    passage = _head(text, first)
    return f"[…]\n{passage}" + ("\n[…]" if first + len(passage) < len(text) else "")


def _head(text: str, begin: int) -> str:
    """Return the first lines of a text starting at a position."""
    return "\n".join(text[begin : begin + _CHARS].split("\n", _LINES)[:_LINES])


def _stripped(text: str) -> str:
    return text.strip("\n")


def _lines(value: Any, names: Names, words: frozenset[str], search: Search) -> Iterator[str]:
    """Yield a value line by line.

    From a list of parts (GPUs), only the subject is shown, its keyword fields first.
    """
    if not isinstance(value, Mapping):
        yield search.once(value, _text)
        return
    for name, held in value.items():
        if (part := _part(held, names, search)) is None:
            yield f"{name}: {search.once(held, _text) if isinstance(held, list | dict) else _text(held)}"
            continue
        yield f"{name}, one of {len(held)}:"
        apart = sorted(part.items(), key=lambda item: not any(word in item[0] for word in words))
        yield from (f"  {key}: {_text(one)}" for key, one in apart)


def _part(held: Any, names: Names, search: Search) -> Mapping[str, Any] | None:
    return search.first_part(search.once(held, _parts), names) if names and isinstance(held, list) else None


def _parts(held: Sequence[Any]) -> list[tuple[Mapping[str, Any], str]]:
    """Return the objects in a list, each with its text."""
    return [(one, _text(one)) for one in held if isinstance(one, Mapping)]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
