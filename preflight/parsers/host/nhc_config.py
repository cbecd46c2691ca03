"""The configuration of LBNL Node Health Check: ``TARGET || check arguments``.

The part after ``||`` is shell text, which is never executed. Quotes are removed, ``$NAME`` is replaced if an earlier
line of the file sets it, and all other shell syntax is rejected.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from preflight._startup.lightclass import dataclass
from preflight.errors import PreflightError

#: Maximum lines of a file: enough for ten thousand nodes, each with a separate line for every check.
MOST_LINES = 500_000

#: Maximum characters of a line, of the values that replace its variables, and maximum words of a line.
LONGEST_LINE, LONGEST_VALUE, MOST_WORDS = 8192, 4096, 500

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,99})=")
_OPERATORS = ";|&<>()"


class ShellSyntax(PreflightError, ValueError):
    """Raised for shell text that is more than one command with plain arguments."""


@dataclass(frozen=True)
class ConfigLine:
    """A line that is neither empty nor a comment."""

    number: int
    text: str
    target: str  # empty if the line has no ``||``
    command: str


def parse(text: str) -> list[ConfigLine]:
    """Split a file into lines; a final backslash joins two. Raises ValueError."""
    if text.count("\n") > MOST_LINES:
        raise ValueError(f"has more than {MOST_LINES} lines")
    lines = []
    joined: list[str] = []
    first = 1
    for number, raw in enumerate(text.split("\n"), 1):
        if not joined:
            first = number
        raw = raw.removesuffix("\r")
        if raw.endswith("\\") and not raw.lstrip().startswith("#"):
            joined.append(raw[:-1])
            continue
        line = "".join([*joined, raw]).strip()
        joined = []
        if line and not line.startswith("#"):
            lines.append(_line(first, line))
    if rest := "".join(joined).strip():
        lines.append(_line(first, rest))
    return lines


def _line(number: int, text: str) -> ConfigLine:
    target, bars, command = text.partition("||")
    if not bars:
        return ConfigLine(number, text, "", text)
    return ConfigLine(number, text, target.strip(), command.strip())


def words(command: str, variables: Mapping[str, str]) -> list[str]:
    """Return a command's words without quotes and comments; raises ShellSyntax.

    ``variables`` are those that earlier lines of the file set. As in NHC, file names are not expanded.
    """
    if len(command) > LONGEST_LINE:
        raise ShellSyntax(f"the line has more than {LONGEST_LINE} characters")
    return _Words(command, variables).split()


def assignments(words: list[str]) -> dict[str, str] | None:
    """Return the variables that a line sets; None if the line does anything else."""
    rest = words[1:] if words and words[0] == "export" else words
    if not rest or not all(_ASSIGNED.match(word) or (rest is not words and _NAME.fullmatch(word)) for word in rest):
        return None
    made = {}
    for word in rest:
        name, equals, value = word.partition("=")
        if equals:
            made[name] = value
    return made


class _Words:
    """One command, split into words; shell expansions are rejected."""

    def __init__(self, text: str, variables: Mapping[str, str]) -> None:
        self._text = text
        self._variables = variables
        self._at = 0
        self._made: list[str] = []
        self._word: list[str] | None = None
        self._expanded = 0  # characters that came from variables
        self._brace = ""  # the word's unquoted characters from its first brace on

    def split(self) -> list[str]:
        text = self._text
        while self._at < len(text):
            sign = text[self._at]
            if sign in " \t":
                self._end_word()
            elif sign == "#" and self._word is None:
                break
            elif sign in _OPERATORS or sign == "\n":
                raise ShellSyntax(f"is shell text with `{sign}`, not one check; it is not executed")
            elif sign == "'":
                self._single_quoted()
            elif sign == '"':
                self._double_quoted()
            elif sign == "\\":
                self._at += 1
                self._add(text[self._at : self._at + 1])
            elif sign in "$`":
                self._expansion(quoted=False)
            else:
                self._add(sign)
                if self._brace or sign == "{":
                    self._brace += sign
            self._at += 1
        self._end_word()
        return self._made

    def _add(self, part: str) -> None:
        if self._word is None:
            self._word = []
        self._word.append(part)

    def _end_word(self) -> None:
        if self._word is None:
            return
        if "}" in self._brace and ("," in self._brace or ".." in self._brace):
            raise ShellSyntax("has braces, which a shell expands to several words")
        self._made.append("".join(self._word))
        self._word, self._brace = None, ""
        if len(self._made) > MOST_WORDS:
            raise ShellSyntax(f"the line has more than {MOST_WORDS} words")

    def _single_quoted(self) -> None:
        end = self._text.find("'", self._at + 1)
        if end < 0:
            raise ShellSyntax("has an unclosed quote")
        self._add(self._text[self._at + 1 : end])
        self._at = end

    def _double_quoted(self) -> None:
        text = self._text
        self._add("")
        self._at += 1
        while self._at < len(text) and text[self._at] != '"':
            if text[self._at] == "\\" and text[self._at + 1 : self._at + 2] in tuple('"\\$`'):
                self._at += 1
                self._add(text[self._at])
            elif text[self._at] in "$`":
                self._expansion(quoted=True)
            else:
                self._add(text[self._at])
            self._at += 1
        if self._at >= len(text):
            raise ShellSyntax("has an unclosed quote")

    def _expansion(self, quoted: bool) -> None:
        """Replace ``$NAME`` or ``${NAME}``, and stop at its last character."""
        text, at = self._text, self._at
        if text[at] == "`" or text.startswith("$(", at):
            raise ShellSyntax("contains a command substitution; it is not executed")
        braced = text.startswith("${", at)
        name = _NAME.match(text, at + (2 if braced else 1))
        if braced and not (name and text.startswith("}", name.end())):
            raise ShellSyntax("has an expansion `${…}` that only a shell can evaluate")
        if not name:
            if text[at + 1 : at + 2] in tuple("?*@#!-$0123456789" if quoted else "?*@#!-$0123456789'\""):
                raise ShellSyntax("has an expansion that only a shell can evaluate")
            self._add("$")
            return
        if name[0] not in self._variables:
            raise ShellSyntax(f"depends on ${name[0]}, which no earlier line of the file sets for these nodes")
        value = self._variables[name[0]]
        if not quoted and (not value or re.search(r"[\s'\"\\]", value)):
            raise ShellSyntax(f"depends on ${name[0]} without quotes, which a shell splits into words")
        self._expanded += len(value)
        if self._expanded > LONGEST_VALUE:
            raise ShellSyntax(f"depends on variables of more than {LONGEST_VALUE} characters")
        self._add(value)
        self._at = name.end() - (0 if braced else 1)
