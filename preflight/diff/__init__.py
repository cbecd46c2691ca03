"""What changed between two runs: findings that came, went or changed, values that are otherwise, nodes."""

from __future__ import annotations

from preflight.diff.compare import SCHEMA, compare
from preflight.diff.side import Side, SideError, load
from preflight.diff.text import render

__all__ = ["SCHEMA", "Side", "SideError", "compare", "load", "render"]
