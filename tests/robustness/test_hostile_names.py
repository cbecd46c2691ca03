"""Entries with hostile names in globbed directories: each is a name, and never a pattern."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from preflight.collector import paths
from preflight.evidence.document import Evidence
from tests.integration.local.test_collector import collect, probe_entry

HOSTILE = (
    b"*", b"**", b"[", b"[a]", b"?", b"{a,b}", b"a\nb", b"\xff\xfe", b"-rf", b" ", b"%s", b"{}", b"x" * 255,
)  # fmt: skip


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    for name in (*HOSTILE, b"eth0"):
        inside = os.path.join(os.fsencode(tmp_path), name)
        os.makedirs(os.path.join(inside, b"ports", b"*"))
        Path(os.fsdecode(inside), "mtu").write_text("9000\n")
        Path(os.fsdecode(inside), "ports", "*", "state").write_text("up\n")
    return tmp_path


def test_a_star_as_a_name_ends(folder: Path) -> None:
    matched = list(paths.matches(f"{folder}/*/mtu"))
    assert len(matched) == len(HOSTILE) + 1
    assert f"{folder}/*/mtu" in matched
    assert [path for path in paths.matches(f"{folder}/*/ports/*/state") if path.startswith(f"{folder}/eth0/")] == [
        f"{folder}/eth0/ports/*/state"
    ]


def test_each_entry_has_a_record_of_its_own(folder: Path) -> None:
    probes = (probe_entry("file", f"{folder}/*/mtu"), probe_entry("dir", f"{folder}/*/ports"),
              probe_entry("files", f"{folder}/*/ports/*"))  # fmt: skip
    records = collect(*probes)["records"]
    for probe, least in zip(probes, (len(HOSTILE) + 1,) * 3, strict=True):
        assert records[probe["key"]]["status"] == "ok"
        assert records[probe["key"]]["value"]["matches"] == least
    evidence = Evidence("n", "", records)
    assert evidence.text(f"file:{folder}/\\x2a/mtu") == "9000\n"
    read = list(evidence.keys(f"file:{folder}/*/mtu"))
    assert f"file:{folder}/eth0/mtu" in read
    assert all(evidence.text(key) == "9000\n" for key in read)
    assert len(read) == len(HOSTILE) + 1


def test_a_command_is_run_for_each_harmless_name_only(folder: Path) -> None:
    probe = {"key": "cmd:echo {}", "kind": "cmd", "target": "echo {}", "argv": ["echo", "{}"], "timeout_s": 5,
             "each": [f"{folder}/*"]}  # fmt: skip
    records = collect(probe)["records"]
    for name in ("-rf", "a\nb"):
        assert "not collected" in records[f"cmd:echo {name}"]["why"]
    assert records["cmd:echo \\x2a"]["out"] == "*\n"
    assert records["cmd:echo eth0"]["out"] == "eth0\n"


def test_a_listed_directory_keeps_every_name(folder: Path) -> None:
    record = collect(probe_entry("dir", str(folder)))["records"][f"dir:{folder}"]
    assert record["status"] == "ok"
    assert {"*", "[", "?", "a\nb", "\\xff\\xfe", "x" * 255} <= set(record["entries"])
