"""Locks of switches in a folder of each test, since other runs may read switches of the same names."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def locks_of_this_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("preflight.collect.switch_lock.FOLDER", tmp_path / "switch-locks")
