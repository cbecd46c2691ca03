"""Comparison of two runs: changed findings, values and nodes."""

from __future__ import annotations

from preflight.diff.compare import SCHEMA, compare
from preflight.diff.render import render
from preflight.diff.snapshot import Snapshot, SnapshotError, load

__all__ = ["SCHEMA", "Snapshot", "SnapshotError", "compare", "load", "render"]
