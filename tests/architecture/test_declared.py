"""The table of all checks, by which a check's module is imported only when it runs."""

from __future__ import annotations

from importlib import import_module
from itertools import starmap
from pathlib import Path

import pytest

from preflight._startup import lightclass
from preflight.checks import MODULES
from preflight.checks._registry import lazy
from preflight.checks._registry.generated import TABLE
from preflight.evidence.document import Evidence
from preflight.judge import judge


def module(name: str) -> object:
    return import_module(f"{lazy.PACKAGE}.{name}")


@pytest.mark.parametrize("name", MODULES)
def test_table_of_checks_matches_their_modules(name: str) -> None:
    source = (Path(lazy.__file__).parent.parent / f"{name.replace('.', '/')}.py").read_bytes()
    rows = tuple(starmap(lazy.row, lazy.written(module(name))))
    assert source.count(b"\n@check(") == len(rows), "write each check as `@check(` above its function"
    assert TABLE.get(name, ())[1:] == (lazy.fingerprint(source), rows), lazy.REGENERATE


def test_the_table_of_checks_has_no_module_that_is_gone() -> None:
    assert list(TABLE) == list(MODULES), lazy.REGENERATE


def test_a_deferred_check_is_the_check() -> None:
    for name in MODULES:
        for made, (_, written) in zip(lazy.from_table(name), lazy.written(module(name)), strict=True):
            assert lightclass.replace(made, run=written.run) == written
            assert (made.doc, made.why) == (written.doc, written.why)
            assert made.run.__name__ == written.run.__name__
            assert made.run.__module__ == written.run.__module__


DECLARED = b'''"""A module."""

@check(
    "host.one",
    title="One",
)
def one(node, site):
    """Say one thing."""
    yield passed("one")
'''


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        (b"say", b"say (more)", True), (b'yield passed("one")', b"for x in node:\n        yield x", True),
        (b"A module.", b"Some module, with one check.", True), (b'"One"', b'"Two"', False),
        (b"def one", b"def two", False), (b'"host.one",', b'"host.one", scope="fleet",', False),
        (b'passed("one")', b'passed("one")\n\n\n@check("host.two")\ndef two(node, site):\n    ...\n', False),
        (b"\ndef one(node, site)", b"", False),
    ],
)  # fmt: skip
def test_fingerprint_changes_with_declarations_not_with_bodies(old: bytes, new: bytes, same: bool) -> None:
    assert (lazy.fingerprint(DECLARED.replace(old, new)) == lazy.fingerprint(DECLARED)) is same


def test_a_module_with_more_declarations_than_the_table_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    size, declarations, rows = TABLE["site.waivers"]
    for outdated in ((size + 1, declarations + 1, rows[:-1]), None):
        if outdated is None:
            monkeypatch.delitem(TABLE, "site.waivers")
        else:
            monkeypatch.setitem(TABLE, "site.waivers", outdated)
        lazy.checks_of.cache_clear()
        assert [check.id for check in lazy.checks_of("site.waivers")] == ["site.waivers"]
    monkeypatch.undo()
    lazy.checks_of.cache_clear()
    monkeypatch.setitem(TABLE, "site.waivers", (size + 1, declarations, rows))  # what a check does was changed
    assert lazy.is_current("site.waivers")


def test_an_outdated_row_is_reported_when_the_check_runs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    size, declarations, rows = TABLE["host.checkpoint"]
    wrong = tuple((row[0], "All is well", *row[2:]) for row in rows)
    monkeypatch.setitem(TABLE, "host.checkpoint", (size, declarations, wrong))
    report = judge([Evidence("gpu001", "", {}, {})], lazy.from_table("host.checkpoint"))
    assert report["exit_status"] == 3
    assert [lazy.REGENERATE in finding["message"] for finding in report["findings"]] == [True]
    assert lazy.REGENERATE in caplog.text
