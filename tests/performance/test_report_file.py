"""A report of thousands of nodes is compared and packed in bounded time and memory."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path
from typing import Any

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


def test_three_thousand_nodes_are_compared_and_packed(tmp_path: Path) -> None:
    """A comparison searched all findings for each node; a bundle took 1.3 GB and 244 s for ten thousand nodes."""
    (tmp_path / "r.json").write_text(json.dumps(report(3000, tmp_path), indent=1), encoding="utf-8")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    runs = [["diff", "r.json", "r.json"], ["bundle", "r.json", "-o", "b.tar.gz"]]
    for one in commands.run(runs, tmp_path, {**os.environ, "HOME": str(tmp_path)}):
        assert one.status == 0, one.output[-500:]
        assert one.mib < 150
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 60
