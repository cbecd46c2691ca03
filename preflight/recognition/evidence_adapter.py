"""Record keys of recognised outputs: one record for each kind."""

from __future__ import annotations


def key_of(kind: str) -> str:
    """Return the key of the record that holds the facts of a kind."""
    return f"read:{kind}"
