"""Numbers with their nouns and verbs: ``1 node runs``, ``3 nodes run``."""

from __future__ import annotations


def all_of(number: int, noun: str) -> str:
    """Return ``the only node``, ``both nodes`` or ``all 3 nodes``."""
    if number == 1:
        return f"the only {noun}"
    return f"both {counted(2, noun)[2:]}" if number == 2 else f"all {counted(number, noun)}"


def each_of(number: int, noun: str) -> str:
    """Return ``the only node`` or ``each of 3 nodes``; a verb in the singular follows."""
    return f"the only {noun}" if number == 1 else f"each of {counted(number, noun)}"


def some_of(number: int, total: int, noun: str) -> str:
    """Return ``3 of 8 nodes``, or ``all 8 nodes`` if that is every one."""
    return all_of(total, noun) if number == total else f"{number} of {counted(total, noun)}"


def none_of(number: int, noun: str) -> str:
    """Return ``no node``, ``neither node`` or ``none of the 3 nodes``."""
    return f"none of the {counted(number, noun)}" if number > 2 else f"{'neither' if number == 2 else 'no'} {noun}"


def times(number: int) -> str:
    """Return ``once``, ``twice`` or ``3 times``."""
    return {1: "once", 2: "twice"}.get(number, f"{number} times")


def counted(number: int, noun: str, several: str = "") -> str:
    """Return a number with its noun: ``1 node``, ``3 nodes``."""
    return f"{number} {noun if number == 1 else several or noun + ('es' if noun.endswith(('ch', 's')) else 's')}"


def verb(number: int, singular: str) -> str:
    """Return a verb that agrees with a number: ``is`` or ``are``, ``runs`` or ``run``."""
    if number == 1:
        return singular
    return {"is": "are", "was": "were", "has": "have"}.get(singular, singular.removesuffix("s"))


def agreed(number: int, predicate: str) -> str:
    """Return a predicate whose first word, a verb, agrees with a number."""
    first, space, rest = predicate.partition(" ")
    return f"{verb(number, first)}{space}{rest}"


def clause(number: int, noun: str, singular: str) -> str:
    """Return a number with its noun and verb: ``1 node runs``, ``3 nodes run``."""
    return f"{counted(number, noun)} {verb(number, singular)}"
