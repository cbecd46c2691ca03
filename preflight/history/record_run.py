"""Use of the history file by one run: reading metrics and recording findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from preflight.evidence.document import NODE, Evidence, EvidenceError
from preflight.facts.job import RunFacts
from preflight.facts.node import NodeFacts
from preflight.history.findings_history import annotate, at
from preflight.history.store import HistoryError, HistoryLocked, HistoryStore
from preflight.history.time_series import samples, with_past

#: Seconds to wait for a lock before the run; after the run, the wait is ``BUSY_S``.
_OPENING_S = 0.4


class RunHistory:
    """The history file of a run; once it is open, its errors never change the verdict."""

    def __init__(self, path: Path, warn: Callable[[str], None]) -> None:
        """Open or create the file; raise HistoryError, but not if the file is locked."""
        self._path, self._warn = path, warn
        with suppress(HistoryLocked), HistoryStore(path, busy_s=_OPENING_S):
            pass

    def add_time_series(self, evidences: Sequence[Evidence]) -> Sequence[Evidence]:
        """Return the documents with the time series of their metrics."""
        try:
            with HistoryStore(self._path, busy_s=_OPENING_S) as store:
                return with_past(evidences, store)
        except HistoryError as error:
            self._warn(f"{error}; judged without it")
            return evidences

    def record(self, report: dict[str, Any], evidences: Sequence[Evidence], run: Evidence | None) -> None:
        """Annotate findings and record the run; the run block shows if that succeeded."""
        written: dict[str, Any] = {"file": str(self._path), "recorded": True}
        try:
            with HistoryStore(self._path) as store:
                annotate(report, store)
                store.add(at(report), report, _samples(evidences), _figures(run))
        except HistoryError as error:
            self._warn(f"{error}; this run is not recorded")
            written.update(recorded=False, why=str(error))
        report["run"]["history"] = written


def _samples(evidences: Sequence[Evidence]) -> Iterator[tuple[str, str, str, float]]:
    for evidence in evidences:
        if evidence.kind != NODE:
            continue
        if evidence.no_answer is None:
            for metric, subject, value in samples(NodeFacts(evidence)):
                yield evidence.node, metric, subject, value


def _figures(run: Evidence | None) -> Iterator[tuple[str, str, float, str]]:
    """Yield the best bus bandwidth of each benchmark in the run's logs."""
    if run is None:
        return
    try:
        reports = RunFacts(run).nccl_tests
    except EvidenceError:
        return
    for key, found in reports.items():
        for report in found:
            if (best := report.best()) is not None:
                yield f"{report.collective or 'nccl-tests'} busbw", key, best.busbw_gbytes_s, "GB/s"
