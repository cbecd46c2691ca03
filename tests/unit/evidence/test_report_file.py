"""Reports are read part by part: what they hold, in memory that follows what differs in them."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.evidence import json_limits, report_file
from tests.robustness.test_decoding import VALUES
from tests.support import commands


def report(count: int, folder: Path) -> dict[str, Any]:
    """Return the report of the demo, with more nodes and most findings about all of them."""
    (done,) = commands.run([["demo", "--json", "demo.json"]], folder, {**os.environ, "HOME": str(folder)})
    made: dict[str, Any] = json.loads((folder / "demo.json").read_text(encoding="utf-8"))
    assert done.status in (0, 1)
    names = [f"gpu{number:05}" for number in range(count)]
    nodes = [{**made["nodes"][0], "name": name} for name in names]
    findings = [
        {**finding, "nodes": names} for finding in made["findings"] if "excerpts" not in finding and finding["nodes"]
    ]
    return {**made, "nodes": nodes, "findings": findings}


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=9), VALUES, max_size=5), st.sampled_from((None, 1)))
def test_what_is_read_is_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, value: Any, indent: int | None
) -> None:
    path = tmp_path_factory.getbasetemp() / "value.json"
    path.write_text(json.dumps(value, indent=indent), encoding="utf-8")
    read = report_file.read(path)
    assert json.dumps(read) == json.dumps(value)


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


def test_three_thousand_nodes_are_compared_and_packed(tmp_path: Path) -> None:
    """A comparison looked through all findings for each node, a bundle took 1.3 GB and 244 s for ten thousand."""
    (tmp_path / "r.json").write_text(json.dumps(report(3000, tmp_path), indent=1), encoding="utf-8")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    runs = [["diff", "r.json", "r.json"], ["bundle", "r.json", "-o", "b.tar.gz"]]
    for one in commands.run(runs, tmp_path, {**os.environ, "HOME": str(tmp_path)}):
        assert one.status == 0, one.output[-500:]
        assert one.mib < 150
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 60
