"""Reports are read part by part: their content, and memory that depends on their distinct parts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from preflight.evidence import json_limits, report_file


@pytest.mark.parametrize(
    "text", ["", " ", "{", '{"a"', '{"a":', '{"a":1', '{"a":[1', '{"a":[1,]}', '{"a":1}x', "{1:2}", '{"a":1,}', "nul"]
)
def test_half_a_report_is_an_error(text: str, tmp_path: Path) -> None:
    path = tmp_path / "half.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"\w"):
        report_file.read(path)


def test_values_that_do_not_fit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_file, "MOST", 1 << 20)
    path = tmp_path / "report.json"
    path.write_text(json.dumps({"nodes": [{"name": f"n{number}"} for number in range(9000)]}), encoding="utf-8")
    with pytest.raises(json_limits.DocumentTooLarge, match="more than 1 MiB"):
        report_file.read(path)
    path.write_text(json.dumps({"nodes": [{"name": "n"}] * 9000}), encoding="utf-8")
    assert len(report_file.read(path)["nodes"]) == 9000


def test_a_zero_keeps_its_sign(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    values = "[0.0, -0.0, 0, -1.5, 1, 1.0, true, false]"
    objects = ", ".join(f'{{"b": {{"c": {value}, "d": {values}}}}}' for value in ("0.0", "-0.0", "0", "1", "true"))
    path.write_text(f'{{"a": {values}, "nodes": [{objects}]}}', encoding="utf-8")
    assert json.dumps(report_file.read(path)) == path.read_text(encoding="utf-8")


def test_equal_objects_of_entries_are_one(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    checks = {f"c{number}": "pass" for number in range(9)}
    path.write_text(json.dumps({"nodes": [{"name": f"n{number}", "checks": checks} for number in range(9)]}), "utf-8")
    nodes = report_file.read(path)["nodes"]
    assert ([node["name"] for node in nodes][8], nodes[8]["checks"]) == ("n8", checks)
    assert len({id(node["checks"]) for node in nodes}) == 1


@pytest.mark.parametrize("sort_keys", [False, True])
def test_a_report_is_written_as_the_standard_library_writes_it(sort_keys: bool) -> None:
    shared = {"gpu.count": "pass", "a": '\ud800\n"é', "deep": {"z": [1, [2.5, None, True]], "b": [[], {}]}}
    report: dict[str, object] = {
        "run": {}, "nodes": [{"name": f"n{number}", "checks": shared, "more": [shared, ()]} for number in range(3)],
        "findings": [{"nodes": ["n1", "n2"], "checks": shared, "excerpts": [{"text": "x"}, {}]}], "none": None,
    }  # fmt: skip
    written = "".join(report_file.written(report, sort_keys))
    assert written == json.dumps(report, indent=1, sort_keys=sort_keys) + "\n"
