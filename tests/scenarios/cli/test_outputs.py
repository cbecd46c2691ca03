"""``-`` is standard output for every command that writes a file, and nothing else is printed there."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.machines import evidence, hgx_h100
from tests.support.machines.fleet import machines

NODES = [evidence(machine) for machine in machines(hgx_h100("h100"), 3, seed=5)]


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "preflight", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, timeout=120, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "evidence").mkdir()
    for one in NODES:
        (tmp_path / "evidence" / f"{one['node']}.json").write_text(json.dumps(one))
    return tmp_path


def starts(raw: bytes) -> bytes:
    return gzip.decompress(raw)[:0] + b"gzip" if raw[:2] == b"\x1f\x8b" else raw


@pytest.mark.parametrize(
    ("arguments", "begins"),
    [
        (("learn", "evidence"), b"# Learnt by `preflight learn` from 3 nodes"),
        (("redact", "evidence/gpu001.json", "-o", "-"), b"{"),
        (("bundle", "evidence", "-o", "-"), b"gzip"),
        (("bundle", "evidence", "--no-redact", "-o", "-"), b"gzip"),
        (("judge", "evidence", "--html", "-"), b"<!DOCTYPE html>"),
        (("judge", "evidence", "--junit", "-"), b"<?xml"),
        (("judge", "evidence", "--textfile", "-"), b"# HELP"),
        (("judge", "evidence", "--json", "-"), b"{"),
        (("collect", "-o", "-"), b"{"),
    ],
)
@pytest.mark.parametrize("there", [False, True])
def test_a_dash_is_standard_output(folder: Path, arguments: tuple[str, ...], begins: bytes, there: bool) -> None:
    if there:
        (folder / "-").write_text("a file of this name")
    before = sorted(folder.iterdir())
    done = run(folder, *arguments)
    assert starts(done.stdout).startswith(begins), done.stderr
    assert b"replaced:" not in done.stdout
    assert not done.stdout.startswith(b"-: ")
    assert b"\n-: " not in done.stdout
    if begins == b"{":
        json.loads(done.stdout)
    assert sorted(folder.iterdir()) == before
    assert not there or (folder / "-").read_text() == "a file of this name"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("redact", "evidence", "-o", "-"), b"takes one file"),
        (("redact", "evidence/gpu001.json", "-o", "x", "--map", "-"), b"--map -: the table of aliases is not printed"),
        (("bundle", "evidence", "-o", "x.tar.gz", "--map", "-"), b"--map -: the table of aliases is not printed"),
        (("judge", "evidence", "--json", "-", "--html", "-"), b"--json and --html: only one"),
    ],
)
def test_what_standard_output_cannot_take_is_refused(folder: Path, arguments: tuple[str, ...], words: bytes) -> None:
    done = run(folder, *arguments)
    assert (done.returncode, done.stdout) == (2, b"")
    assert words in done.stderr
    assert not (folder / "x").exists()
    assert not (folder / "-").exists()
