"""Show commands of switches: abbreviated words, and records of their answers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from preflight._startup.lightclass import dataclass


@dataclass(frozen=True)
class ShowCommand:
    """What a command shows.

    If ``twice``, it is sent again at the end of a window, to compare counters.
    """

    purpose: str
    twice: bool = False


def typed_command(typed: str, commands: Collection[str]) -> str | None:
    """Return the command that was typed; None if none or several fit.

    Switches accept abbreviated words: ``sh lldp nei det | json`` is ``show lldp neighbors detail``.
    """
    parts = typed.partition("|")[0].split()
    if " ".join(parts) in commands:
        return " ".join(parts)
    fitting = [
        command
        for command in commands
        if len(words := command.split()) == len(parts)
        and all(word.startswith(part.lower()) for word, part in zip(words, parts, strict=True))
    ]
    return fitting[0] if len(fitting) == 1 else None


def record_of(command: str, text: str, answer: Callable[[str, str], Any]) -> dict[str, Any]:
    """Return the record of an answer, with an error if the answer is invalid."""
    try:
        return {"status": "ok", "value": answer(command, text)}
    except ValueError as error:
        return {"status": "error", "why": f"{command}: {error}"}


def by_key(
    prefix: str, answers: Iterable[tuple[str, dict[str, Any]]], twice: Callable[[str], bool]
) -> dict[str, dict[str, Any]]:
    """Return the records by key; ``answers`` are in chronological order.

    For commands that are sent twice, a later answer is the second reading; for others, the last valid answer is used.
    """
    records: dict[str, dict[str, Any]] = {}
    for command, made in answers:
        first = records.setdefault(f"{prefix}:{command}", made)
        if first is not made and twice(command):
            first["again"] = made
        elif made["status"] == "ok":
            records[f"{prefix}:{command}"] = made
    return records


def load_of(idle: Any) -> float | None:
    """Return the load in percent by the idle share; None if that is invalid."""
    real = isinstance(idle, (int, float)) and not isinstance(idle, bool) and 0 <= idle <= 100
    return 100.0 - idle if real else None
