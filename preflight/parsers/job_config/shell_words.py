"""Words of a shell script, with its variables expanded.

Nothing is executed: command substitutions and globs are not expanded, and conditions are not evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from preflight._startup.lightclass import dataclass

#: Maximum number of characters and words that are read of a script.
MOST_TEXT, MOST_WORDS = 2_000_000, 100_000

#: Maximum depth of variable expansion, and maximum number of characters of an expanded word.
_DEPTH, _MOST_VALUE = 8, 4096

_WORD = re.compile(
    r"""(?:[^\s"'\\()$]+|\$\(\([^()]*\)\)|\$\([^()]*\)|\$|\\.|"[^"\\]*(?:\\.[^"\\]*)*"|'[^']*')+|[()]""", re.DOTALL
)
#: The part of a line before its comment.
_CODE = re.compile(r"""(?:[^"'#]+|"[^"]*(?:"|\Z)|'[^']*(?:'|\Z)|(?<=[^ \t;(])#)*""")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?::?[-=]([^{}]*))?\})")
_USED = re.compile(r"\$\{?([A-Za-z_]\w*)")
_ARITHMETIC = re.compile(r"\$\(\(([\w\s$+*/%{}()-]*)\)\)")
_SUBSTITUTION = re.compile(r"\$\((?!\()[^()]*\)")
_EXPRESSION = re.compile(r"[\d\s+*/%()-]{1,100}")


@dataclass(frozen=True)
class Word:
    """A word, without quotes and with variables expanded, and its line."""

    text: str
    line: int


def words(text: str, environment: Mapping[str, str] | None = None) -> list[Word]:
    """Return the words of a script, in order, without assignments and comments.

    The elements of an array (``ARGS=( --lr 1 )``) are included, and so is a string of options that is assigned to a
    variable that the script does not use as ``$NAME``. A variable whose value depends on a condition is not expanded.
    ``environment`` has the variables that are set before the script starts.
    """
    result: list[Word] = []
    variables: dict[str, str] = dict(environment or {})
    undecided = conditional(text)
    used = set(_USED.findall(text[:MOST_TEXT]))
    for line, raw, argument in _raw_words(text[:MOST_TEXT]):
        if len(result) >= MOST_WORDS:
            break
        assigned = None if argument else _ASSIGNMENT.fullmatch(raw)
        if assigned is None:
            result += (Word(part, line) for part in _resolved(raw, variables))
            continue
        name, adds, value = assigned.groups()
        if name in undecided and " -" not in f" {value}":
            continue
        resolved = " ".join(_resolved(value, variables))
        variables[name] = (variables.get(name, "") + resolved if adds else resolved)[:_MOST_VALUE]
        if " -" in f" {resolved}" and (name not in used or len(variables[name]) == _MOST_VALUE):  # a string of options
            result += (Word(part, line) for part in resolved.split())
    return result


def conditional(text: str) -> dict[str, tuple[int, ...]]:
    """Return the variables whose value depends on a condition, with the lines."""
    values: dict[str, dict[str, int]] = {}
    inside: set[str] = set()
    depth = 0
    for line, raw, argument in _raw_words(text[:MOST_TEXT]):
        depth = max(0, depth + _DEPTH_CHANGE.get(raw, 0))
        if argument or (assigned := _ASSIGNMENT.fullmatch(raw)) is None:
            continue
        name, adds, value = assigned.groups()
        if adds or f"${name}" in value or f"${{{name}" in value:  # extends it, or A=${A:-1}
            continue
        values.setdefault(name, {}).setdefault(value.strip("\"'"), line)
        if depth:
            inside.add(name)
    return {name: tuple(own.values()) for name, own in values.items() if name in inside and len(own) > 1}


#: Words that begin and end a condition.
_DEPTH_CHANGE = {"if": 1, "fi": -1, "case": 1, "esac": -1}

#: Commands whose options are followed by assignments, not by a value.
_DECLARING = frozenset({"declare", "typeset", "local", "export", "readonly", "env"})


def _raw_words(text: str) -> Iterator[tuple[int, str, bool]]:
    """Yield (line, word as written, whether it may be an option's value).

    It may be an option's value if an option precedes it, as in ``srun -m plane=4``.
    """
    joined = re.sub(r"\\[ \t]*\r?\n", lambda match: " \x00", text)  # a marker counts the continued line
    number = 1
    for row in joined.split("\n"):
        shown = _without_comment(row.replace("\x00", ""))
        first = last = ""
        for word in _WORD.finditer(shown):
            if word[0] not in "()":
                first = first or word[0]
                option = last.startswith("-") and "=" not in last and first not in _DECLARING
                yield number, word[0].removesuffix(";"), option
                last = word[0]
        number += 1 + row.count("\x00")


def _without_comment(row: str) -> str:
    """Return a line without its comment; an #SBATCH directive only loses its ``#``."""
    if row.lstrip().startswith("#SBATCH"):
        row = row.lstrip()[1:]
    code = _CODE.match(row) if "#" in row else None
    return code[0] if code else row


def _resolved(raw: str, variables: Mapping[str, str]) -> list[str]:
    """Expand the variables of a raw word, and split it if it is a list of options.

    Any other quoted word remains one word.
    """
    if raw.startswith("'"):
        if " --" not in raw:
            return [raw.strip("'")]
        raw = raw.strip("'")  # a command line for another shell, as in bash -c '...'
    bare = raw.replace('"', "") if raw.count('"') % 2 == 0 else raw
    for _ in range(_DEPTH):
        replaced = _VARIABLE.sub(lambda match: _value(match, variables), bare)[:_MOST_VALUE]
        if replaced == bare:
            break
        bare = replaced
    bare = _SUBSTITUTION.sub("$(...)", bare)
    bare = _ARITHMETIC.sub(lambda match: _computed(match, variables), bare)
    return bare.split() if "-" in bare and " " in bare else [bare]


def _value(match: re.Match[str], variables: Mapping[str, str]) -> str:
    name = match[1] or match[2]
    if variables.get(name):
        return variables[name]
    return match[3] if match[3] is not None else match[0]


def _computed(match: re.Match[str], variables: Mapping[str, str]) -> str:
    """Return the result of integer arithmetic; return other text unchanged."""
    expression = re.sub(r"[A-Za-z_]\w*", lambda name: variables.get(name[0], name[0]), match[1].strip())
    if not _EXPRESSION.fullmatch(expression) or "**" in expression:
        return match[0]
    try:
        return str(_integer(expression))
    except (ValueError, ZeroDivisionError, IndexError):
        return match[0]


def _integer(expression: str) -> int:
    """Compute an expression of integers, + - * / % and parentheses.

    Raises ValueError, ZeroDivisionError or IndexError if it is not valid.
    """
    tokens = re.findall(r"\d+|[-+*/%()]", expression)
    value, rest = _sum(tokens)
    if rest or abs(value) > 10**12:
        raise ValueError(expression)
    return value


def _sum(tokens: list[str]) -> tuple[int, list[str]]:
    value, rest = _product(tokens)
    while rest and rest[0] in "+-":
        right, after = _product(rest[1:])
        value, rest = (value + right if rest[0] == "+" else value - right), after
    return value, rest


def _product(tokens: list[str]) -> tuple[int, list[str]]:
    value, rest = _atom(tokens)
    while rest and rest[0] in "*/%":
        right, after = _atom(rest[1:])
        value, rest = {"*": value * right, "/": value // right if right else 0, "%": value % right}[rest[0]], after
    return value, rest


def _atom(tokens: list[str]) -> tuple[int, list[str]]:
    if tokens[0] == "(":
        value, rest = _sum(tokens[1:])
        if not rest or rest[0] != ")":
            raise ValueError("unclosed parenthesis")
        return value, rest[1:]
    return int(tokens[0]), tokens[1:]
