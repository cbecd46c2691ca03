"""Texts of real tools after redaction: every part is recognised and judged as before."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from preflight.recognition import open_sources, read
from preflight.redact import Redactor
from preflight.redact.files import InputFile, learn, write
from tests.support import paths

TEXTS = paths.DATA


_READ = sorted(
    path
    for path in TEXTS.rglob("*")
    if path.is_file() and path.suffix not in (".toml", ".c", ".h", ".pickle", ".gz", ".py")
)


@pytest.fixture(scope="module")
def redacted_together(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All texts after one run: a name learnt from one is replaced in all."""
    folder, redactor = tmp_path_factory.mktemp("together"), Redactor()
    found = [InputFile(path, path.relative_to(TEXTS)) for path in _READ]
    assert not learn(redactor, found)
    for item in found:
        write(redactor, item, folder / item.place)
    return folder


def test_every_text_is_compared() -> None:
    read_elsewhere = {".toml", ".c", ".pickle"}
    outside = {path for path in (TEXTS / "outside").rglob("*") if path.is_file()}
    assert {path.suffix for path in outside - set(_READ)} <= read_elsewhere
    assert len(_READ) > 400


@pytest.mark.parametrize("path", _READ, ids=lambda path: str(path.relative_to(TEXTS)))
def test_a_text_is_read_alike_after_a_run_over_all(path: Path, redacted_together: Path) -> None:
    assert verdicts(redacted_together / path.relative_to(TEXTS)) == verdicts(path)


@pytest.mark.parametrize("path", _READ, ids=lambda path: str(path.relative_to(TEXTS)))
def test_a_text_is_read_alike(path: Path, tmp_path: Path) -> None:
    """Format, position and the result of every check stay the same."""
    item, target, redactor = InputFile(path, Path(path.name)), tmp_path / path.name, Redactor()
    assert not learn(redactor, [item])
    write(redactor, item, target)
    assert verdicts(target) == verdicts(path)


@cache
def verdicts(path: Path) -> list[tuple[str, object]]:
    parts = read(next(open_sources((str(path),))))
    return [(part.kind, sorted((one["check"], one["status"]) for one in part.findings)) for part in parts]
