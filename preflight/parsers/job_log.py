"""A job's log, read once for all parsers: NCCL, nccl-tests, PyTorch's watchdog."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from preflight.parsers import torch
from preflight.parsers.line_selection import LineSelection
from preflight.parsers.nccl_log.model import NcclLog
from preflight.parsers.nccl_log.reader import ScannedLog, scan, scan_text
from preflight.parsers.nccl_log.summarize import summarize
from preflight.parsers.nccl_tests import text as nccl_tests
from preflight.parsers.training.step_classes import StepsBetween
from preflight.textprep.numbered_text import NumberedText


class JobLog:
    """One job's log; all parsers except NCCL's run when their values are first used."""

    def __init__(self, scanned: ScannedLog) -> None:
        self.nccl: NcclLog | None = summarize(scanned.tally)
        self.line_count = scanned.tally.all_lines
        #: Numbers of the first and the last line from NCCL, or from a framework about it; None if there is no such
        #: line.
        self.nccl_lines = scanned.tally.span
        self._selection = scanned.selection or LineSelection()

    @cached_property
    def text(self) -> NumberedText:
        """All lines of a short text, or the selected lines of a longer log."""
        return self._selection.text()

    @property
    def dropped(self) -> int:
        """The number of selected lines that were dropped because there are too many."""
        return self._selection.dropped

    @cached_property
    def _without_steps(self) -> NumberedText:
        """``text`` without most of the repeated step lines."""
        return self._selection.text(steps=False)

    @cached_property
    def repeated_steps(self) -> tuple[tuple[int, str], ...]:
        """Step lines that differ only in digits, with their numbers; not in ``text``."""
        return tuple(self._selection.steps())

    def steps_between(self) -> StepsBetween | None:
        """Return the step lines of a very long log that are only counted."""
        return self._selection.steps_between()

    def tool_text(self) -> NumberedText:
        """Return the lines that may be tool output, with marks for gaps."""
        return self._selection.tool_text()

    @cached_property
    def nccl_tests(self) -> tuple[nccl_tests.Report, ...]:
        """The nccl-tests reports, in order."""
        return nccl_tests.parse(self._without_steps)

    @cached_property
    def watchdog(self) -> torch.watchdog.Watchdog:
        """The messages of PyTorch's watchdog."""
        return torch.watchdog.parse(self._without_steps)

    @property
    def is_job(self) -> bool:
        """Whether the text is a job's output, or part of it."""
        return self.nccl is not None or bool(self.nccl_tests) or bool(self.watchdog)


def parse_file(path: Path) -> JobLog:
    """Parse a log of any size. Raises OSError, and ValueError for damaged data."""
    return JobLog(scan([path], select=True))


def of_reports(reports: tuple[nccl_tests.Report, ...]) -> JobLog:
    """Return a log that has only these reports, and no text."""
    log = parse("")
    log.nccl_tests = reports
    return log


def parse(text: str) -> JobLog:
    """Parse a log in memory; never raises."""
    return JobLog(scan_text(text, select=True))
