"""The format ``dcgmi diag``: a table, or JSON with ``-j``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from preflight.parsers.nvidia.dcgmi import Diag, DiagTest, diag_begins, parse_diag
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import json_at
from preflight.textprep.lines import Lines

HINTS = ("Diagnostic", "diagnostic", "{")

#: The report's key in DCGM 2 and 3, and in DCGM 4.
_KEYS = ("DCGM GPU Diagnostic", "DCGM Diagnostic")
_OPENING = 3  # maximum lines from the opening brace to the key
_RESULTS = {"pass": "pass", "fail": "fail", "warn": "warn", "skip": "skip", "skipped": "skip"}


def begins(lines: Lines, at: int) -> bool:
    """Return whether a report of ``dcgmi diag`` begins at a line."""
    return diag_begins(lines, at) or _begins_json(lines, at)


def _begins_json(lines: Lines, at: int) -> bool:
    opening = lines[at : at + _OPENING]
    return lines[at].text.lstrip().startswith("{") and any(f'"{key}"' in line.text for line in opening for key in _KEYS)


def parse_lines(lines: Lines, at: int) -> Parsed[Diag]:
    """Read the report that begins at a line."""
    if not _begins_json(lines, at):
        return parse_diag(lines, at)
    parsed = json_at(lines, at)
    if parsed is None:
        return Parsed(Diag({}, ()), (ParseGap(lines[at].number, "the JSON is truncated"),), len(lines))
    end, value = parsed
    reports = [value.get(key) for key in _KEYS] if isinstance(value, dict) else []
    report = next((item for item in reports if isinstance(item, dict)), {})
    versions = {name: str(entry) for name, entry in report.items() if "ersion" in name and isinstance(entry, str)}
    tests = tuple(_tests(report, lines[at].number))
    gaps = () if tests else (ParseGap(lines[at].number, "the results of the tests are missing"),)
    return Parsed(Diag(versions, tests), gaps, end)


def _tests(report: dict[str, Any], line: int) -> Iterator[DiagTest]:
    for category in _dictionaries(report.get("test_categories")):
        for test in _dictionaries(category.get("tests")):
            results = list(_dictionaries(test.get("results")))
            words = [_RESULTS.get(str(item.get("status", "")).lower(), "") for item in results]
            result = next((word for word in ("fail", "warn", "pass", "skip") if word in words), "")
            if not result:
                continue
            bad = [
                item for item, word in zip(results, words, strict=True) if word == result and word in ("fail", "warn")
            ]
            gpus = ", ".join(str(item.get("gpu_id", item.get("entity_id", ""))) for item in bad)
            messages = tuple(text for item in bad for text in _messages(item))
            yield DiagTest(str(category.get("category", "")), str(test.get("name", "")), result, gpus, messages, line)


def _messages(item: dict[str, Any]) -> Iterator[str]:
    warnings = item.get("warnings")
    if isinstance(warnings, str):
        yield warnings
    for warning in _dictionaries(warnings):
        yield str(warning.get("warning", ""))


def _dictionaries(value: Any) -> Iterator[dict[str, Any]]:
    for entry in value if isinstance(value, list) else ():
        if isinstance(entry, dict):
            yield entry
