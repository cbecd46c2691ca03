"""Layout of paragraphs and labelled lists: by rich for a terminal, else plain."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

#: A piece of text and its rich style.
Span = tuple[str, str]

#: Indentation of a list.
INDENT = 8

#: Width in columns below which rich does the layout.
_NARROWEST = 40

# Characters that are one column wide on every terminal; rich lays out text with any other.
_PLAIN = re.compile("[\n -~\xa1-\xac\xae-\u02ff\u2010-\u2027\u2190-\u2193\u2264\u2265]*")
# A command in backticks is one word; a wrapped command could not be copied.
_WORD = re.compile(r"\s*(?:`[^`\n]*`|\S)+\s*")


class Paragraph(NamedTuple):
    """Wrapped text; ``style`` applies to spans without one.

    All lines but the first are indented by ``hang`` columns.
    """

    spans: tuple[Span, ...]
    style: str = ""
    hang: int = 0


class Listing(NamedTuple):
    """Rows of label, text and style; the texts are aligned."""

    rows: tuple[tuple[str, str, str], ...]


Part = Paragraph | Listing


def typeset(parts: Iterable[Part], *, colour: bool, width: int) -> str:
    """Return the parts as lines of at most ``width`` columns, right-trimmed."""
    parts = list(parts)
    if colour or width < _NARROWEST or not all(_PLAIN.fullmatch(text) for part in parts for text in _texts(part)):
        text = _by_rich(parts, colour, width)
    else:
        text = "".join(f"{line}\n" for part in parts for line in _lines(part, width))
    return "\n".join(line.rstrip() for line in text.split("\n"))


def _texts(part: Part) -> Iterator[str]:
    if isinstance(part, Paragraph):
        return (text for text, _ in part.spans)
    return (text for row in part.rows for text in row[:2])


def _lines(part: Part, width: int) -> Iterator[str]:
    if isinstance(part, Paragraph):
        text = "".join(text for text, _ in part.spans)
        start = _start(text, part.hang)
        for line in _wrapped(text[start:], width - part.hang):
            yield text[:start] + line
            text, start = " " * part.hang, part.hang
        return
    labels = max((len(label) for label, _, _ in part.rows), default=0) + 1
    for label, text, _ in part.rows:
        for line in _wrapped(text, width - INDENT - labels):
            yield " " * INDENT + label.ljust(labels) + line
            label = ""


def _start(text: str, hang: int) -> int:
    """Return the index of the text to wrap, after empty lines and ``hang`` columns."""
    return len(text) - len(text.lstrip("\n")) + hang if hang else 0


def _wrapped(text: str, width: int) -> Iterator[str]:
    """Wrap lines between words; words that are too long are split."""
    for line in text.split("\n"):
        pieces, room = [""], width
        for word in _WORD.findall(line):
            letters = len(word.rstrip())
            if letters <= room:
                pieces[-1] += word
                room -= len(word)
                continue
            chopped = [word]
            if letters > width:
                chopped = [word[start : start + width] for start in range(0, len(word), width)]
            pieces += chopped
            room = width - len(chopped[-1])
        yield from pieces if pieces[0] or len(pieces) == 1 else pieces[1:]


def _by_rich(parts: Iterable[Part], colour: bool, width: int) -> str:
    from rich.console import Console, Group
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    out = io.StringIO()
    console = Console(
        file=out, width=width, force_terminal=colour, color_system="standard" if colour else None,
        highlight=False, markup=False, emoji=False, soft_wrap=False, legacy_windows=False,
    )  # fmt: skip
    for part in parts:
        if isinstance(part, Paragraph):
            text = Text.assemble(*part.spans, style=part.style)
            start = _start(text.plain, part.hang)
            if width < _NARROWEST or not 0 < start < len(text):
                console.print(text)
                continue
            head, body = text.divide([start])
            for line in body.wrap(console, width - part.hang):
                console.print(head + line, soft_wrap=True)
                head = Text(" " * part.hang)
            continue
        grid = Table.grid(padding=(0, 1))
        grid.add_column(no_wrap=True, style="dim")
        grid.add_column(overflow="fold")
        labels = max((len(label) for label, _, _ in part.rows), default=0) + 1
        for label, row, style in part.rows:
            if _PLAIN.fullmatch(row) and width >= _NARROWEST:
                row = "\n".join(_wrapped(row, width - INDENT - labels))
            grid.add_row(label, Text(row, style=style))
        console.print(Group(Padding(grid, (0, 0, 0, INDENT))))
    return out.getvalue()
