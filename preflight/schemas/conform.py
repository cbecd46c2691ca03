"""Validation of documents by their JSON Schema, without a library."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    #: Returns the fault of a value with its location; empty if valid.
    _Check = Callable[[Any], str]
    _Make = Callable[[Any], _Check]

_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool) and _is_finite(value),
}

#: Keywords without a restriction, or with one that no reader relies on: order, length, spelling.
LET_BE = frozenset((
    "$schema", "$id", "$defs", "title", "description", "minLength", "maxLength", "minimum", "exclusiveMinimum",
    "maximum", "pattern", "propertyNames", "uniqueItems", "maxProperties",
))  # fmt: skip

#: A key that is printed unquoted in a path; any other one is quoted.
_PLAIN = re.compile(r"[A-Za-z_]\w{0,59}", re.ASCII)


def find_error(
    document: Any, schema: str, needed: tuple[str, ...] = (), *, part: str = "", shallow: tuple[str, ...] = (),
    exact: bool = False, partly: bool = False,
) -> str:  # fmt: skip
    """Return a document's first fault with its location; empty if valid.

    For example ``findings[3].message is missing``.
    """
    return checker(schema, needed, part, shallow, exact, partly)(document).lstrip(".")


@cache
def checker(
    schema: str, needed: tuple[str, ...] = (), part: str = "", shallow: tuple[str, ...] = (), exact: bool = False,
    partly: bool = False,
) -> _Check:  # fmt: skip
    """Return the function that ``find_error`` calls, to validate many values.

    The locations that it returns begin with a dot.
    """
    read = _without(_read(schema), "required") if partly else _read(schema)
    chosen = read["$defs"][part] if part else read
    if needed:
        chosen = {**chosen, "required": list(needed)}
    if shallow:
        types = {name: {"type": chosen["properties"][name]["type"]} for name in shallow}
        chosen = {**chosen, "properties": {**chosen["properties"], **types}}
    return _made(chosen, read.get("$defs", {}), exact)


@cache
def _read(schema: str) -> Any:
    """Return a schema, without ``importlib.resources``, which is slow to import."""
    loader: Any = __spec__.loader
    return json.loads(loader.get_data(f"{__file__.rpartition('conform.')[0]}{schema}.json"))


def _without(schema: Any, word: str) -> Any:
    if isinstance(schema, dict):
        return {name: _without(part, word) for name, part in schema.items() if name != word}
    return [_without(part, word) for part in schema] if isinstance(schema, list) else schema


def _made(schema: Any, defs: Mapping[str, Any], exact: bool) -> _Check:
    """Return the function that validates a value by a schema."""
    known: dict[str, _Check] = {}
    words = {**_WORDS, **_EXACT} if exact else _WORDS

    def made(schema: Any) -> _Check:
        if isinstance(schema, bool):
            return lambda value: "" if schema else " must not be there"
        if unknown := set(schema) - LET_BE - set(_WORDS) - {"$ref", "then", "else", "additionalProperties", "required"}:
            raise NotImplementedError(f"unsupported keyword in a schema of preflight: {', '.join(sorted(unknown))}")
        if "$ref" in schema:
            name = schema["$ref"].removeprefix("#/$defs/")
            if name not in known:
                known[name] = lambda value: known[name](value)  # it may contain itself
                known[name] = made(defs[name])
            if not exact or len(schema) == 1:
                return known[name]
            return _each([known[name], made({word: part for word, part in schema.items() if word != "$ref"})])
        checks = [words[word](schema, made) for word in words if word in schema]
        if exact and schema.get("additionalProperties") is False:
            checks.append(_closed(schema))
        if "properties" not in schema and ("required" in schema or "additionalProperties" in schema):
            checks.append(_properties(schema, made))
        return checks[0] if len(checks) == 1 else _each(checks)

    return made(schema)


def _each(checks: list[_Check]) -> _Check:
    def each(value: Any) -> str:
        for check in checks:
            if wrong := check(value):
                return wrong
        return ""

    return each


def _is_finite(value: float) -> bool:
    return value == value and value not in (_INFINITE, -_INFINITE)


_INFINITE = float("inf")


def _place(name: str) -> str:
    return f".{name}" if _PLAIN.fullmatch(name) else f"[{name[:60]!a}]"


def _type(schema: Mapping[str, Any], made: _Make) -> _Check:
    names = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    tests, wrong = [_TYPES[name] for name in names], f" is not of type {' or '.join(names)}"
    if len(tests) == 1:
        (test,) = tests
        return lambda value: "" if test(value) else wrong
    return lambda value: "" if any(test(value) for test in tests) else wrong


class _OneOfWords:
    """Validator of an enumeration of strings."""

    def __init__(self, words: frozenset[str], wrong: str) -> None:
        self._words, self._wrong = words, wrong

    def __call__(self, value: Any) -> str:
        return "" if isinstance(value, str) and value in self._words else self._wrong

    def passes(self, values: Iterable[Any]) -> bool:
        """Return whether all values are valid; faster than validating one by one."""
        try:
            return self._words.issuperset(values)
        except TypeError:  # one of them is a list or an object
            return False


def _enum(schema: Mapping[str, Any], made: _Make) -> _Check:
    allowed = [schema["const"]] if "const" in schema else schema["enum"]
    wrong = f" is none of {json.dumps(allowed)[:200]}"
    words = frozenset(one for one in allowed if isinstance(one, str))
    if len(words) == len(allowed):
        return _OneOfWords(words, wrong)
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
        if not named and isinstance(others, _OneOfWords) and others.passes(value.values()):
            return ""
        for name, part in value.items():
            known = named.get(name, others)
            if known is not None and (wrong := known(part)):
                return f"{_place(name)}{wrong}"
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

    def check(value: object) -> str:
        if not isinstance(value, list) or least <= len(value) <= most:
            return ""
        allowed = f"at least {least} are required" if len(value) < least else f"at most {most} are allowed"
        return f" has {len(value)} entries; {f'exactly {least} are required' if least == most else allowed}"

    return check


def _one(schema: Mapping[str, Any], made: _Make) -> _Check:
    checks = [made(part) for part in schema.get("oneOf") or schema["anyOf"]]

    def check(value: Any) -> str:
        wrong = [one(value) for one in checks]
        return "" if "" in wrong else wrong[0]

    return check


def _all(schema: Mapping[str, Any], made: _Make) -> _Check:
    return _each([made(part) for part in schema["allOf"]])


def _if(schema: Mapping[str, Any], made: _Make) -> _Check:
    condition, then, other = (made(schema.get(word, True)) for word in ("if", "then", "else"))
    return lambda value: other(value) if condition(value) else then(value)


def _bounds(schema: Mapping[str, Any], made: _Make) -> _Check:
    least, most, above = schema.get("minimum"), schema.get("maximum"), schema.get("exclusiveMinimum")
    number = _TYPES["number"]

    def check(value: Any) -> str:
        if not number(value):
            return ""
        low = (least is not None and value < least) or (above is not None and value <= above)
        return " is out of range" if low or (most is not None and value > most) else ""

    return check


def _spelling(schema: Mapping[str, Any], made: _Make) -> _Check:
    least, most = schema.get("minLength", 0), schema.get("maxLength", 1 << 62)
    matches = re.compile(re.sub(r"\$$", r"\\Z", schema.get("pattern", ""))).search

    def check(value: Any) -> str:
        if not isinstance(value, str):
            return ""
        if not least <= len(value) <= most:
            return f" has {len(value)} characters; {least} to {most} are allowed" if value else " is empty"
        return "" if matches(value) else f" is {value[:40]!a}, which is not allowed"

    return check


def _closed(schema: Mapping[str, Any]) -> _Check:
    known = frozenset(schema.get("properties", ()))

    def check(value: Any) -> str:
        odd = next((name for name in value if name not in known), None) if isinstance(value, dict) else None
        return "" if odd is None else f"has an unknown key {_place(odd)}"

    return check


_WORDS: dict[str, Callable[[Mapping[str, Any], _Make], _Check]] = {
    "type": _type, "const": _enum, "enum": _enum, "properties": _properties, "items": _items, "minItems": _length,
    "maxItems": _length, "oneOf": _one, "anyOf": _one, "allOf": _all, "if": _if,
}  # fmt: skip

_EXACT: dict[str, Callable[[Mapping[str, Any], _Make], _Check]] = {
    "minimum": _bounds, "exclusiveMinimum": _bounds, "maximum": _bounds, "minLength": _spelling, "maxLength": _spelling,
    "pattern": _spelling,
}  # fmt: skip
