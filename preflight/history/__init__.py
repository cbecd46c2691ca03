"""History of runs: one SQLite file, from which a report has what is new, what recurs and what creeps."""

from __future__ import annotations

from preflight.history.record_run import RunHistory
from preflight.history.store import HistoryError, HistoryStore

__all__ = ["HistoryError", "HistoryStore", "RunHistory"]
