"""Short messages that are pasted every day: each leads to a check of its cause and the right next step.

Made by hand in the forms that the programs print; names and figures are invented.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from preflight.checks import registry
from preflight.recognition import exit_status, open_sources, read
from tests.support import paths

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TEXTS = tomllib.loads((paths.DATA / "everyday.toml").read_text(encoding="utf-8"))
CHECKS = {check.id for check in registry().checks}


@pytest.mark.parametrize("name", TEXTS)
def test_the_check_and_the_next_step(name: str, tmp_path: Path) -> None:
    entry = TEXTS[name]
    path = tmp_path / "pasted.txt"
    path.write_text(entry["text"], encoding="utf-8")
    parts = read(next(open_sources((str(path),))))
    failures = [finding for part in parts for finding in part.findings if finding["status"] == "fail"]
    first = next(finding for finding in failures if finding["check"] == entry["check"])
    assert first["check"] in CHECKS
    assert re.search(entry["next"], first["fix"]), first["fix"]
    assert exit_status([(name, parts)]) == 1


def test_all_nineteen_are_here() -> None:
    assert len(TEXTS) == 19
