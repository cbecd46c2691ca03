"""In CI nothing may be skipped: every component that a test needs is installed there."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator

import pytest

_skipped: list[str] = []


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C be heard: a shell that starts a job in the background has it ignored, by all below as well."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        _skipped.append(f"{item.nodeid}: {report.longrepr[-1] if isinstance(report.longrepr, tuple) else ''}")
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    if os.environ.get("CI") and _skipped:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _skipped:
        forbidden = ", and CI forbids it" if os.environ.get("CI") else ""
        terminalreporter.section("skipped: a component is missing" + forbidden)
        for line in _skipped:
            terminalreporter.line(line)
