"""Cluster files with every kind of wrong value for each key: lint, judge and gate name file, line and fix."""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from preflight._startup.lightclass import fields
from preflight.cli.app import main
from preflight.expectations import fabric_table, gate_table, node_class, waivers
from preflight.gate import policy
from tests.support import commands
from tests.support.fixture import whole_node
from tests.support.paths import ROOT

#: Values as TOML writes them.
VALUES = {
    "boolean": "true", "text": '"x"', "no text": '""', "white space": '"  "', "null byte": '"a\\u0000b"',
    "escape": '"\\u001b[31mred"', "long text": f'"{"x" * 5000}"', "unit": '"400 Gb/s"', "negative": "-1",
    "zero": "0", "infinite": "inf", "not a number": "nan", "overflow": "1e400", "large": "9" * 30,
    "huge": "0x" + "f" * 5000, "list": "[]", "list of lists": "[[1]]", "list of tables": "[{}]", "mixed": '["a", 1]',
    "table": "{}", "table of a key": "{a = 1}", "date": "2026-12-31", "moment": "2026-12-31T00:00:00Z",
    "time": "07:32:00", "many names": '"n[1-99999999]"', "group": '"@no_such"', "wildcard": '"*"', "up": '"../.."',
    "directory": '"."', "pipe": '"pipe"', "device": '"/dev/zero"', "early day": "0001-01-01", "late day": "9999-12-31",
}  # fmt: skip

#: Required keys of tables.
BESIDE = {"waiver": {"check": '"gpu.count"', "owner": '"x"', "reason": '"x"', "until": "2026-12-31"},
          "class.a.checkpoint": {"path": '"/x"'}}  # fmt: skip


def _keys(path: str, cls: Any) -> Iterator[tuple[str, str]]:
    for field in fields(cls):
        if inner := field.metadata.get("table"):
            yield path, field.name
            yield from _keys(f"{path}.{field.name}", inner)
        elif field.metadata:
            yield path, field.name


def keys() -> Iterator[tuple[str, str]]:
    """Yield every valid key of a cluster file with its table."""
    yield from (("", name) for name in ("cluster", "class", "fabric", "gate", "checks", "waiver"))
    yield from (("cluster", "name"), ("class", "a"))
    yield from _keys("class.a", node_class.NodeClass)
    yield from _keys("fabric", fabric_table.FabricTable)
    yield from _keys("checks", waivers.Chosen)
    yield from _keys("waiver", waivers.Waiver)
    yield from _keys("gate", gate_table.Gate)
    yield from (("gate", hook) for hook in policy.HOOKS)
    yield from _keys("gate.slurm-prolog", gate_table.GateHook)  # the other hooks have the same keys


def text(table: str, key: str, value: str) -> tuple[str, int]:
    """Return a cluster file with a value, and its line."""
    head = f"[[{table}]]" if table == "waiver" else f"[{table}]" if table else ""
    rest = {name: literal for name, literal in BESIDE.get(table, {}).items() if name != key}
    lines = [
        "# a site",
        *([head] if head else []),
        f"{key} = {value}",
        *(f"{name} = {literal}" for name, literal in rest.items()),
    ]
    return "\n".join(lines) + "\n", lines.index(f"{key} = {value}") + 1


#: Form of an error line: file, line, key, fault, fix.
LINE = re.compile(r"c\.toml:\d+: .+ - .+")
NO_CLASS = "c.toml: the file describes no class of nodes - add a table [class.NAME] with gpus = 8"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "n.json").write_text(json.dumps(whole_node("hgx-h100-roce")))
    return tmp_path


KEYS = list(keys())


def test_each_key_with_each_wrong_value(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that lint calls valid can be judged; any other gives one line with its fix."""
    monkeypatch.chdir(folder)
    path, run, wrong, valid = folder / "c.toml", CliRunner(), [], 0
    for number, (table, key) in enumerate(KEYS):
        for kind, value in VALUES.items():
            made, line = text(table, key, value)
            path.write_text(made)
            done = run.invoke(main, ["lint", "c.toml"])
            at = f"[{table}] {key} = {kind}: {done.exit_code} {done.output[:300]!r}"
            if done.exit_code not in (0, 2) or (done.exception and not isinstance(done.exception, SystemExit)):
                wrong.append(f"{at} {done.exception!r}")
            elif done.exit_code == 0:
                valid += 1
                if (number + valid) % 16 == 0:
                    judged = run.invoke(main, ["judge", "n.json", "--cluster", "c.toml"])
                    if judged.exit_code not in (0, 1, 3):
                        wrong.append(f"judge: {at} {judged.exception!r}")
            else:
                errors = done.output.splitlines()
                errors[0] = errors[0].removeprefix("Error: ")
                if errors == [NO_CLASS]:  # a missing key has no line
                    continue
                located = any(f"c.toml:{line}: " in one for one in errors)
                if not located or not all(LINE.fullmatch(one) for one in errors):
                    wrong.append(at)
                elif not done.output.replace("\n", "").isprintable() or len(done.output) > 4000:
                    wrong.append(f"not fit to print: {at}")
    assert not wrong, f"{len(wrong)}\n" + "\n".join(wrong[:40])
    assert valid > 50


#: Files that are wrong in another way: their content, and the start of the expected message.
FILES = {
    "not UTF-8": (b"[class.a]\ngpus = 8 # \xff\n", "c.toml:2: not UTF-8 text"),
    "UTF-16": ("[class.a]\ngpus = 8\n".encode("utf-16"), "c.toml:1: not UTF-8 text"),
    "hexadecimal": (b"[class.a]\ngpus = 0x" + b"f" * 5000 + b"\n", "c.toml:2: class.a.gpus: has the value"),
    "a date": (
        b"[class.a]\ngpus = 2026-12-31\n",
        "c.toml:2: class.a.gpus: has the value 2026-12-31 - takes an integer",
    ),
    "a NUL": (b'[class.a]\nbaseline = "a\\u0000b"\n', "c.toml:2: class.a.baseline: has the value"),
    "cut": (b"[class.a]\ngpus =", "c.toml:2: gpus: "),
    "binary": (bytes(range(256)), "c.toml:"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_wrong_file_stops_every_command_that_reads_it(name: str, folder: Path) -> None:
    """The third and the fifth used to end with ``preflight itself failed: ValueError``."""
    raw, begins = FILES[name]
    (folder / "c.toml").write_bytes(raw)
    runs = [["lint", "c.toml"], ["judge", "n.json", "--cluster", "c.toml"], ["check", "--cluster", "c.toml"]]
    gates = [["gate", hook, "--cluster", "c.toml", "--state-dir", "state"] for hook in ("ci", "slurm-prolog")]
    for ran in commands.run(runs + gates, folder, {"PYTHONPATH": str(ROOT), "HOME": str(folder)}, 30):
        output = " ".join(ran.output.replace(f"{folder}/", "").split())
        assert begins in output, ran
        assert "Traceback" not in output
        assert "preflight itself failed" not in output
        hook = ran.words[1] if ran.words[0] == "gate" else ""
        assert ran.status == (policy.rule(hook, "error").exit if hook else 2), ran


#: Valid numbers of a key that a calculation may not expect.
EXTREMES = ("0", "1", "2", "0.001", "1000000", "0.5", "1e12", "true", "false")


def _accepted(wanted: dict[tuple[str, str], str], path: Path) -> str:
    """Write a cluster file with those values that lint accepts; return its text."""
    while True:
        tables: dict[str, list[str]] = {}
        for (table, key), value in wanted.items():
            tables.setdefault(table, []).append(f"{key} = {value}")
        lines: list[str] = ["[class.a]", 'nodes = "gpu[001-008]"', *tables.pop("class.a", ())]
        for table, entries in tables.items():
            lines += [f"[{table}]", *entries]
        path.write_text("\n".join(lines) + "\n")
        done = CliRunner().invoke(main, ["lint", str(path)])
        if done.exit_code == 0:
            return path.read_text()
        errors = re.findall(r"c\.toml:(\d+): ([\w.-]+):", done.output)
        bad, named = {lines[int(number) - 1] for number, _ in errors}, {name for _, name in errors}
        left = {(table, key): value for (table, key), value in wanted.items()
                if f"{key} = {value}" not in bad and table not in named}  # fmt: skip
        if len(left) == len(wanted):
            raise AssertionError(done.output)
        wanted = left


def test_no_check_crashes_where_each_key_has_an_extreme_value(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With gpus = 0, `scale.batch` divided by zero."""
    evidence = tmp_path / "evidence"
    assert CliRunner().invoke(main, ["demo", "--save", str(evidence)]).exit_code == 1
    tables = {table for table, _ in KEYS}
    numeric = [(table, key) for table, key in KEYS if f"{table}.{key}" not in tables
               and (table in ("class.a", "fabric") or table.startswith(("class.a.", "fabric.")))]  # fmt: skip
    chosen, judged = random.Random(20261128), 0
    sets = [dict.fromkeys(numeric, value) for value in EXTREMES]
    sets += [{place: chosen.choice(EXTREMES) for place in numeric if chosen.random() < 0.5} for _ in range(6)]
    for wanted in sets:
        text_ = _accepted(wanted, tmp_path / "c.toml")
        judged += text_.count(" = ")
        done = CliRunner().invoke(main, ["judge", str(evidence), "--cluster", str(tmp_path / "c.toml"), "-v"])
        assert done.exit_code in (0, 1, 3), (text_, done.output[-500:])
    assert judged > 200
    assert not {record.getMessage() for record in caplog.records if "crashed" in record.getMessage()}
