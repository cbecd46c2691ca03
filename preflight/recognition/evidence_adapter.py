"""Keys of the records of recognised outputs, one for each kind of output."""

from __future__ import annotations


def key_of(kind: str) -> str:
    """Return the key of the record that holds the facts of a kind."""
    return f"read:{kind}"
