"""Types for nccl-tests reports, whether read from text or JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator

from preflight._startup.lightclass import dataclass


@dataclass(frozen=True)
class IterationTimes:
    """Times of single iterations of the slowest process, in µs (``-I``, since 2.19).

    The text output has the minimum, maximum, 99th percentile and variation; the JSON output has every iteration.
    """

    min_us: float | None
    max_us: float | None
    p99_us: float | None  # as printed, by nearest rank; for few iterations, it is the maximum
    cv_percent: float | None  # standard deviation / mean, in percent
    p50_us: float | None = None
    p95_us: float | None = None
    times_us: tuple[float, ...] = ()  # every iteration, without the skipped ones (-K)
    processes: tuple[tuple[float, ...], ...] = ()  # the same for each process, in order of devices

    def quantile(self, share: float) -> float | None:
        """Return a percentile by nearest rank (0.99 is the 99th), or None.

        With 95% confidence, at least one iteration must be above it, which needs 299 iterations for 0.99 and 2,995 for
        0.999.
        """
        if not self.times_us or len(self.times_us) < fewest_iterations(share):
            return None
        return sorted(self.times_us)[math.ceil(share * len(self.times_us)) - 1]


def fewest_iterations(share: float) -> int:
    """Return the number of iterations that a percentile needs for 95% confidence."""
    return math.ceil(math.log(0.05) / math.log(share))


@dataclass(frozen=True)
class Measurement:
    """One half of a row: the collective out of place or in place."""

    time_us: float  # per operation
    algbw_gbytes_s: float  # GB/s, 1 GB = 10^9 bytes
    busbw_gbytes_s: float
    wrong: int | None  # number of wrong elements; None if not validated, and up to 2.12
    max_error: float | None = None  # largest difference, which versions up to 2.12 print instead; may be above 0
    iterations: IterationTimes | None = None

    @property
    def measured(self) -> bool:
        """Whether the time and the rates are finite and not negative."""
        return all(0 <= value < math.inf for value in (self.time_us, self.algbw_gbytes_s, self.busbw_gbytes_s))


@dataclass(frozen=True)
class Row:
    """A row of the table: one size of one type, operation and root."""

    line: int
    bytes: int
    count: int  # number of elements
    dtype: str
    redop: str | None  # "none" as printed; None if the column is blank or absent
    root: int | None
    out_of_place: Measurement | None
    in_place: Measurement | None

    @property
    def halves(self) -> tuple[Measurement, ...]:
        """The halves that the row contains."""
        return tuple(half for half in (self.out_of_place, self.in_place) if half is not None)


@dataclass(frozen=True)
class CutRow:
    """A row without some of its numbers: the run ended in it, or they were removed."""

    line: int
    bytes: int | None
    text: str


@dataclass(frozen=True)
class RankDevice:
    """A line of the list ``# Using devices``."""

    rank: int
    group: int  # above 0 if NCCL_TESTS_SPLIT created several communicators; bandwidth is per group
    host: str  # up to the first dot
    index: int
    bus: str
    name: str


@dataclass(frozen=True)
class RunFailure:
    """A failure message of nccl-tests, or of its launcher."""

    line: int
    text: str
    host: str | None = None
    launcher: bool = False  # a launcher's or shell's message that a process of the run died


@dataclass(frozen=True)
class Best:
    """The best bus bandwidth of a report, and its row."""

    busbw_gbytes_s: float
    row: Row


@dataclass(frozen=True)
class Report:
    """One run of one nccl-tests binary."""

    first_line: int
    last_line: int
    collective: str | None  # all_reduce, …; None if neither printed nor clear from the table
    collective_printed: bool
    devices: tuple[RankDevice, ...]
    nranks: int | None  # None if the device list is missing or truncated
    hosts: tuple[str, ...]
    rows: tuple[Row, ...]
    cut_rows: tuple[CutRow, ...]
    average_busbw_gbytes_s: float | None  # as printed: the mean over all sizes, however small
    average_ok: bool | None  # the verdict on NCCL_TESTS_MIN_BW; None if not printed
    out_of_bounds: int | None  # number of failed checks (rank x size x half), not of elements
    out_of_bounds_ok: bool | None
    validated: bool | None  # False: -c 0, although the footer has "0 OK"; None: unknown
    failures: tuple[RunFailure, ...]
    complete: bool  # whether the footer is complete
    finished: bool = False  # whether the footer is present; its average may be truncated
    copies: int = 1  # above 1: number of runs of nranks each, from a binary built without MPI
    version: str | None = None  # version of nccl-tests
    nccl_version: str | None = None
    last_error: str = ""  # NCCL's last message in the footer; a successful run may also have one
    iterations: int | None = None  # number of iterations (-n)
    gpus_per_device: int = 1  # above 1 in JSON, which lists only the first GPU of each process

    @property
    def device_names(self) -> tuple[str, ...]:
        """The GPU models, each once."""
        return tuple(dict.fromkeys(device.name for device in self.devices if device.name))

    @property
    def nnodes(self) -> int | None:
        """The number of hosts; None if the device list is missing or truncated.

        If several copies ran in parallel, it is the number of hosts of one.
        """
        return max(1, len(self.hosts) // self.copies) if self.nranks is not None else None

    @property
    def groups(self) -> int:
        """The number of communicators that ran in parallel."""
        return len({device.group for device in self.devices}) or 1

    @property
    def status(self) -> str | None:
        """``ok`` or ``failed``; None if the run did not end, and no error shows why."""
        if self.failures or self.out_of_bounds_ok is False or self.average_ok is False or self.wrong_rows:
            return "failed"
        return "ok" if self.finished else None

    @property
    def wrong_rows(self) -> tuple[Row, ...]:
        """The rows with wrong elements in either half."""
        return tuple(row for row in self.rows if any(half.wrong for half in row.halves))

    @property
    def unmeasured(self) -> Row | None:
        """The first row with a time or rate that is negative or not finite, or None.

        Rows of size 0 are left out.
        """
        rows = (row for row in self.rows if row.bytes > 0)
        return next((row for row in rows if not all(half.measured for half in row.halves)), None)

    def best(self, min_bytes: int = 0) -> Best | None:
        """Return the best busbw for sizes from ``min_bytes`` on, in either half, or None."""
        found = [
            Best(half.busbw_gbytes_s, row)
            for row in self.rows
            if row.bytes >= min_bytes
            for half in row.halves
            if math.isfinite(half.busbw_gbytes_s)
        ]
        return max(found, key=lambda best: best.busbw_gbytes_s, default=None)


def decode_version(code: int | None) -> str | None:
    """Decode NCCL_VERSION_CODE (nccl.h): 23007 is 2.30.7; None if it is invalid.

    Up to 2.8, it has one digit less: 2708 is 2.7.8.
    """
    if code is None or code < 1000:
        return None
    major = 10000 if code >= 10000 else 1000
    return f"{code // major}.{code % major // 100}.{code % 100}"


def mean_busbw(rows: tuple[Row, ...]) -> float | None:
    """Return the mean busbw of all rows and halves, as in the footer, or None."""
    values = list(_busbws(rows))
    return sum(values) / len(values) if values else None


def _busbws(rows: tuple[Row, ...]) -> Iterator[float]:
    return (half.busbw_gbytes_s for row in rows for half in row.halves)
