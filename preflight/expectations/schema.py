"""Declaration, validation and reading of the keys of a cluster file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, cast

from preflight._startup.lightclass import dataclass, fields
from preflight._startup.lightclass import field as declare

Kind = Callable[[Any], Any]
KeyPath = tuple[str | int, ...]  # a number is an index in a list of tables
T = TypeVar("T")


def key(kind: Kind, about: str) -> Any:
    """Declare an optional key of a table, with its validator and meaning."""
    return declare(default=None, metadata={"kind": kind, "about": about})


def lines_by_name(name: Kind, about: str, kind: Kind | None = None) -> Any:
    """Declare an optional table of texts; ``name`` validates their names."""
    return declare(default=None, metadata={"kind": lines_by(name, kind or line), "about": about, "line_name": name})


def table(cls: type[T]) -> T:
    """Declare a sub-table."""
    field: T = declare(default_factory=cls, metadata={"table": cls})
    return field


def tables(cls: type[T], name: Kind) -> Mapping[str, T]:
    """Declare a table of sub-tables whose names the site chooses.

    ``name`` validates the names.
    """
    field: Mapping[str, T] = declare(default_factory=dict, metadata={"tables": cls, "name": name})
    return field


# --- validators: they return the value, or raise ValueError("takes …") ---


def text(value: Any) -> str:
    """Accept any text."""
    if not isinstance(value, str):
        raise ValueError("takes quoted text")
    return value


def line(value: Any) -> str:
    """Accept text on one line."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ValueError('takes the value as a report shows it, in quotes: "570.86.15"')
    return value.strip()


class Alternatives(tuple[str, ...]):
    """Several texts, each of which is accepted."""


def lines(value: Any) -> str | Alternatives:
    """Accept text on one line, or a list of several such texts."""
    if not isinstance(value, list):
        return line(value)
    if len(set(map(str, value))) < 2:
        raise ValueError('takes one value, or a list of several: ["28.43.2026", "28.45.1200"]')
    return Alternatives(line(part) for part in value)


def words(value: Any) -> str:
    """Accept words on one line; return them separated by single spaces."""
    return " ".join(line(value).split())


def named(pattern: str, example: str) -> Kind:
    """Return a validator of names that match a pattern."""

    def read(value: Any) -> str:
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise ValueError(f"takes names such as {example}")
        return value

    return read


def lines_by(name: Kind, kind: Kind) -> Kind:
    """Return a validator of a table; ``name`` validates names, ``kind`` values."""

    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict) or not value:
            raise ValueError('takes a table: NAME = "value"')
        found = {}
        for key, inner in value.items():
            try:
                found[name(key)] = kind(str(inner) if isinstance(inner, int) and not isinstance(inner, bool) else inner)
            except ValueError as error:
                raise ValueError(f"{str(key)[:60]}: {error}") from None
        return found

    return read


def texts(value: Any) -> tuple[str, ...]:
    """Accept a string or a list of strings, none of them empty; return a tuple."""
    parts = value if isinstance(value, list) else [value]
    if not parts or not all(isinstance(part, str) and part.strip() for part in parts):
        raise ValueError('takes a list of texts: ["one", "two"]')
    return tuple(parts)


def each(kind: Kind) -> Kind:
    """Return a validator of a value or a list of values, which may be empty."""

    def accept(value: Any) -> tuple[Any, ...]:
        return tuple(kind(part) for part in (value if isinstance(value, list) else [value]))

    return accept


def absolute_path(value: Any) -> str:
    """Accept an absolute path of printable characters."""
    if not isinstance(value, str) or not value.startswith("/") or not value.isprintable():
        raise ValueError('takes an absolute path in quotes: "/shared/checkpoints"')
    return value


def file_name(value: Any) -> str:
    """Accept the path of a file, of printable characters.

    A relative path is resolved against the folder of the cluster file.
    """
    if not isinstance(value, str) or not value.strip() or not value.isprintable() or len(value) > 1000:
        raise ValueError('takes the path of a file in quotes: "all_reduce.log"')
    return value


def folders(value: Any) -> tuple[str, ...]:
    """Accept absolute paths without a colon, as in PATH; return a tuple."""
    parts = value if isinstance(value, list) else [value]
    if not all(isinstance(part, str) and part.startswith("/") and part.isprintable() and ":" not in part
               for part in parts) or not parts:  # fmt: skip
        raise ValueError('takes absolute paths, without a colon: ["/opt/site/bin"]')
    return tuple(parts)


def boolean(value: Any) -> bool:
    """Accept a boolean, ``true`` or ``false``."""
    if not isinstance(value, bool):
        raise ValueError("takes true or false, without quotes")
    return value


def integer(low: int, high: int) -> Kind:
    """Return a validator of integers in a range, including its ends."""

    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"takes an integer from {low} to {high}, without quotes or unit")
        return value

    return read


def number(low: float, high: float) -> Kind:
    """Return a validator of numbers in a range, including its ends."""

    def read(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            raise ValueError(f"takes a number from {low:g} to {high:g}, without quotes or unit")
        return value

    return read


def choice(*numbers: int) -> Kind:
    """Return a validator that accepts only the given numbers."""

    def read(value: Any) -> int:
        if isinstance(value, bool) or value not in numbers:
            raise ValueError(f"takes one of {', '.join(map(str, numbers))}")
        return cast(int, value)

    return read


def one_of(*words: str) -> Kind:
    """Return a validator that accepts only the given words."""

    def read(value: Any) -> str:
        if isinstance(value, str) and value in words:
            return value
        near = nearest(value, words) if isinstance(value, str) else None
        listed = ", ".join(f'"{word}"' for word in words)
        raise ValueError(f"takes one of {listed}" + (f'; did you mean "{near}"?' if near else ""))

    return read


def nodes(value: Any) -> tuple[str, ...]:
    """Accept node names in NodeSet syntax (``"gpu[001-064]"``), or a list.

    Return the names, with groups resolved.
    """
    text = _listed(value, "gpu[001-064]")
    for part in re.split(r"[,!&^\s]+", text):
        if re.search(r"[*?]", part) and not re.fullmatch(r"@[\w.+-]+:\*", part):
            raise ValueError(f'takes no wildcard such as "{part[:60]}": list the nodes, or omit the key for all')
    return _unfolded(text, "gpu[001-064]", groups=True)


def devices(value: Any) -> tuple[str, ...]:
    """Accept device names in NodeSet syntax (``"mlx5_[0,3-6]"``), or a list."""
    return _names_only(value, "mlx5_[0,3-6]", "a device")


def members(value: Any) -> tuple[str, ...]:
    """Accept node names in NodeSet syntax, or a list; groups are rejected."""
    return _names_only(value, "gpu[001-004]", "a node")


def _names_only(value: Any, example: str, what: str) -> tuple[str, ...]:
    text = _listed(value, example)
    if odd := re.search(r"[@*?]", text):
        raise ValueError(f'takes names such as "{example}"; {what} has no "{odd[0]}" in its name')
    return _unfolded(text, example, groups=False)


def _listed(value: Any, example: str) -> str:
    parts = value if isinstance(value, list) else [value]
    if not parts or not all(isinstance(part, str) and part.strip() for part in parts):
        raise ValueError(f'takes names such as "{example}", or a list of them')
    return ",".join(parts)


def _unfolded(text: str, example: str, groups: bool) -> tuple[str, ...]:
    from preflight.nodeset import unfold

    try:
        return unfold(text, groups=groups)
    except ValueError as error:
        raise ValueError(f'takes names such as "{example}": {error}') from None


# --- reading ---


#: Maximum number of errors that are reported for a file, because finding the line of each takes time.
MAX_REPORTED_ERRORS = 100


@dataclass(frozen=True)
class FieldError:
    """An error in a table: its key, line (None if unknown), fault and fix."""

    path: KeyPath
    line: int | None
    what: str
    fix: str


class TableReader:
    """A reader of tables into dataclasses that collects errors."""

    def __init__(self, line_of: Callable[[KeyPath], int | None]) -> None:
        self.errors: list[FieldError] = []
        self._more = 0
        self._line_of = line_of

    def add_error(self, path: KeyPath, what: str, fix: str) -> None:
        """Add an error; beyond the maximum, only count it."""
        if len(self.errors) < MAX_REPORTED_ERRORS:
            self.errors.append(FieldError(path, self._line_of(path), what, fix))
        else:
            self._more += 1

    def noted(self, path: KeyPath) -> bool:
        """Return whether there is an error for a key, or for a misspelling of it."""
        near = {str(path[-1])}
        return any(one.path[:-1] == path[:-1] and nearest(str(one.path[-1]), near) for one in self.errors if one.path)

    def known(self, body: Mapping[str, Any], path: KeyPath, legal: set[str]) -> None:
        """Add an error for each unknown key, with the most similar valid one."""
        for name in body:
            if name in legal:
                continue
            near = nearest(name, legal)
            fix = f"did you mean {near}?" if near else f"legal here: {', '.join(sorted(legal))}"
            self.add_error((*path, name), "unknown key", fix)

    def subtable(self, body: Mapping[str, Any], path: KeyPath, name: str) -> Mapping[str, Any]:
        """Return a sub-table, or an empty one; adds an error if it is not a table."""
        value = body.get(name, {})
        if isinstance(value, dict):
            return value
        written = written_path((*path, name))
        self.add_error((*path, name), f"is a {_kind_of(value)}, not a table", f"write it as [{written}]")
        return {}

    def value(self, body: Mapping[str, Any], path: KeyPath, kind: Kind) -> Any:
        """Return the value of a key, or None; adds an error if the value is invalid."""
        name = str(path[-1])
        if name not in body:
            return None
        try:
            return kind(body[name])
        except ValueError as error:
            self.add_error(path, f"has the value {_show(body[name])}", str(error))
            return None

    def dataclass(self, cls: type[T], body: Mapping[str, Any], path: KeyPath) -> T:
        """Read a table into a dataclass whose fields ``key`` and ``table`` declare."""
        declared = fields(cast(Any, cls))
        self.known(body, path, {field.name for field in declared})
        values: dict[str, Any] = {}
        for field in declared:
            if inner := field.metadata.get("table"):
                values[field.name] = self.dataclass(inner, self.subtable(body, path, field.name), (*path, field.name))
            elif inner := field.metadata.get("tables"):
                values[field.name] = self.each(inner, field.metadata["name"], body, (*path, field.name))
            else:
                values[field.name] = self.value(body, (*path, field.name), field.metadata["kind"])
        return cls(**values)

    def each(self, cls: type[T], name: Kind, body: Mapping[str, Any], path: KeyPath) -> dict[str, T]:
        """Read each sub-table of a table into a dataclass, and return them by name."""
        found = {}
        holder = self.subtable(body, path[:-1], str(path[-1]))
        for key in holder:
            try:
                name(key)
            except ValueError as error:
                self.add_error((*path, key), "has an invalid name", str(error))
                continue
            found[key] = self.dataclass(cls, self.subtable(holder, path, key), (*path, key))
        return found

    def report(self, path: str) -> Iterator[str]:
        """Yield one line per error: ``FILE:LINE: KEY: fault - fix``."""
        for error in sorted(self.errors, key=lambda m: m.line or 0):
            where = f"{path}:{error.line}" if error.line else path
            named = f" {written_path(error.path)}:" if error.path else ""
            yield f"{where}:{named} {error.what} - {error.fix}"
        if self._more:
            yield f"{path}: and {self._more} more errors; fix these first"


def written_path(path: KeyPath) -> str:
    """Format a key with indices from 1, as in ``waiver[2].until``."""
    return "".join(f"[{part + 1}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def nearest(word: str, legal: tuple[str, ...] | set[str]) -> str | None:
    """Return the most similar valid word; None if none is similar."""
    from difflib import get_close_matches

    lower = {candidate.lower(): candidate for candidate in sorted(legal)}
    near = get_close_matches(word.lower(), list(lower), n=1, cutoff=0.6)
    return lower[near[0]] if near else None


def _kind_of(value: Any) -> str:
    return {str: "text", bool: "boolean", int: "number", float: "number", list: "list"}.get(
        type(value), type(value).__name__
    )


def _show(value: Any) -> str:
    try:
        return f'"{value}"'[:80] if isinstance(value, str) else str(value)[:80]
    except ValueError:  # Python cannot format numbers of more than 4300 digits, such as a long 0x…
        return "of thousands of digits"
