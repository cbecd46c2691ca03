"""Envelopes of a text: strings, log records, page sources and patches.

Strings are those of JSON or Python. An envelope may contain another one; they are opened one by one. The content is
processed like any other text, and each line has the number of its source line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from preflight.evidence import json_limits
from preflight.textprep.launcher_prefixes import strip_one_prefix
from preflight.textprep.page_cleanup import counted, fenced, framed, page, quoted, returned
from preflight.textprep.patch_cleanup import marked_alike, patched
from preflight.textprep.plain_text import limit_blank_runs
from preflight.textprep.table_cells import cells, messages


@dataclass(frozen=True)
class UnpackedText:
    """The content of an envelope.

    ``numbers`` contains the source line number of each line.
    """

    text: str
    numbers: list[int]
    sure: bool  # whether this or an enclosing envelope is certain


_Lines = list[tuple[int, str]]

#: Maximum nesting of envelopes, as in a page with an API response that contains a string.
_DEPTH = 3
#: Minimum number of lines that are records, and their minimum fraction of all lines.
_LEAST, _SHARE = 3, 0.8


def opened(text: str) -> list[UnpackedText]:
    """Return the content of a text's envelopes, innermost first; empty without one.

    What looks like an inner envelope may be part of a tool's output, so the content of the enclosing one follows.
    """
    lines: _Lines = list(enumerate(limit_blank_runs(text).split("\n"), 1))
    found: list[UnpackedText] = []
    sure = False
    while len(found) < _DEPTH:
        opens, inner = next(
            ((opens, inner) for opens in _ENVELOPES if (inner := opens(lines)) is not None), (None, lines)
        )
        if opens is None:
            break
        lines = inner
        sure |= opens in _SURE
        found.insert(0, UnpackedText("\n".join(line for _, line in lines), [number for number, _ in lines], sure))
    return found


#: Maximum number of lines of a text whose prefixes are removed one by one (longer texts show them by repetition), and
#: of prefixes of a line.
_MOST_PREFIXED, _MOST_PREFIXES = 50, 3


def unprefixed(text: str) -> Iterator[list[tuple[str, UnpackedText]]]:
    """Yield a short text without one, two, … launcher prefixes, by writer.

    All lines must have a prefix, because a single line does not show which of its words belong to one.
    """
    lines = [("", number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    for _ in range(_MOST_PREFIXES if 0 < len(lines) <= _MOST_PREFIXED else 0):
        stripped = [strip_one_prefix(line) for _, _, line in lines]
        lines = [
            (f"{writer} {split[0]}".strip(), number, split[1])
            for (writer, number, _), split in zip(lines, stripped, strict=True)
            if split is not None
        ]
        if None in stripped:
            return
        yield [
            (name, UnpackedText("\n".join(line for _, _, line in own), [number for _, number, _ in own], False))
            for name in dict.fromkeys(writer for writer, _, _ in lines)
            for own in [[line for line in lines if line[0] == name]]
        ]


# --- strings -----------------------------------------------------------------------------------------

#: Minimum number of line ends in a string.
_LEAST_ENDS = 3
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[0-7]{3}|.)")
_ENDS = {"n": "\n", "t": "\t", "r": "", "b": "", "f": "", "a": "", "0": ""}
#: The start of a string in its first line: after a name (possibly the last of several), or after a bracket or comma.
_STRING_BEGINS = (
    re.compile(r".*[\w\"']\s*:\s+[bru]{0,2}(\\?[\"'])"),
    re.compile(r"(?:|.*?[=(\[{,])\s*[bru]{0,2}(\\?[\"'])"),
)
_STRING_ENDS = re.compile(r"\\?[\"']\s*(?:[,}\])].{0,200})?$")


def _strings(lines: _Lines) -> _Lines | None:
    r"""Open strings that contain line ends as ``\n``.

    Either end of a string may be truncated.
    """
    found: _Lines = []
    any_ = False
    for number, line in lines:
        if line.count("\\n") < _LEAST_ENDS:
            found.append((number, line))
            continue
        any_ = True
        pieces = _unescaped(line).split("\n")
        head, quote, rest = _apart(pieces[0])
        pieces[0] = rest
        if quote or _STRING_ENDS.search(pieces[-1]):
            pieces[-1] = _STRING_ENDS.sub("", pieces[-1])
        if head:
            found.append((number, head))
        found += [(number, piece) for piece in pieces]
    return found if any_ else None


def _apart(piece: str) -> tuple[str, str, str]:
    """Split the first line of a string: the text before it, its quote, and its text."""
    match = next((match for pattern in _STRING_BEGINS if (match := pattern.match(piece))), None)
    if not match:
        return "", "", piece
    return piece[: match.start(1)].strip(" \"',:{[(=bru"), match[1], piece[match.end() :]


def _unescaped(line: str) -> str:
    def plain(match: re.Match[str]) -> str:
        escape = match[1]
        if escape[0] in "ux" and len(escape) > 1:
            return chr(int(escape[1:], 16)) if not 0xD800 <= int(escape[1:], 16) < 0xE000 else ""
        return chr(int(escape, 8) & 0x7F) if len(escape) == 3 else _ENDS.get(escape, escape)

    return _ESCAPE.sub(plain, line)


# --- records -----------------------------------------------------------------------------------------

#: Keys of the logged line in the records of Docker, Kubernetes, journald, Fluentd, Loki, Google and AWS.
_MESSAGE = ("log", "message", "msg", "MESSAGE", "line", "textPayload", "@message", "text", "_raw", "body", "content")
#: A key of each record of journald, and of the host that wrote it.
_JOURNAL, _JOURNAL_HOST = '"__REALTIME_TIMESTAMP"', "_HOSTNAME"
_HOST = re.compile(r"[A-Za-z0-9][\w.-]{0,252}")
_LOGFMT = re.compile(r'(?:^|\s)(?:msg|message|log|line)="((?:[^"\\]|\\.)*)"')
_STRING = r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
#: An element of a list, or of a string that a program concatenates; a name may precede the first element.
_ELEMENT = re.compile(rf"\s*({_STRING})(?:\s*[,;)+\\])?\s*")
_NAMED_ELEMENT = re.compile(rf"\s*(?=\S)[\w.:\[\] ]{{1,60}}?\s*:?=(?:\s*\()?\s*({_STRING})(?:\s*[+\\])?\s*")


def _records(lines: _Lines) -> _Lines | None:
    """Extract the logged lines from JSON or logfmt records, one record per line."""
    for take in (_of_json, _of_logfmt):
        inside = [(number, line, take(line)) for number, line in lines]
        count = sum(inner is not None for _, _, inner in inside)
        least = 1 if any(_JOURNAL in line for _, line in lines) else _LEAST
        if count >= max(least, _SHARE * sum(bool(line.strip()) for _, line in lines)):
            return [
                (number, piece)
                for number, line, inner in inside
                for piece in (line if inner is None else inner.rstrip("\r\n")).split("\n")
                if inner is not None or line.strip()
            ]
    return None


def _of_json(line: str) -> str | None:
    """Return a record's message or a recorded terminal output; None for other lines."""
    text = line.strip().rstrip(",")
    if text[:1] not in ("{", "[") or text[-1:] not in ("}", "]"):
        return None
    try:
        value = json_limits.text(text, strict=False)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, list):
        is_event = len(value) == 3 and value[1] == "o" and isinstance(value[2], str)
        return str(value[2]) if is_event else None
    for holder in (value, value.get("jsonPayload"), value.get("fields")):
        if isinstance(holder, dict):
            for name in _MESSAGE:
                if isinstance(holder.get(name), str):
                    host = holder.get(_JOURNAL_HOST)
                    named = f"{host}: " if isinstance(host, str) and _HOST.fullmatch(host) else ""
                    return "\n".join(named + piece for piece in holder[name].split("\n"))
    return None


def _of_logfmt(line: str) -> str | None:
    match = _LOGFMT.search(line) if '="' in line else None
    return _unescaped(match[1]) if match else None


def _elements(lines: _Lines) -> _Lines | None:
    """Open lists of strings, one string per line, as Ansible prints them."""
    found: _Lines = []
    stretch: list[tuple[int, str, str]] = []  # line number, line, and string in it
    any_ = False

    def close() -> None:
        nonlocal any_
        if len(stretch) >= _LEAST:
            any_ = True
            found.extend((number, piece) for number, _, string in stretch for piece in _pieces(string))
        else:
            found.extend((number, line) for number, line, _ in stretch)
        stretch.clear()

    for number, line in lines:
        string = _element(line, first=not stretch) if '"' in line or "'" in line else None
        if string is not None:
            stretch.append((number, line, string))
        else:
            close()
            found.append((number, line))
    close()
    return found if any_ else None


def _element(line: str, first: bool) -> str | None:
    """Return the string of a list element, or None; a name may precede the first."""
    if match := _ELEMENT.fullmatch(line):
        return match[1]
    named = _NAMED_ELEMENT.fullmatch(line) if first else None
    return named[1] if named and named[1][:-1].endswith("\\n") else None


def _pieces(string: str) -> list[str]:
    """Return the lines in the string of an element, without escapes."""
    return _unescaped(string[1:-1]).removesuffix("\n").split("\n")


_ENVELOPES = (
    returned, patched, counted, _records, messages, _elements, _strings, page, cells, framed, quoted, marked_alike,
    fenced,
)  # fmt: skip
_SURE = (patched, counted, _records, messages, _elements, _strings)
