"""Fields nested by indentation: YAML, and the output of ``kubectl describe``."""

from __future__ import annotations

import re
from typing import Any

from preflight.parsers.text_block import is_prompt
from preflight.textprep.lines import Lines

_KEY = re.compile(r"(?P<key>\"[^\"]{1,300}\"|'[^']{1,300}'|[^\s:#'\"\[\]{}|-][^:]{0,300}?):(?:\s+(?P<value>.*))?")
#: Maximum depth of a document (deeper lines are skipped), and maximum lines.
_DEEPEST, _MOST_LINES = 40, 200_000
_BLOCK = re.compile(r"[|>][+-]?\d?")


def read_fields(lines: Lines, at: int, *, titled: bool) -> tuple[Any, int]:
    """Return the value that starts at a line, and the index after it.

    ``titled`` selects the format of ``kubectl describe``. Names are then titles such as ``Last Transition Time``, lists
    have no dashes (a repeated name starts the next item), and the value ends before ``Events:``.
    """
    rows: list[tuple[int, str]] = []
    end = at
    for line in lines[at : at + _MOST_LINES]:
        text = line.text
        if is_prompt(text) or (text.startswith("---") and end > at):
            break
        indent = len(text) - len(text.lstrip())
        if titled and end > at and (text.startswith("Events:") or re.match(r"Name:\s", text)):
            end += text.startswith("Events:")
            break
        if text.strip() and not indent and end > at and not _KEY.fullmatch(text) and not text.startswith("- "):
            break
        if text.strip():
            rows.append((indent, text.strip()))
        end += 1
    return _Reader(rows, titled).value(), end


class _Reader:
    """Reader of a document, row by row."""

    def __init__(self, rows: list[tuple[int, str]], titled: bool) -> None:
        self._rows, self._titled, self._at = rows, titled, 0

    def value(self) -> Any:
        return self._block(self._rows[0][0], 0) if self._rows else None

    def _block(self, indent: int, depth: int) -> Any:
        if depth > _DEEPEST:
            self._skip(indent)
            return None
        return self._list(indent, depth) if self._rows[self._at][1].startswith("- ") else self._mapping(indent, depth)

    def _skip(self, indent: int) -> None:
        while self._at < len(self._rows) and self._rows[self._at][0] >= indent:
            self._at += 1

    def _list(self, indent: int, depth: int) -> list[Any]:
        result: list[Any] = []
        while self._at < len(self._rows):
            here, text = self._rows[self._at]
            if here != indent or not text.startswith("-"):
                break
            rest = text[1:].lstrip()
            if _KEY.fullmatch(rest) or rest.startswith("- "):
                inner = here + len(text) - len(rest)
                self._rows[self._at] = (inner, rest)
                result.append(self._block(inner, depth + 1))
            else:
                self._at += 1
                result.append(_scalar(self._continued(rest, here)))
        return result

    def _mapping(self, indent: int, depth: int) -> Any:
        items: list[dict[str, Any]] = [{}]
        while self._at < len(self._rows):
            here, text = self._rows[self._at]
            match = _KEY.fullmatch(text) if here == indent else None
            if here < indent or (here == indent and text.startswith("- ")):
                break
            self._at += 1
            if match is None:
                continue  # a row of a table, or the rest of a long text
            key, value = match["key"].strip("\"'"), match["value"] or ""
            key = _camel(key) if self._titled else key
            if key in items[-1] and self._titled:
                items.append({})
            items[-1][key] = self._of_key(value, here, depth)
        return items if len(items) > 1 else items[0]

    def _of_key(self, value: str, indent: int, depth: int) -> Any:
        if _BLOCK.fullmatch(value):
            return self._continued("", indent)
        if value:
            return _scalar(self._continued(value, indent))
        if self._at >= len(self._rows):
            return None
        here, text = self._rows[self._at]
        if here > indent or (here == indent and text.startswith("- ")):
            return self._block(here, depth + 1)
        return None

    def _continued(self, value: str, indent: int) -> str:
        """Return text joined with its continuation rows, which are indented more deeply."""
        texts = [value] if value else []
        while self._at < len(self._rows) and self._rows[self._at][0] > indent:
            if self._titled and _KEY.fullmatch(self._rows[self._at][1]):
                break
            texts.append(self._rows[self._at][1])
            self._at += 1
        return " ".join(texts)[:4000]


def _camel(title: str) -> str:
    """Convert a title to a field name: ``Last Seen`` to ``lastSeen``."""
    words = title.split()
    if len(words) == 1:
        return title if "/" in title or not title[:1].isupper() else title[:1].lower() + title[1:]
    return words[0].lower() + "".join(word[:1].upper() + word[1:] for word in words[1:])


def _scalar(text: str) -> Any:
    if text[:1] in "\"'" and text[-1:] == text[:1] and len(text) > 1:
        return text[1:-1].replace('\\"', '"') if text[0] == '"' else text[1:-1].replace("''", "'")
    return {"{}": {}, "[]": [], "null": None, "<none>": None}.get(text, text)
