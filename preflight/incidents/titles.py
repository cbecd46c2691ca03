"""Title of an incident: the message of its cause, true of all its parts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from preflight.incidents.parts import is_device, names_device

#: A figure in a message, with the punctuation before and after it.
_FIGURE = re.compile(r"(\(?)(\d+(?:\.\d+)?)([,;:)%]*)")

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
    """Return the first message, with "a to b" in place of figures that differ."""
    words = messages[0].split(" ")
    rows = [row for message in messages if len(row := message.split(" ")) == len(words)]
    columns = list(zip(*rows, strict=True))
    for at, column in enumerate(columns):
        figures = [_FIGURE.fullmatch(word) for word in set(column)]
        unit = set(columns[at + 1]) if at + 1 < len(columns) else {""}
        if len(figures) > 1 and len(unit) == 1 and all(figures):
            numbers = sorted((figure[2] for figure in figures if figure), key=float)
            words[at] = _FIGURE.sub(rf"\g<1>{numbers[0]} to {numbers[-1]}\g<3>", column[0])
    return " ".join(words)
