"""History of runs in one SQLite file: new and recurring findings, slow changes."""

from __future__ import annotations

from preflight.history.record_run import RunHistory
from preflight.history.store import HistoryError, HistoryStore

__all__ = ["HistoryError", "HistoryStore", "RunHistory"]
