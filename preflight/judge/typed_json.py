"""Values of checks as JSON, and back by their type hints.

The supported types are those that checks return: text, numbers, tuples, lists, sets, mappings, enumerations, IP
addresses, dataclasses, and unions of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from enum import Enum
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from preflight._startup.lightclass import fields, replace

_PLAIN = (str, int, float, bool, NoneType)
_LISTS: dict[Any, Callable[[Any], Any]] = {list: list, Sequence: list, set: set, frozenset: frozenset, Set: frozenset}


def plain(value: Any) -> Any:
    """Return a value as JSON types."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Set):
        return sorted(plain(item) for item in value)
    if isinstance(value, IPv4Address | IPv6Address):
        return str(value)
    return {field.name: plain(getattr(value, field.name)) for field in fields(value)}


def changed(value: Any) -> Any:
    """Return a value of the same type that differs in each string and number."""
    if isinstance(value, bool | Enum | NoneType):
        return value
    if isinstance(value, str):
        return value + "~"
    if isinstance(value, int | float | IPv4Address | IPv6Address):
        return value + 1
    if isinstance(value, Mapping):
        return {key: changed(item) for key, item in value.items()}
    if isinstance(value, list | tuple | Set):
        return type(value)(map(changed, value))  # type: ignore[call-arg]
    return replace(value, **{field.name: changed(getattr(value, field.name)) for field in fields(value)})


def typed(value: Any, kind: Any) -> Any:
    """Return decoded JSON as a type; raises ValueError if it does not fit."""
    if kind is Any:
        return value
    if kind in _PLAIN:
        if type(value) is kind or (kind is float and type(value) is int):
            return value
        raise ValueError(f"not of type {kind.__name__}")
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _one_of(value, args)
    if origin is tuple:
        return _tuple(value, args)
    if origin in _LISTS and isinstance(value, list):
        return _LISTS[origin](typed(item, args[0]) for item in value)
    if origin in (dict, Mapping) and isinstance(value, dict):
        return {_key(key, args[0]): typed(item, args[1]) for key, item in value.items()}
    if kind in (IPv4Address, IPv6Address) or (isinstance(kind, type) and issubclass(kind, Enum)):
        return kind(typed(value, str))
    if isinstance(value, dict) and isinstance(kind, type) and hasattr(kind, "__dataclass_fields__"):
        hints = hints_of(kind)
        return kind(**{name: typed(item, hints[name]) for name, item in value.items()})
    raise ValueError(f"not a value of {kind}")


def _one_of(value: Any, kinds: Sequence[Any]) -> Any:
    for kind in kinds:
        try:
            return typed(value, kind)
        except (ValueError, KeyError, TypeError):
            continue
    raise ValueError(f"not a value of {kinds}")


def _tuple(value: Any, kinds: Sequence[Any]) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise ValueError("not a list")
    if len(kinds) == 2 and kinds[1] is ...:
        return tuple(typed(item, kinds[0]) for item in value)
    return tuple(typed(item, kind) for item, kind in zip(value, kinds, strict=True))


def _key(key: str, kind: Any) -> Any:
    return int(key) if kind is int else typed(key, kind)


def hints_of(described: Any) -> dict[str, Any]:
    """Return the type hints of a class or function; raises NameError."""
    return _hints(described) if isinstance(described, type) else get_type_hints(described)


@lru_cache(256)
def _hints(described: type) -> dict[str, Any]:
    return get_type_hints(described)
