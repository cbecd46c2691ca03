"""What earlier runs said: one SQLite file, from which a report knows what is new, what came back and what creeps."""

from __future__ import annotations

from preflight.history.record_run import Past
from preflight.history.store import HistoryError, Store

__all__ = ["HistoryError", "Past", "Store"]
