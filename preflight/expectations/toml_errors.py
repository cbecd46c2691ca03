"""Explanation of TOML errors in a cluster file: line, key, fault and fix."""

from __future__ import annotations

import re

#: Messages of the TOML parser (Python's ``tomllib``, or tomli), their meaning and the fix. The first match is used.
_WORDS = (
    (r"Cannot (declare|overwrite|mutate|redefine)|twice|[Dd]uplicate", "is set twice", "keep one of the two"),
    (
        r"Unterminated string|Expected \"'\"|Illegal character '\\n'",
        "a string is not closed",
        "close it with a quote, on the same line",
    ),
    (
        r"Unescaped '\\\\'|escape",
        "a backslash in a text",
        'write it twice ("\\\\"), or put the text in single quotes',
    ),
    (r"Illegal character", "an invisible character", "delete it; write plain text, with spaces"),
    (r"Unclosed array", "a list is not closed", "close it with ]"),
    (r"Unclosed inline table", "an inline table is not closed", "close it with }, on the same line"),
    (
        r"Expected newline or end of document",
        "something follows the value",
        "write numbers without a unit (400, not 400G), and text in quotes",
    ),
    (r"Invalid (date|time)|day is out of range|month must be", "is not a date", "write it as 2026-12-31"),
    (r"Expected '=' after a key", "has no value", "write it as key = value, and a table as [name]"),
    (
        r"Expected '\]'|Expected ']'|at the end of a table declaration",
        "the name of a table is not closed",
        "write it as [name], that of a list as [[name]]",
    ),
    (
        r"Invalid value|Expected a value",
        "has no valid TOML value",
        "put text in quotes; numbers are unquoted; true and false are lower case",
    ),
    (
        r"Invalid (initial character|statement)|Invalid key",
        "is not a key",
        "write key = value; a # starts a comment",
    ),
)


def explain(error: Exception, text: str) -> tuple[int | None, str, str, str]:
    """Return the line (None if unknown), key, fault and fix of a TOML error."""
    if text.startswith("\ufeff"):
        return 1, "", "begins with a byte order mark", "save the file as UTF-8 without BOM"
    if isinstance(error, RecursionError):
        return None, "", "is nested too deeply", "a cluster file needs at most tables within tables"
    message = str(error)
    line = _line(message, text)
    for pattern, what, fix in _WORDS:
        if re.search(pattern, message):
            return line, _key(text, line), what, fix
    if "digits" in message:  # Python rejects numbers with thousands of digits
        long = re.search(r"\d{4000}", text)
        line = text.count("\n", 0, long.start()) + 1 if long else line
        return line, _key(text, line), "is a number with thousands of digits", "write the intended number"
    return line, _key(text, line), f"is not TOML ({message[:120]})", "see https://toml.io"


def _line(message: str, text: str) -> int | None:
    if found := re.search(r"at line (\d+)", message):
        number = int(found[1])
        # the parser reports an unterminated string at the start of the next line
        return number - 1 if "Illegal character '\\n'" in message and number > 1 and _column(message) == 1 else number
    return text.count("\n", 0, len(text.rstrip())) + 1 if "end of document" in message else None


def _column(message: str) -> int:
    found = re.search(r"column (\d+)", message)
    return int(found[1]) if found else 0


def _key(text: str, line: int | None) -> str:
    """Return the key or table at the start of a line; empty if there is none."""
    lines = text.split("\n")
    if line is None or not 0 < line <= len(lines):
        return ""
    found = re.match(r"\s*\[{0,2}\s*([A-Za-z0-9_.\-\"' ]{1,80}?)\s*(?:[=\]]|$)", lines[line - 1])
    return found[1] if found else ""
