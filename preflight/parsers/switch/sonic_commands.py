"""Commands that print the databases of a SONiC switch, and their answers.

Sources: sonic-utilities (``scripts/sonic-db-dump``), coreutils (``date``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Any

from preflight.parsers.switch import redis_dump, show_commands, sonic_tables

DATE = "date"
#: Command that prints a database -> the database.
DUMPS = {f"sonic-db-dump -n {name} -y": name for name in (*sonic_tables.TABLES, "COUNTERS_DB")}

_TYPED = re.compile(r"(?:sudo (?:-n )?)?sonic-db-dump(?: -y)? (?:-n |--dbname[ =])([A-Z]{4,8}_DB)(?: -y)?")
_CONFIGURATION = re.compile(r"(?:sudo )?cat /etc/sonic/config_db\.json|show runningconfiguration all")

_ZONES = ("UTC", "GMT")
_FORMS = ("%a %b %d %H:%M:%S %Y", "%a %d %b %Y %H:%M:%S", "%a %d %b %Y %I:%M:%S %p")


def question(typed: str) -> str | None:
    """Return the command that was typed, in its usual form; None for others."""
    plain = " ".join(typed.split())
    if plain in (DATE, "date -u"):
        return DATE
    match = _TYPED.fullmatch(plain)
    database = match[1] if match else "CONFIG_DB" if _CONFIGURATION.fullmatch(plain) else ""
    return next((command for command, name in DUMPS.items() if name == database), None)


def answer(command: str, text: str) -> dict[str, Any]:
    """Return the date, or the records of a database by key; raises ValueError."""
    if command == DATE:
        if seconds(text) is None:
            raise ValueError(f"{text.strip()[:60]!r} is not a date")
        return {"date": text.strip()}
    return dict(sonic_tables.records(DUMPS[command], redis_dump.parse(text)))


def record(command: str, text: str) -> dict[str, Any]:
    """Return the record of an answer, with an error if the answer is invalid."""
    return show_commands.record_of(command, text, answer)


def records(answers: Iterable[tuple[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Return the records by key; ``answers`` are in chronological order.

    Counters that were printed twice have a second reading; of other tables, the last valid answer is used. The time of
    a reading is that of the last ``date`` above it.
    """
    listed = list(answers)
    dates = {place: made["value"]["date"] for place, (command, made) in enumerate(listed)
             if command == DATE and made["status"] == "ok"}  # fmt: skip
    times, at = reading_times(dates), None
    records: dict[str, dict[str, Any]] = {}
    for place, (command, made) in enumerate(listed):
        at = times.get(place, at)
        for key, row in _rows(command, made).items() if command != DATE else ():
            row |= {} if at is None else {"at_s": at}
            first = records.setdefault(key, row)
            if first is not row and _grows(key):
                first["again"] = row
            elif row["status"] == "ok":
                records[key] = row
    return records


def _rows(command: str, made: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the records of one database; those of an invalid answer have its error."""
    if made["status"] == "ok":
        return {key: {"status": "ok", "value": value} for key, value in made["value"].items()}
    return {key: dict(made) for key, _ in sonic_tables.records(DUMPS[command], {})}


def _grows(key: str) -> bool:
    database, _, table = key.removeprefix("redis:").partition(" ")
    return database == "COUNTERS_DB" or (database, table) in sonic_tables.TWICE


def reading_times(dates: Mapping[Any, str]) -> dict[Any, float]:
    """Return the times of readings by the output of ``date``.

    They are seconds since 1970 if all are in UTC, else since the first one. Unreadable ones are left out.
    """
    times = {name: at for name, text in dates.items() if (at := seconds(text)) is not None}
    in_utc = all(not set(_ZONES).isdisjoint(dates[name].split()) for name in times)
    start = 0.0 if in_utc else min(times.values(), default=0.0)
    return {name: at - start for name, at in times.items()}


def seconds(text: str) -> float | None:
    """Convert the output of ``date`` to seconds, as if in UTC.

    None if it cannot be read.
    """
    words = " ".join(word for word in text.split()[:8] if word not in _ZONES)
    for form in _FORMS:
        try:
            return datetime.strptime(words, form).replace(tzinfo=timezone.utc).timestamp()
        except ValueError:
            continue
    return None
