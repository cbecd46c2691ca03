"""Re-made texts of kinds that people paste; their facts and problems were written down before the first reading.

At the first reading, 54 of 70 facts and 50 of 55 problems were found, with three false ones: frames of tables were
removed as if a page had added them, and the state before a container's restart was not read. Both were corrected, and a
quiet kernel log is now judged.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from preflight.checks import registry
from preflight.recognition import exit_status, open_sources, read
from preflight.recognition.detector import TextPart
from tests.support import paths

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = paths.DATA / "fresh"
INDEX: dict[str, dict[str, Any]] = tomllib.loads((FOLDER / "index.toml").read_text(encoding="utf-8"))


def parts(name: str) -> list[TextPart]:
    return read(next(open_sources((str(FOLDER / name),))))


def checks(recognised: list[TextPart], *statuses: str) -> set[str]:
    return {finding["check"] for part in recognised for finding in part.findings if finding["status"] in statuses}


def at(facts: Any, path: str) -> Any:
    for name in path.split("."):
        facts = facts[int(name)] if isinstance(facts, list) else facts[name]
    return facts


@pytest.mark.parametrize("name", INDEX)
def test_what_a_person_reads_in_it(name: str) -> None:
    entry, recognised = INDEX[name], parts(name)
    assert entry["text"] == "re-made"
    assert [part.kind for part in recognised] == [entry["kind"], *entry.get("others", ())]
    for path, value in entry.get("facts", ()):
        assert at(recognised[0].taken.facts, path) == json.loads(value), path
    assert checks(recognised, "fail", "warn") == set(entry["bad"])
    assert checks(recognised, "unknown") == set(entry.get("unknown", ()))
    assert (exit_status([(name, recognised)]) == 0) == (entry["healthy"] or not checks(recognised, "fail", "unknown"))


@pytest.mark.parametrize("name", INDEX)
def test_every_finding_has_the_id_of_a_check(name: str) -> None:
    ids = {check.id for check in registry().checks}
    assert {finding["check"] for part in parts(name) for finding in part.findings} <= ids


def test_a_quarter_is_healthy() -> None:
    healthy = sum(entry["healthy"] for entry in INDEX.values())
    assert len(INDEX) >= 50
    assert 4 * healthy >= len(INDEX)
