"""Sets of node tools' output; facts and problems of each set were written down before it was first read.

First readings, named problems and facts: `tests/data/tools/README.md`. All texts are made by hand in the forms that the
tools print; names and figures are invented.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from preflight.checks import registry
from preflight.parsers.registry import TOOLS
from preflight.recognition import exit_status, open_sources, read
from preflight.recognition.detector import TextPart
from tests.support import paths

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = paths.DATA / "tools"
TEXTS: dict[str, dict[str, Any]] = {
    f"{path.stem}-{name}": entry
    for path in sorted(FOLDER.glob("*.toml"))
    for name, entry in tomllib.loads(path.read_text(encoding="utf-8")).items()
}
IDS = {check.id for check in registry().checks}


def parts(content: str, folder: Path) -> list[TextPart]:
    path = folder / "pasted.txt"
    path.write_text(content, encoding="utf-8")
    return read(next(open_sources((str(path),))))


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values in facts, with lists as values, by path."""
    if isinstance(value, dict):
        for name, below in value.items():
            yield from leaves(below, f"{path}.{name}")
        return
    yield path, value
    for at, below in enumerate(value) if isinstance(value, list) else ():
        yield from leaves(below, f"{path}.{at}")


@pytest.mark.parametrize("name", TEXTS)
def test_facts_and_problems(name: str, tmp_path: Path) -> None:
    entry = TEXTS[name]
    result = parts(entry["text"], tmp_path)
    assert [part.kind for part in result] == entry["kinds"]
    shown = [leaf for part in result for leaf in leaves(part.taken.facts)]
    for path, value in entry.get("facts", ()):
        expected = json.loads(value)
        assert any(re.search(path, where, re.I) and value == expected for where, value in shown), (
            path,
            expected,
            shown,
        )
    findings = [finding for part in result for finding in part.findings]
    assert {finding["check"] for finding in findings} <= IDS, "explain knows every id that read prints"
    urgent = [finding for finding in findings if finding["status"] in ("fail", "warn", "unknown")]
    texts = [" ".join(str(item[key] or "") for key in ("check", "subject", "message", "found")) for item in urgent]
    for problem in entry.get("problems", ()):
        assert any(re.search(problem, text, re.I | re.S) for text in texts), (problem, texts)
    if entry.get("problems"):
        assert exit_status([(name, result)]) or any(finding["status"] == "warn" for finding in urgent)
    else:
        assert not [finding for finding in urgent if finding["status"] in ("fail", "warn")], "a false alarm"
    assert exit_status([(name, result)]) == entry.get("status", exit_status([(name, result)]))


@pytest.mark.parametrize("name", TEXTS)
def test_half_of_a_text_raises_no_other_alarm(name: str, tmp_path: Path) -> None:
    """Cut anywhere, a text has no failure or warning that the complete text lacks, and no traceback."""
    lines = TEXTS[name]["text"].split("\n")

    def alarms(result: list[TextPart]) -> set[str]:
        return {item["check"] for part in result for item in part.findings if item["status"] in ("fail", "warn")}

    complete = alarms(parts(TEXTS[name]["text"], tmp_path))
    for cut in {len(lines) // 3, len(lines) // 2, 2 * len(lines) // 3}:
        content = "\n".join([*lines[:cut], lines[cut][: len(lines[cut]) // 2]])
        result = parts(content, tmp_path)
        allowed = set[str]() if any(part.taken.complete for part in result) else {"rdma.port-state"}
        assert alarms(result) <= complete | allowed | set(TEXTS[name].get("cut", ())), content[-300:]


def test_a_quarter_is_healthy_and_every_tool_has_a_text() -> None:
    healthy = [name for name, entry in TEXTS.items() if not entry.get("problems")]
    assert 4 * len(healthy) >= len(TEXTS)
    assert {kind for entry in TEXTS.values() for kind in entry["kinds"]} >= set(TOOLS)
