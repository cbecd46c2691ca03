"""Files are written atomically; special files such as /dev/null remain."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from preflight.archive import directory


def test_a_file_is_replaced_atomically(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("old", encoding="utf-8")
    before = path.stat().st_ino
    directory.write(path, ["ne", "w"])
    assert path.read_text(encoding="utf-8") == "new"
    assert path.stat().st_ino != before
    assert os.listdir(tmp_path) == ["report.json"]


def test_a_device_is_written_to_and_stays_a_device(tmp_path: Path) -> None:
    path = tmp_path / "null"
    path.symlink_to("/dev/null")
    directory.write(path, "text")
    assert path.is_char_device()
    assert os.listdir(tmp_path) == ["null"]


def test_an_open_stream_is_written_to_by_its_name() -> None:
    read, write = os.pipe()
    try:
        directory.write(Path(f"/dev/fd/{write}"), "text")
        assert os.read(read, 100) == b"text"
    finally:
        os.close(read)
        os.close(write)


def test_what_is_missing_is_no_stream(tmp_path: Path) -> None:
    assert not directory.is_stream(tmp_path / "missing")
    with pytest.raises(FileNotFoundError):
        directory.write(tmp_path / "missing" / "report.json", "text")
