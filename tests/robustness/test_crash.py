"""Internal errors and damaged documents never look like a verdict: status 2 or 3, one line, no traceback."""

from __future__ import annotations

import copy
import json
import os
import sqlite3
import subprocess
import sys
import zipapp
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from preflight.cli.app import main
from preflight.gate import policy
from preflight.schemas import conform
from tests.support import commands
from tests.support.fixture import whole_node
from tests.support.paths import ROOT

SCHEMAS = ROOT / "preflight" / "schemas"

#: Replacements of a value, or its removal.
WRONG: tuple[Any, ...] = (None, 7, "text", [], {}, [7], {"a": 7}, True)


# --- one handler -----------------------------------------------------------------------------------


def broken(folder: Path, error: str) -> dict[str, str]:
    """Return an environment in which every judgement raises an error."""
    (folder / "sitecustomize.py").write_text(
        f"import sys\nfrom importlib import abc\n\nclass Finder(abc.MetaPathFinder):\n"
        f"    def find_spec(self, name, path, target=None):\n"
        f"        if name in ('preflight.judge', 'preflight.gate.node_hook', 'preflight.checklist'):\n"
        f"            {error}\n\n"
        f"sys.meta_path.insert(0, Finder())\n", encoding="utf-8",
    )  # fmt: skip
    return {"PYTHONPATH": f"{folder}:{ROOT}", "HOME": str(folder), "PATH": os.environ["PATH"]}


def run(env: dict[str, str], *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "preflight", *words], env=env, cwd=cwd, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip


ERRORS = {
    "KeyError": "raise KeyError('message')",
    "escape": "raise ValueError('\\x1b[31m' + 'x' * 5000 + '\\n')",
    "RecursionError": "raise RecursionError('maximum recursion depth exceeded')",
    "MemoryError": "raise MemoryError",
    "AssertionError": "raise AssertionError('range too large')",
    "OSError": "raise OSError(5, 'Input/output error', 'x')",
}


@pytest.mark.parametrize("name", ERRORS)
def test_a_crash_is_one_line_and_no_verdict(name: str, tmp_path: Path) -> None:
    """It used to print a traceback with status 1, which means that a gating check failed."""
    env = broken(tmp_path, ERRORS[name])
    for words in (("judge", "x.json"), ("check",), ("demo",)):
        (tmp_path / "x.json").write_text(json.dumps(whole_node("hgx-h100-roce")))
        done = run(env, *words, cwd=tmp_path)
        assert done.returncode == 3, (words, done.stderr)
        line = done.stderr.splitlines()[-1]
        assert line.startswith("Error: preflight itself failed: ")
        assert f"`preflight -v {words[0]} …` prints more".encode("ascii", "backslashreplace").decode() in line
        assert "Traceback" not in done.stderr
        assert line.isprintable()
        assert len(line) < 600


@pytest.mark.parametrize("words", [("-v", "demo"), ("demo", "-v"), ("--verbose", "demo")])
def test_the_traceback_is_there_for_who_wants_it(words: tuple[str, ...], tmp_path: Path) -> None:
    done = run(broken(tmp_path, ERRORS["KeyError"]), *words, cwd=tmp_path)
    assert done.returncode == 3
    assert "Traceback (most recent call last)" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("Error: preflight itself failed: KeyError")


@pytest.mark.parametrize("hook", policy.HOOKS)
def test_a_crash_of_a_gate_has_the_exit_status_of_unknown(hook: str, tmp_path: Path) -> None:
    done = run(broken(tmp_path, ERRORS["MemoryError"]), "gate", hook, "--state-dir", "state", cwd=tmp_path)
    assert done.returncode == policy.rule(hook, "unknown").exit, done.stderr
    assert "Traceback" not in done.stderr


def test_a_crash_before_the_gate_is_ready_too(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from preflight.cli import main as entry
    from preflight.gate import main as gate

    monkeypatch.setattr(gate, "main", lambda *given: 1 / 0)
    ended: list[int] = []
    monkeypatch.setattr(entry, "leave", lambda status, **options: ended.append(status))
    for hook in policy.HOOKS:
        ended.clear()
        monkeypatch.setattr(sys, "argv", ["preflight", "gate", hook])
        entry.main()
        assert ended == [policy.rule(hook, "unknown").exit]
    assert "NOT JUDGED" in capfd.readouterr().err


def test_a_closed_stderr_changes_no_status(tmp_path: Path) -> None:
    env = broken(tmp_path, ERRORS["KeyError"])
    done = subprocess.run(["sh", "-c", f"{sys.executable} -m preflight demo 2>&-"], env=env, cwd=tmp_path, check=False)
    assert done.returncode == 3


def test_a_zipapp_reports_a_crash_the_same_way(tmp_path: Path) -> None:
    """As an archive, started by its own ``__main__``."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "__main__.py").write_text("from preflight.cli.main import main\n\nmain()\n")
    zipapp.create_archive(source, tmp_path / "preflight.pyz")
    done = subprocess.run(
        [sys.executable, str(tmp_path / "preflight.pyz"), "demo"], env=broken(tmp_path, ERRORS["KeyError"]),
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 3
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", ["list", "probes", "explain rdma.port-rate", "checklist", "list --json"])
def test_a_reader_who_leaves_is_no_failed_check(words: str, tmp_path: Path) -> None:
    env = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "preflight", *words.split()], env=env, cwd=tmp_path, stdout=write, text=True,
        stderr=subprocess.PIPE, check=False,
    )  # fmt: skip
    os.close(write)
    assert done.returncode in (0, 3), done.stderr
    assert "Traceback" not in done.stderr


# --- the reader of our schemas ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("report") / "report.json"
    assert CliRunner().invoke(main, ["demo", "--json", str(path)]).exit_code == 1
    made: dict[str, Any] = json.loads(path.read_text("utf-8"))
    # one of each kind is enough, and those that the demo lacks
    kinds = {(one["status"], "excerpts" in one, len(one["nodes"]) > 1): one for one in made["findings"]}
    numbers = {len(node["checks"]) for node in made["nodes"]}
    return {**made, "findings": list(kinds.values()), "nodes": made["nodes"][: len(numbers) + 1],
            "checklists": made["checklists"][:2], "incidents": [{**made["incidents"][0], "findings": [0]}]}  # fmt: skip


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield places in a document: one entry of each list, one key of each map of checks."""
    if isinstance(value, dict):
        for number, (name, part) in enumerate(value.items()):
            if number and at and at[-1] in ("checks", "record", "records"):
                return
            yield (*at, name)
            yield from places(part, (*at, name))
    elif isinstance(value, list) and value:
        yield (*at, 0)
        yield from places(value[0], (*at, 0))


def spoilt(document: dict[str, Any], at: tuple[Any, ...], value: Any = ...) -> dict[str, Any]:
    """Return a document with another value at a place, or without one."""
    made = copy.deepcopy(document)
    inner: Any = made
    for step in at[:-1]:
        inner = inner[step]
    if value is ...:
        del inner[at[-1]]
    else:
        inner[at[-1]] = value
    return made


def test_every_word_of_our_schemas_is_known(report: dict[str, Any]) -> None:
    for path in SCHEMAS.glob("*.json"):
        conform.find_error({}, path.stem)


def test_the_reader_and_the_library_agree(report: dict[str, Any]) -> None:
    """Apart from limits, patterns and unknown keys, they reject the same documents."""
    schema = json.loads((SCHEMAS / "report-1.json").read_text("utf-8"))
    assert conform.find_error(report, "report-1") == ""
    let_be = {
        "minLength",
        "minimum",
        "pattern",
        "propertyNames",
        "uniqueItems",
        "additionalProperties",
        "maxProperties",
    }
    library = jsonschema.Draft202012Validator(_lax(schema, let_be))
    for at in places(report):
        for value in (..., *WRONG[:2]):
            made = spoilt(report, at, value)
            assert bool(conform.find_error(made, "report-1")) is not library.is_valid(made), (at, value)


def _lax(schema: Any, let_be: set[str]) -> Any:
    """Return a schema without the given keywords; schemas of other keys stay."""
    if isinstance(schema, dict):
        return {
            name: _lax(part, let_be) for name, part in schema.items()
            if name not in let_be or (name == "additionalProperties" and isinstance(part, dict))
        }  # fmt: skip
    return [_lax(part, let_be) for part in schema] if isinstance(schema, list) else schema


def test_a_key_of_a_newer_version_is_let_be(report: dict[str, Any]) -> None:
    for at in places(report):
        if isinstance(at[-1], int):
            made = copy.deepcopy(report)
            inner: Any = made
            for step in at:
                inner = inner[step]
            if isinstance(inner, dict):
                inner["newer"] = 1
                assert conform.find_error(made, "report-1") == "", at


# --- every key of every document ---------------------------------------------------------------------


def ended_well(words: list[str], *about: object) -> str:
    """Run a command; it must end with a documented status. Returns its output if that is 2."""
    done = CliRunner().invoke(main, words)
    assert done.exception is None or isinstance(done.exception, SystemExit), (words, *about, done.exception)
    assert done.exit_code in (0, 1, 2, 3), (words, *about)
    return done.output.replace("\n", "") if done.exit_code == 2 else ""


def test_a_spoilt_report_is_read_or_refused_by_name(report: dict[str, Any], tmp_path: Path) -> None:
    """Diff and bundle raised KeyError and ValueError, and the page's template UndefinedError: exit status 1."""
    good, bad, made = tmp_path / "good.json", tmp_path / "bad.json", tmp_path / "x.tar.gz"
    good.write_text(json.dumps(report), "utf-8")
    for number, at in enumerate(places(report)):
        for value in (..., WRONG[number % len(WRONG)]):
            bad.write_text(json.dumps(spoilt(report, at, value)), "utf-8")
            for words in (["diff", str(bad), str(good)], ["bundle", str(bad), "-o", str(made), "--no-redact"]):
                message = ended_well(words, at, value)
                assert not message or "bad.json" in message, (at, value, message)
                made.unlink(missing_ok=True)
            if at[0] == "nodes":
                ended_well(["check", "--rerun", str(bad), "--deadline", "1", "--via", "openssh"], at, value)


def test_spoilt_evidence_is_read_or_refused(tmp_path: Path) -> None:
    document = dict(whole_node("hgx-h100-roce"))
    document["records"] = dict(list(document["records"].items())[:6])
    document |= {"origin": "made by hand", "pair": {"peer": "n2", "tests": ["path-mtu"]},
                 "no_answer": {"phase": "collect", "reason": "x"}}  # fmt: skip
    bad, made = tmp_path / "bad.json", tmp_path / "o.json"
    for number, at in enumerate(places(document)):
        for value in (..., WRONG[number % len(WRONG)], WRONG[(number + 3) % len(WRONG)]):
            bad.write_text(json.dumps(spoilt(document, at, value)), "utf-8")
            ended_well(["judge", str(bad), "--only", "gpu.count"], at, value)
            ended_well(["redact", str(bad), "-o", str(made)], at, value)
            made.unlink(missing_ok=True)


#: Values that SQLite may store in a column of any type.
COLUMNS = (b"\xff\x00", "text", 7, -1e300, "[1]", "{", "9" * 5000)


def test_a_spoilt_history_is_refused_by_name(tmp_path: Path) -> None:
    """There used to be a JSONDecodeError, status 1. Tests every column of every table with every SQLite type."""
    path = tmp_path / "whole.db"
    assert CliRunner().invoke(main, ["demo", "--history", str(path)]).exit_code == 1
    assert not ended_well(["history", "job", str(path), "7", "--seconds", "3", "--name", "x", "--nodes", "2"])
    with closing(sqlite3.connect(path)) as db:
        db.execute("INSERT INTO figure SELECT id, 'all_reduce', 'x', 1.0, 'GB/s' FROM run")
        db.commit()
        columns = [(table, column[1]) for table in ("run", "node", "finding", "sample", "figure", "job")
                   for column in db.execute(f"PRAGMA table_info({table})").fetchall()]  # fmt: skip
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    refused = 0
    for number, (table, column) in enumerate(columns):
        for value in dict.fromkeys((COLUMNS[0], COLUMNS[number % len(COLUMNS)])):
            bad = tmp_path / f"bad{number}.db"
            bad.write_bytes(path.read_bytes())
            bad.chmod(0o600)
            with closing(sqlite3.connect(bad)) as db, suppress(sqlite3.Error):
                db.execute(f"UPDATE OR IGNORE {table} SET {column} = ?", (value,))
                db.commit()
            runs = [["history", "runs"], ["history", "node"], ["history", "figures"], ["history", "jobs"]]
            if value == COLUMNS[0] and number % 3 == 0:
                runs.append(["demo", "--history"])
            for words in runs:
                more = ["gpu001"] if words[-1] == "node" else []
                message = ended_well([*words, str(bad), *more], table, column, value)
                refused += bool(message)
                assert not message or f"bad{number}.db" in message
    assert refused > 10


# --- places of former crashes -------------------------------------------------------------------------


def test_what_crashed_before(tmp_path: Path, report: dict[str, Any]) -> None:
    (tmp_path / "odd.json").write_text(json.dumps({**whole_node("hgx-h100-roce"), "node": "@sr:x"}), "utf-8")
    (tmp_path / "ipam.txt").write_bytes(b'"       "ipam": {}\xc2\x85    k8s.v1.cni.cncf.io/network-status: |-')
    runs = [["check", "--hosts", "a0-99990-99999999[1-20-999999]b[3-4]"], ["learn", "odd.json", "-o", "x.toml"],
            ["read", "ipam.txt"]]  # fmt: skip
    done = list(commands.run(runs, tmp_path, {"PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}))
    assert [one.status for one in done] == [2, 3, 3], [one.output for one in done]
    assert not [one.output for one in done if "itself failed" in one.output or "Traceback" in one.output]
    assert "these names cannot be written as a list of nodes" in done[1].output
