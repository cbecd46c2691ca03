"""In CI nothing may be skipped: every component that a test needs is installed there."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from preflight.cli import startup_tables

_skipped: list[str] = []


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C be heard: a shell that starts a job in the background has it ignored, by all below as well."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.umask(0o022)  # ordinary users, and sshd as one, read what tests write
    # How long an example takes depends on how busy the machine is. What decides whether a change lands tries the same
    # examples each time; a run by hand, and tests/robustness/fuzz.py, look for new ones.
    quiet = [HealthCheck.too_slow]
    settings.register_profile("here", deadline=None, suppress_health_check=quiet)
    settings.register_profile("ci-here", deadline=None, suppress_health_check=quiet, derandomize=True, database=None)
    settings.load_profile("ci-here" if os.environ.get("CI") else "here")
    if not hasattr(config, "workerinput"):
        startup_tables.write(startup_tables.ROOT)  # what an editable install has of a check that was changed since


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
