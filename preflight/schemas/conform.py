"""Compares a document of ours with its JSON Schema before anything relies on it, without a library.

Only what a reader relies on: keys that a schema does not name may come from a newer version, and are let be. Handles
the words of our own schemas; another one fails a test, so that none is passed over.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from importlib.resources import files
from typing import Any

#: Returns what is wrong with a value, after its place; empty: nothing.
_Check = Callable[[Any], str]

_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
}

#: Words that say nothing of a value, or that no reader relies on: an order, a length, a spelling.
LET_BE = frozenset((
    "$schema", "$id", "$defs", "title", "description", "minLength", "maxLength", "minimum", "exclusiveMinimum",
    "maximum", "pattern", "propertyNames", "uniqueItems", "maxProperties",
))  # fmt: skip


def mistake(document: Any, schema: str, needed: Iterable[str] = ()) -> str:
    """Return what is wrong with a document, by its place (``findings[3].message is missing``); empty: nothing.

    ``schema`` is the name of its schema, such as ``report-1``; ``needed`` are the keys that have to be there, instead
    of those that the schema requires of the whole.
    """
    read = json.loads((files("preflight.schemas") / f"{schema}.json").read_text("utf-8"))
    if needed:
        read = {**read, "required": list(needed)}
    return _made(read, read["$defs"])(document).lstrip(".")


def _made(schema: Any, defs: Mapping[str, Any]) -> _Check:
    """Return the function that checks a value by a schema."""
    known: dict[str, _Check] = {}

    def made(schema: Any) -> _Check:
        if isinstance(schema, bool):
            return lambda value: "" if schema else " must not be there"
        if unknown := set(schema) - LET_BE - set(_WORDS) - {"$ref", "then", "else", "additionalProperties", "required"}:
            raise NotImplementedError(f"a schema of ours has {', '.join(sorted(unknown))}")
        if "$ref" in schema:
            name = schema["$ref"].removeprefix("#/$defs/")
            if name not in known:
                known[name] = lambda value: ""  # no schema of ours holds itself
                known[name] = made(defs[name])
            return known[name]
        checks = [_WORDS[word](schema, made) for word in _WORDS if word in schema]
        if "properties" not in schema and ("required" in schema or "additionalProperties" in schema):
            checks.append(_properties(schema, made))
        if len(checks) == 1:
            return checks[0]
        return lambda value: next((wrong for check in checks if (wrong := check(value))), "")

    return made(schema)


_Make = Callable[[Any], _Check]


def _type(schema: Mapping[str, Any], made: _Make) -> _Check:
    names = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    tests, wrong = [_TYPES[name] for name in names], f" is no {' or '.join(names)}"
    if len(tests) == 1:
        (test,) = tests
        return lambda value: "" if test(value) else wrong
    return lambda value: "" if any(test(value) for test in tests) else wrong


def _enum(schema: Mapping[str, Any], made: _Make) -> _Check:
    allowed = [schema["const"]] if "const" in schema else schema["enum"]
    wrong = f" is none of {json.dumps(allowed)[:200]}"
    return lambda value: "" if any(value == one and type(value) is type(one) for one in allowed) else wrong


def _properties(schema: Mapping[str, Any], made: _Make) -> _Check:
    named = {name: made(part) for name, part in schema.get("properties", {}).items()}
    required, more = schema.get("required", ()), schema.get("additionalProperties")
    others = made(more) if isinstance(more, dict) else None

    def check(value: Any) -> str:
        if not isinstance(value, dict):
            return ""
        for name in required:
            if name not in value:
                return f".{name} is missing"
        for name, part in value.items():
            known = named.get(name, others)
            if known is not None and (wrong := known(part)):
                return f".{name[:60]}{wrong}"
        return ""

    return check


def _items(schema: Mapping[str, Any], made: _Make) -> _Check:
    each = made(schema["items"])

    def check(value: Any) -> str:
        if isinstance(value, list):
            for place, part in enumerate(value):
                if wrong := each(part):
                    return f"[{place}]{wrong}"
        return ""

    return check


def _length(schema: Mapping[str, Any], made: _Make) -> _Check:
    least, most = schema.get("minItems", 0), schema.get("maxItems", 1 << 62)
    wrong = f" has not {least} entries" if least == most else f" has less than {least} entries"
    return lambda value: "" if not isinstance(value, list) or least <= len(value) <= most else wrong


def _one(schema: Mapping[str, Any], made: _Make) -> _Check:
    checks = [made(part) for part in schema.get("oneOf") or schema["anyOf"]]

    def check(value: Any) -> str:
        wrong = [one(value) for one in checks]
        return "" if "" in wrong else wrong[0]

    return check


def _all(schema: Mapping[str, Any], made: _Make) -> _Check:
    checks = [made(part) for part in schema["allOf"]]
    return lambda value: next((wrong for check in checks if (wrong := check(value))), "")


def _if(schema: Mapping[str, Any], made: _Make) -> _Check:
    condition, then, other = (made(schema.get(word, True)) for word in ("if", "then", "else"))
    return lambda value: other(value) if condition(value) else then(value)


_WORDS: dict[str, Callable[[Mapping[str, Any], _Make], _Check]] = {
    "type": _type, "const": _enum, "enum": _enum, "properties": _properties, "items": _items, "minItems": _length,
    "maxItems": _length, "oneOf": _one, "anyOf": _one, "allOf": _all, "if": _if,
}  # fmt: skip
