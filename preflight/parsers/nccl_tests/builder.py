"""Builder of an nccl-tests report, line by line."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from preflight.parsers.nccl_tests.collective import collective_of
from preflight.parsers.nccl_tests.model import CutRow, RankDevice, Report, Row, RunFailure, mean_busbw
from preflight.parsers.nccl_tests.table import Columns, RowBuilder


@dataclass
class ReportBuilder:
    """A report under construction."""

    first_line: int
    stage: int
    last_line: int = 0
    collective: str | None = None  # as printed by the report
    called: str | None = None  # from a command line or a failure that precedes the report
    version: str | None = None
    nccl_version: str | None = None
    validation: bool | None = None
    iterations: int | None = None
    devices: list[RankDevice] = field(default_factory=list)
    devices_cut: bool = False
    columns: Columns | None = None
    rows: list[Row] = field(default_factory=list)
    cut: list[CutRow] = field(default_factory=list)
    pending: RowBuilder | None = None
    average: float | None = None
    average_ok: bool | None = None
    average_may_be_cut: bool = False
    finished: bool = False
    out_of_bounds: int | None = None
    out_of_bounds_ok: bool | None = None
    failures: list[RunFailure] = field(default_factory=list)
    relays: list[RunFailure] = field(default_factory=list)
    deaths: list[RunFailure] = field(default_factory=list)
    last_error: str = ""

    @property
    def copies(self) -> int:
        """The number of runs that printed into the report; several without MPI."""
        times = Counter(device.rank for device in self.devices)
        return times[0] if times[0] > 1 and len(set(times.values())) == 1 else 1

    @property
    def lone_head(self) -> bool:
        """Whether the report has only device lists, of ranks that are alone in their runs."""
        alone = bool(self.devices) and not any(device.rank for device in self.devices) and not self.devices_cut
        return alone and not (self.columns or self.rows or self.cut or self.pending or self.finished or self.failures)

    @property
    def only_failed(self) -> bool:
        """Whether the report has nothing but failures."""
        return bool(self.failures) and not (self.devices or self.rows or self.columns or self.version or self.finished)

    def awaits(self, rank: int) -> bool:
        """Return whether a device list with this rank may follow the table's header."""
        empty = self.columns is not None and not (self.rows or self.pending or self.finished)
        return empty and rank == 1 + max((device.rank for device in self.devices), default=-1) > 0

    def close_row(self) -> None:
        """Store the pending row, as a complete or as a truncated one."""
        if self.pending is None:
            return
        row, cut = self.pending.taken()
        self.pending = None
        if row is not None:
            self.rows.append(row)
        if cut is not None:
            self.cut.append(cut)

    def report(self) -> Report:
        """Return the report that was read so far."""
        self.close_row()
        ranks = sorted({device.rank for device in self.devices})
        nranks = len(ranks) if ranks and not self.devices_cut and ranks == list(range(len(ranks))) else None
        rows = tuple(self.rows)
        average = self.average
        # a number at the end of the text may lack digits, unless it is the mean of the rows
        if self.average_may_be_cut and average is not None:
            mean = mean_busbw(rows)
            average = average if mean is not None and abs(mean - average) <= 0.01 else None
        has_redop = self.columns.redop if self.columns is not None else None
        return Report(
            first_line=self.first_line,
            last_line=self.last_line,
            collective=self.collective or collective_of(rows, nranks, self.called, has_redop),
            collective_printed=self.collective is not None,
            devices=tuple(self.devices),
            nranks=nranks,
            hosts=tuple(dict.fromkeys(device.host for device in self.devices)),
            rows=rows,
            cut_rows=tuple(self.cut),
            average_busbw_gbytes_s=average,
            average_ok=self.average_ok,
            out_of_bounds=self.out_of_bounds,
            out_of_bounds_ok=self.out_of_bounds_ok,
            validated=self._validated(rows),
            failures=tuple(self.failures or self.relays[:1] or ([] if self.finished else self.deaths[:1])),
            complete=self.out_of_bounds is not None and average is not None,
            finished=self.finished and self.out_of_bounds is not None,
            copies=self.copies,
            version=self.version,
            nccl_version=self.nccl_version,
            last_error=self.last_error,
            iterations=self.iterations,
        )

    def _validated(self, rows: tuple[Row, ...]) -> bool | None:
        if self.validation is False or not rows:
            return self.validation if self.validation is False else None
        return any(half.wrong is not None or half.max_error is not None for row in rows for half in row.halves)
