"""In CI no test may be skipped: every required component is installed there."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from preflight.cli import startup_tables

_skipped: list[str] = []


def pytest_configure(config: pytest.Config) -> None:
    """Restore Ctrl-C: a shell ignores it in background jobs, and so do their children."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.umask(0o022)  # ordinary users, including sshd's, read the files of tests
    # The time of an example depends on the load of the machine. CI tries the same examples each time; manual runs and
    # tests/robustness/fuzz.py look for new ones.
    quiet = [HealthCheck.too_slow]
    settings.register_profile("here", deadline=None, suppress_health_check=quiet)
    settings.register_profile("ci-here", deadline=None, suppress_health_check=quiet, derandomize=True, database=None)
    settings.load_profile("ci-here" if os.environ.get("CI") else "here")
    if not hasattr(config, "workerinput"):
        startup_tables.write(startup_tables.ROOT)  # an editable install's data on a check that was changed since


#: Folders of tests, the longest files first: the workers then end at the same time.
_ORDER = ("performance", "robustness", "integration", "scenarios", "golden", "checks", "architecture", "unit")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run slow folders first; a worker takes files in this order."""
    items.sort(key=lambda item: next((place for place, name in enumerate(_ORDER) if name in item.path.parts), 0))


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
