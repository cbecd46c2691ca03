"""In CI nothing may be skipped: every component that a test needs is installed there."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

_skipped: list[str] = []


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
