"""Title of an incident: the message of its cause, adapted to all its parts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from preflight.incidents.parts import is_device, names_device

#: A number of bytes, and a figure or version in a message, with the punctuation before and after it.
_SIZE = re.compile(r"\b(\d+(?:\.\d+)?) ([KMGT]iB)\b")
_FIGURE = re.compile(r"(\(?)(\d+(?:\.\d+)?(?:\xa0[KMGT]iB)?)([,;:)%]*)")
_VERSION = re.compile(r"(\(?)(\d+(?:\.\d+){2,3})([,;:)]*)")

#: Maximum number of versions in a title.
_SHOWN = 3

#: Verbs in messages -> the same for several parts.
_PLURAL = {"is": "are", "has": "have", "was": "were", "runs": "run", "loses": "lose", "carries": "carry", "does": "do"}


def title(first: Mapping[str, Any], messages: Sequence[str], others: int) -> str:
    """Return the message of the first finding with the figures of all messages.

    ``others`` is the number of other parts.
    """
    subject, message = str(first["subject"]), _ranges(messages)
    if is_device(subject) and not names_device(message):
        message = f"{subject}: {message}"
    if not others:
        return message
    counted = f"{others} other{'s' if others > 1 else ''}"
    at, named, after = message.partition(subject)
    if not named or after.startswith("'s "):
        return f"{message}; {counted} likewise"
    verb, space, rest = after.removeprefix(" ").partition(" ")
    if not at and after.startswith(" ") and verb in _PLURAL:
        after = f" {_PLURAL[verb]}{space}{rest}"
    return f"{at}{subject} (and {counted}){after}"


def _ranges(messages: Sequence[str]) -> str:
    """Return the first message, with the ranges of figures and versions that differ."""
    words, *others = (_SIZE.sub("\\1\xa0\\2", message).split(" ") for message in messages)
    rows = [words, *(row for row in others if len(row) == len(words))]
    for at, column in enumerate(zip(*rows, strict=True)):
        values = list(dict.fromkeys(column))
        units = {row[at + 1] for row in rows} if at + 1 < len(words) else {""}
        if len(values) == 1:
            continue
        if all(map(_FIGURE.fullmatch, values)) and len({unit.removesuffix("s") for unit in units}) == 1:
            figures = sorted((_FIGURE.sub(r"\g<2>", word) for word in values), key=_amount)
            words[at] = _FIGURE.sub(rf"\g<1>{figures[0]} to {figures[-1]}\g<3>", values[0])
            words[at + 1 : at + 2] = filter(None, [max(units, key=len)])
        elif all(map(_VERSION.fullmatch, values)):
            versions = [_VERSION.sub(r"\g<2>", word) for word in values]
            shown = versions if len(versions) <= _SHOWN else [versions[0], f"{len(versions) - 1} others"]
            words[at] = _VERSION.sub(rf"\g<1>{' or '.join(shown)}\g<3>", values[0])
    return " ".join(words).replace("\xa0", " ")


def _amount(figure: str) -> float:
    number, _, unit = figure.partition("\xa0")
    return float(number) * 1024.0 ** "BKMGT".find(unit[:1] or "B")
