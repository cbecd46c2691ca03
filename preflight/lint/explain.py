"""The source of a key's value: the cluster file, the catalogue, or none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from preflight._startup.lightclass import fields
from preflight.errors import PreflightError
from preflight.expectations import Cluster, Expected, NodeClass, Site, schema
from preflight.expectations.catalogue import Part, part_by_name
from preflight.expectations.toml_line_numbers import Lines

#: The parts of a key; a quoted one may contain dots: ``host.mounts."/mnt/v1.2".type``.
_WORDS = re.compile(r'"[^"]*"|[^."]+|(?<=\.)(?=\.|$)|^$')


class UnknownKey(PreflightError):
    """No key of a class of nodes has this name; the text suggests similar ones."""


def explain(cluster: Cluster, text: str, key: str, part: Part | None = None) -> Iterator[str]:
    """Yield the key's description, then its value and the source for each class.

    ``text`` is the content of the cluster file. Raises UnknownKey.
    """
    words = tuple(word.strip('"') for word in _WORDS.findall(key))
    name = None
    if words[0] == "class" and len(words) > 2:
        name, words = words[1], words[2:]
    about = _declared(words)
    if name is not None and name not in cluster.classes:
        raise UnknownKey(f"{key}: the file has no class {name}; it has {', '.join(cluster.classes) or 'none'}")
    yield f"{'.'.join(words)}: {about}"
    for each in [name] if name is not None else cluster.classes or [""]:
        yield f"  {_origin(cluster, text, each, words, part)}"


def _declared(words: tuple[str, ...]) -> str:
    """Return the description of a key; raises UnknownKey."""
    table: Any = NodeClass
    chosen = False  # whether the site chooses the next part
    for place, word in enumerate(words):
        if chosen:
            chosen = False
            continue
        known = {field.name: field for field in fields(table)}
        if word not in known:
            near = schema.nearest(word, set(known))
            hint = f"; did you mean {near}?" if near else f"; there is {', '.join(sorted(known))}"
            raise UnknownKey(f"{'.'.join(words)}: a class has no key {word}{hint}")
        chosen = "tables" in known[word].metadata
        inner = known[word].metadata.get("table") or known[word].metadata.get("tables")
        if inner is None and place == len(words) - 1:
            return str(known[word].metadata["about"])
        if inner is None and "line_name" in known[word].metadata and place == len(words) - 2:
            try:
                known[word].metadata["line_name"](words[-1])
            except ValueError as error:
                raise UnknownKey(f"{'.'.join(words)}: {word} {error}") from None
            return str(known[word].metadata["about"])
        if inner is None:
            raise UnknownKey(f"{'.'.join(words)}: {word} is a key, not a table")
        table = inner
    inside = ", ".join(field.name for field in fields(table))
    raise UnknownKey(f"{'.'.join(words)} is a table; name one of its keys: {inside}")


def _origin(cluster: Cluster, text: str, name: str, words: tuple[str, ...], part: Part | None) -> str:
    members = cluster.classes.get(name, NodeClass())
    value: Any = members
    for word in words:
        value = value.get(word) if isinstance(value, dict) else value and getattr(value, word)
    path = ("class", name, *words)
    if value is not None:
        line = Lines(text).of(path)
        return f"{schema.written_path(path)} = {_shown(value)}: {cluster.path}{f':{line}' if line else ''}"
    part = part_by_name(members.part) if members.part else part
    expected = getattr(Site(cluster.path, name or cluster.to_add, members, part), words[-1], None)
    if isinstance(expected, Expected) and expected.value is not None:
        weight = "" if expected.binding else "; usual, so a lower value only warns"
        return f"{schema.written_path(path)} = {_shown(expected.value)}: {expected.source}{weight}"
    unknown = "" if part else " (the part is not known: pass evidence, or declare `part`)"
    return f"{schema.written_path(path)}: not declared{unknown}"


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(inner)}" for name, inner in value.items())
    return f'"{value}"' if isinstance(value, str) else ", ".join(value) if isinstance(value, tuple) else f"{value}"
