"""Dumps of SONiC databases: keys and their hashes.

There are three formats: ``sonic-db-dump`` and techsupport (``{"KEY": {"type": "hash", "value": {…}}}``), a plain object
of hashes, and ``/etc/sonic/config_db.json`` (``{"TABLE": {"KEY": {…}}}``). Sources: sonic-py-swsssdk and
sonic-utilities (``scripts/generate_dump``), redisdl.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from preflight.evidence import json_limits

#: Key of a database -> fields of its hash.
Hashes = Mapping[str, Mapping[str, str]]


def parse(text: str) -> dict[str, dict[str, str]]:
    """Return the fields of each key in a dump; raises ValueError.

    Keys that are not hashes are left out.
    """
    try:
        value = json_limits.text(text)
    except ValueError as error:
        raise ValueError(f"{text.strip()[:60]!r} is not the JSON of a database dump: {error}") from None
    if not isinstance(value, dict) or not all(isinstance(entry, dict) for entry in value.values()):
        raise ValueError("the dump is not an object of keys, each with its fields")
    hashes: dict[str, dict[str, str]] = {}
    for key, entry in value.items():
        if "type" in entry and "value" in entry:
            if entry["type"] == "hash" and isinstance(entry["value"], dict):
                hashes[key] = _fields(entry["value"])
        elif entry and all(isinstance(fields, dict) for fields in entry.values()):
            hashes.update((f"{key}|{name}", _fields(fields)) for name, fields in entry.items())
        else:
            hashes[key] = _fields(entry)
    return hashes


def _fields(entry: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields with their values as text; lists are joined with commas."""
    return {
        name: value if isinstance(value, str) else ",".join(map(str, value)) if isinstance(value, list) else str(value)
        for name, value in entry.items()
    }
