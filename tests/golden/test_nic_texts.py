"""`preflight read` on texts of NIC tools; facts and problems were written down first."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from preflight.checks import registry
from preflight.parsers.registry import NETWORK
from preflight.recognition import exit_status, open_sources, read
from preflight.recognition.detector import TextPart
from tests.support import paths

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TEXTS: dict[str, dict[str, Any]] = tomllib.loads((paths.DATA / "nic" / "texts.toml").read_text(encoding="utf-8"))
IDS = {check.id for check in registry().checks}


def parts(content: str, folder: Path) -> list[TextPart]:
    path = folder / "pasted.txt"
    path.write_text(content, encoding="utf-8")
    return read(next(open_sources((str(path),))))


def at(facts: Any, path: str) -> Any:
    for name in path.split("."):
        facts = facts[int(name)] if isinstance(facts, list) else facts[name]
    return facts


@pytest.mark.parametrize("name", TEXTS)
def test_facts_and_problems(name: str, tmp_path: Path) -> None:
    entry = TEXTS[name]
    result = parts(entry["text"], tmp_path)
    kinds = {part.kind for part in result}
    assert kinds == {entry["kind"]}
    for path, value in entry["facts"]:
        assert json.loads(value) == at(result[0].taken.facts, path), path
    findings = [finding for part in result for finding in part.findings]
    assert {finding["check"] for finding in findings} <= IDS, "explain knows every id that read prints"
    urgent = [finding for finding in findings if finding["status"] in ("fail", "warn", "unknown")]
    for check, *words in entry["problems"]:
        texts = [json.dumps(finding).lower() for finding in urgent if finding["check"] == check]
        assert any(all(word.lower() in text for word in words) for text in texts), (check, words, urgent)
    if not entry["problems"]:
        assert not [finding for finding in urgent if finding["status"] != "unknown"], "a false alarm"
    else:
        assert urgent or exit_status([(name, result)])


@pytest.mark.parametrize("name", TEXTS)
def test_every_part_of_a_text_can_be_cut(name: str, tmp_path: Path) -> None:
    """Half of a text raises no alarm that the complete text lacks, and changes no value."""
    entry = TEXTS[name]
    lines = entry["text"].split("\n")

    def alarms(result: list[TextPart]) -> set[str]:
        return {
            finding["check"] for part in result for finding in part.findings if finding["status"] in ("fail", "warn")
        }

    complete = alarms(parts(entry["text"], tmp_path))
    for cut in {len(lines) // 3, len(lines) // 2, 2 * len(lines) // 3}:
        content = "\n".join([*lines[:cut], lines[cut][: len(lines[cut]) // 2]])
        result = parts(content, tmp_path)
        true = {"rdma.port-state"} if all(part.taken.complete for part in result) else set[str]()
        assert alarms(result) <= complete | true, content[-300:]


def test_every_format_has_a_text_that_is_well_and_one_that_is_not() -> None:
    sick = {entry["kind"] for entry in TEXTS.values() if entry["problems"]}
    well = {entry["kind"] for entry in TEXTS.values() if not entry["problems"]}
    assert sick >= set(NETWORK)
    assert len([entry for entry in TEXTS.values() if not entry["problems"]]) * 4 >= len(TEXTS)
    assert well >= set(NETWORK) - {"ibdev2netdev", "ucx"}
