"""Failure signatures, from ``signatures.toml``, which documents their fields."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache, cached_property
from importlib.resources import files
from typing import Any, Literal

from preflight._startup.lightclass import dataclass

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Where = Literal["warn", "info", "outside"]
WHERE: tuple[Where, ...] = ("warn", "info", "outside")
SEVERITIES = ("fatal", "warn", "info")
#: Conditions on the complete log; see ``signatures.toml``.
CONDITIONS = ("", "tcp", "spread", "staged", "fatal", "unexplained", "silent")


@dataclass(frozen=True)
class Signature:
    """The signature of a failure in a log, with its causes and fixes."""

    name: str
    id: str
    layer: str
    severity: str
    echo: bool
    where: tuple[Where, ...]
    marks: tuple[str, ...]
    expression: str
    source: re.Pattern[str] | None
    when: str
    explains: tuple[str, ...]
    cause: tuple[str, ...]
    remedy: tuple[str, ...]
    collect: tuple[str, ...]
    examples: tuple[str, ...]
    counter: tuple[str, ...]
    check: str = ""  # id of the check of the same fault on a node; empty if there is none

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The expression, compiled at first use, since most runs need only a few."""
        return re.compile(self.expression)

    def fits(self, message: str, source: str = "") -> bool:
        """Return whether a message that contains one of the marks has this signature."""
        if not self.pattern.search(message):
            return False
        return self.source is None or self.source.search(source) is not None


@cache
def all_signatures() -> tuple[Signature, ...]:
    """Return every signature, specific ones before general ones."""
    text = (files("preflight.parsers.nccl_log") / "signatures.toml").read_text(encoding="utf-8")
    return tuple(_signature(name, fields) for name, fields in tomllib.loads(text).items())


def _signature(name: str, fields: dict[str, Any]) -> Signature:
    source = fields.get("source")
    return Signature(
        name=name,
        id=fields.get("id", name),
        layer=fields["layer"],
        severity=fields["severity"],
        echo=fields.get("echo", False),
        where=tuple(fields.get("where", ("warn", "outside"))),
        marks=tuple(fields["marks"]),
        expression=fields["pattern"],
        source=re.compile(source) if source else None,
        when=fields.get("when", ""),
        explains=tuple(fields.get("explains", ())),
        cause=tuple(fields["cause"]),
        remedy=tuple(fields["remedy"]),
        collect=tuple(fields["collect"]),
        examples=tuple(fields["examples"]),
        counter=tuple(fields["counter"]),
        check=fields.get("check", ""),
    )


@cache
def _at(where: Where) -> tuple[Signature, ...]:
    return tuple(signature for signature in all_signatures() if where in signature.where)


@cache
def _marks(where: Where) -> dict[str, tuple[int, ...]]:
    """Map each mark to the indexes of its signatures in ``_at(where)``."""
    found: dict[str, tuple[int, ...]] = {}
    for place, signature in enumerate(_at(where)):
        for mark in signature.marks:
            found[mark] = (*found.get(mark, ()), place)
    return found


@cache
def outside_marks() -> tuple[bytes, ...]:
    """Return the marks for other programs; a line with a failure contains one."""
    return tuple(mark.encode() for mark in _marks("outside"))


def info_marks() -> tuple[str, ...]:
    """Return the marks for INFO messages; a message with a failure contains one."""
    return tuple(_marks("info"))


def matching(message: str, where: Where, source: str = "") -> Signature | None:
    """Return the first signature for ``where`` that matches a message, or None."""
    places = {place for mark, places in _marks(where).items() if mark in message for place in places}
    signatures = _at(where)
    return next((signatures[place] for place in sorted(places) if signatures[place].fits(message, source)), None)


def by_id(wanted: Iterable[str]) -> Iterator[Signature]:
    """Yield the first signature with each of these ids; skip unknown ids."""
    known: dict[str, Signature] = {}
    for signature in all_signatures():
        known.setdefault(signature.id, signature)
    for name in wanted:
        if name in known:
            yield known[name]
