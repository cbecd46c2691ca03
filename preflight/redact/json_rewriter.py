"""Replacement of values in JSON text; all other characters are unchanged."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from preflight.errors import PreflightError
from preflight.evidence import json_limits

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s"{}\[\]:,]+', re.S)


class DuplicateKey(PreflightError):
    """Raised for JSON text that cannot be rewritten, as an object repeats a key."""


def loads(text: str, most: int = json_limits.PART) -> Any:
    """Decode a JSON text; raises ValueError, or DuplicateKey for a repeated key."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            raise DuplicateKey
        return made

    return json_limits.text(text, most=most, pairs=once)


def rewritten(text: str, document: Any, replace: Callable[[Any], Any]) -> Iterator[str]:
    """Yield the JSON text of ``document``, with the values that ``replace`` changed."""
    done = 0
    for token, before, after in zip(_TOKEN.finditer(text), _leaves(document), _leaves(replace(document)), strict=True):
        if before != after:
            yield text[done : token.start()]
            yield _written(after, token[0].isascii())
            done = token.end()
    yield text[done:]


def _written(value: Any, ascii_only: bool) -> str:
    """Encode a value, with escapes if ``ascii_only``; lone surrogates are escaped."""
    text = json.dumps(value, ensure_ascii=ascii_only)
    return json.dumps(value) if any("\ud800" <= sign <= "\udfff" for sign in text) else text


def _leaves(value: Any) -> Iterator[Any]:
    """Yield the keys and the scalar values in the order of the text."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield key
            yield from _leaves(part)
    elif isinstance(value, list):
        for part in value:
            yield from _leaves(part)
    else:
        yield value
