"""A job's log, parsed once: NCCL, nccl-tests, PyTorch's watchdog, other lines."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from preflight.parsers import torch
from preflight.parsers.line_selection import LineSelection
from preflight.parsers.nccl_log.model import NcclLog
from preflight.parsers.nccl_log.reader import ScannedLog, scan, scan_text
from preflight.parsers.nccl_log.summarize import summarize
from preflight.parsers.nccl_tests import text as nccl_tests
from preflight.textprep.numbered_text import NumberedText


class JobLog:
    """One log; each parser runs on first use of its values."""

    def __init__(self, scanned: ScannedLog) -> None:
        self.nccl: NcclLog | None = summarize(scanned.tally)
        self.line_count = scanned.tally.all_lines
        #: The first and the last line written by NCCL itself.
        self.nccl_lines = scanned.tally.span
        self._selection = scanned.selection or LineSelection()

    @cached_property
    def text(self) -> NumberedText:
        """All lines of a short text; of a longer log the selected lines."""
        return self._selection.text()

    @property
    def dropped(self) -> int:
        """The number of lines dropped because there are too many."""
        return self._selection.dropped

    @cached_property
    def _without_steps(self) -> NumberedText:
        """The same without most step lines."""
        return self._selection.text(steps=False)

    @cached_property
    def repeated_steps(self) -> tuple[tuple[int, str], ...]:
        """The numbered step lines of repeated shapes, which ``text`` lacks."""
        return tuple(self._selection.steps())

    @property
    def dropped_steps(self) -> int:
        """The number of step lines dropped because there are too many."""
        return self._selection.dropped_steps

    def tool_text(self) -> NumberedText:
        """Return the lines that may be tool output."""
        return self._selection.tool_text()

    @cached_property
    def nccl_tests(self) -> tuple[nccl_tests.Report, ...]:
        """The reports of nccl-tests, in order."""
        return nccl_tests.parse(self._without_steps)

    @cached_property
    def watchdog(self) -> torch.watchdog.Watchdog:
        """The output of PyTorch's watchdog."""
        return torch.watchdog.parse(self._without_steps)

    @property
    def is_job(self) -> bool:
        """Whether it is a job's output, or part of it."""
        return self.nccl is not None or bool(self.nccl_tests) or bool(self.watchdog)


def parse_file(path: Path) -> JobLog:
    """Parse a log of any size; raises ValueError for damaged data, OSError."""
    return JobLog(scan([path], select=True))


def of_reports(reports: tuple[nccl_tests.Report, ...]) -> JobLog:
    """Return a log with only these reports, without its text."""
    log = parse("")
    log.nccl_tests = reports
    return log


def parse(text: str) -> JobLog:
    """Parse a log in memory; never raises."""
    return JobLog(scan_text(text, select=True))
