"""The start-up tables match their sources, and a run without them works."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib import import_module
from itertools import starmap
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight._startup import fast_options, generated_checks, lazy_checks, lightclass
from preflight._startup.generated_checks import TABLE
from preflight._startup.generated_options import SOURCES
from preflight.checks import MODULES
from preflight.checks._registry import lazy
from preflight.cli import startup_tables
from preflight.commands.gate import gate
from preflight.evidence.document import Evidence
from preflight.gate.options import Options
from preflight.judge import judge
from tests.support import paths


def module(name: str) -> object:
    return import_module(f"{lazy.PACKAGE}.{name}")


@pytest.mark.parametrize("name", MODULES)
def test_table_of_checks_matches_their_modules(name: str) -> None:
    source = (Path(lazy.__file__).parent.parent / f"{name.replace('.', '/')}.py").read_bytes()
    rows = tuple(starmap(lazy.row, lazy.written(module(name))))
    assert source.count(b"\n@check(") == len(rows), "write each check as `@check(` above its function"
    assert TABLE.get(name, ())[1:] == (lazy_checks.fingerprint(source), rows), lazy.REGENERATE


def test_the_table_of_checks_has_no_module_that_is_gone() -> None:
    assert list(TABLE) == list(MODULES), lazy.REGENERATE


def test_a_deferred_check_is_the_check() -> None:
    for name in MODULES:
        for made, (_, written) in zip(lazy.from_table(name), lazy.written(module(name)), strict=True):
            assert lightclass.replace(made, run=written.run, unless=written.unless) == written
            places = [[(f.__module__, f.__name__) for f in check.unless] for check in (made, written)]
            assert places[0] == places[1]
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
    assert (lazy_checks.fingerprint(DECLARED.replace(old, new)) == lazy_checks.fingerprint(DECLARED)) is same


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
    monkeypatch.setitem(TABLE, "site.waivers", (size + 1, declarations, rows))  # the body of a check was changed
    assert lazy.is_current("site.waivers")


@pytest.mark.parametrize("fields", [lazy_checks.FIELDS[:-1], None])
def test_a_table_of_another_version_is_ignored(fields: tuple[str, ...] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a pull, the table of an editable clone may have other fields, or lack their names."""
    if fields is None:
        monkeypatch.delattr(generated_checks, "FIELDS")
    else:
        monkeypatch.setattr(generated_checks, "FIELDS", fields)
    monkeypatch.setattr(lazy_checks, "_table", None)
    lazy.checks_of.cache_clear()
    assert not lazy.is_current("site.waivers")
    assert [check.id for check in lazy.checks_of("site.waivers")] == ["site.waivers"]
    monkeypatch.undo()
    lazy.checks_of.cache_clear()


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


# --- options without click ----------------------------------------------------------------------------

VALUES = ["-", "out.json", "dir", "gpu.*", "gpu[1-4]", "30", "0", "0.5", "3601", "86401", "1e1", "1_0", "1.",
          "٣", "nan", "auto", "srun", "telnet", "ci", "slurm-prolog", "nowhere", "", "--", "-x", "=", "1024",
          "1025"]  # fmt: skip


def arguments(command: str) -> st.SearchStrategy[list[str]]:
    """Draw argument lists of a command: its options, with values in every form, and noise."""
    params = startup_tables.COMMANDS[command][0].params
    spellings = [word for param in params if isinstance(param, click.Option) for word in param.opts]
    value = st.sampled_from(VALUES)
    option = st.sampled_from([*spellings, "--help", "-h", "--nonsense", "--polic"])
    forms = st.one_of(
        st.tuples(option, value), st.tuples(option), st.tuples(value),
        st.tuples(option, value).map(lambda pair: ("=".join(pair),)),
        st.tuples(option, value).map(lambda pair: ("".join(pair),)),
    )  # fmt: skip
    return st.lists(forms, max_size=5).map(lambda drawn: [word for form in drawn for word in form])


def by_click(command: str, words: list[str]) -> dict[str, Any]:
    parser, _, left = startup_tables.COMMANDS[command]
    with parser.make_context(command, list(words)) as context:
        assert {name: context.params[name] for name in left} == dict.fromkeys(left, False)
        return {name: value for name, value in context.params.items() if name not in left}


@pytest.mark.parametrize("command", startup_tables.COMMANDS)
@given(data=st.data())
def test_what_is_parsed_without_click_means_the_same_to_click(command: str, data: st.DataObject) -> None:
    words = data.draw(arguments(command))
    values = fast_options.parse(command, words)
    if values is not None:
        expected = by_click(command, words)
        assert values == expected
        assert {name: type(value) for name, value in values.items()} == {
            name: type(value) for name, value in expected.items()
        }


@pytest.mark.parametrize("command", startup_tables.COMMANDS)
def test_each_option_is_parsed_without_click(command: str) -> None:
    """Without this test, a type unknown to the fast parser would silently leave the option to click."""
    parser, _, left = startup_tables.COMMANDS[command]
    by_kind = {click.IntRange: "2", click.FloatRange: "2"}
    for param in parser.params:
        if isinstance(param, click.Option) and param.name not in left:
            for word in param.opts:
                choices = tuple(param.type.choices) if isinstance(param.type, click.Choice) else ("auto",)
                kind = by_kind.get(type(param.type), str(choices[0]))
                assert fast_options.parse(command, [word] if param.is_flag else [word, kind]) is not None, word


@pytest.mark.parametrize(
    "words",
    ["", "-v", "--json -", "--cluster c.toml --html=r.html --save d", "--only gpu.* --only rdma.* --skip x",
     "--log a --log b", "--deadline 30 --window 10", "--sudo --fabric --verbose --exclude-file bad"],
)  # fmt: skip
def test_the_usual_forms_are_parsed_without_click(words: str) -> None:
    assert fast_options.parse("check", words.split()) is not None


def test_a_changed_source_of_options_is_left_to_click(monkeypatch: pytest.MonkeyPatch) -> None:
    (path, checksum), *others = SOURCES["check"]
    monkeypatch.setitem(SOURCES, "check", ((path, checksum + 1), *others))
    assert fast_options.parse("check", []) is None
    assert fast_options.parse("gate", ["ci"]) is not None


def test_the_options_of_a_hook_are_those_of_its_command() -> None:
    options = {param.name: param for param in gate.params}
    assert set(Options.__slots__) == set(options) - {"policy"}
    paths = {name for name, param in options.items() if isinstance(param.type, click.Path)}
    plain = Options("ci", **dict.fromkeys(paths, "x"))
    assert {name for name in Options.__slots__ if str(getattr(plain, name)).endswith("/x")} == paths
    assert {name for name in Options.__slots__ if getattr(plain, name) is False} == {
        name for name, param in options.items() if isinstance(param, click.Option) and param.is_flag
    } - {"policy"}  # fmt: skip


# --- a clone that was not installed -------------------------------------------------------------------


def test_a_clone_without_tables_works_and_reports_it_with_v(tmp_path: Path) -> None:
    for top in ("preflight", "checks", "deploy", "reports"):
        ignore = shutil.ignore_patterns("__pycache__", "generated_*.py")
        shutil.copytree(paths.ROOT / top, tmp_path / top, symlinks=True, ignore=ignore)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PYTHONPATH": str(tmp_path)}
        argv = [sys.executable, "-m", "preflight", *words]
        return subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)

    quiet, verbose, hook = run("list"), run("-v", "list"), run("gate", "ci")
    assert (quiet.returncode, quiet.stderr) == (0, "")
    assert verbose.stdout == quiet.stdout
    assert "no table of checks: all their modules are imported" in verbose.stderr
    assert (
        quiet.stdout
        == subprocess.run(
            [sys.executable, "-m", "preflight", "list"], capture_output=True, text=True, check=True, timeout=120
        ).stdout
    )
    assert "NOT JUDGED" in hook.stderr
    assert not list((tmp_path / "preflight").rglob("generated_*.py")), "a run writes no table"
