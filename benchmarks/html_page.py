"""The HTML page of a large fleet in a real browser: ``python -m benchmarks.html_page``.

A fleet made by hand (``tests/support/planted_fleet.py``) is judged, and its report is extended with copies of its
healthy nodes, on separate leaves of 32 nodes each. The benchmark measures the size of the page, the number of its
elements, the time to the first contentful paint, and the time from a keystroke in the search field to the next frame.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from preflight.archive.directory import load as load_evidence
from preflight.checks import registry
from preflight.expectations.cluster_file import load
from preflight.judge import judge
from preflight.reports.html_page import render
from tests.support import planted_fleet
from tests.support.browser import BROWSER, browser

#: Targets: bytes of the page, ms to the first paint, ms for a keystroke in the search field.
MOST_BYTES, MOST_PAINT_MS, MOST_FILTER_MS = 3_000_000, 1000, 100
NODES_OF_A_LEAF = 32
SEARCHES = ("gpu", "gpu1", "gpu[00100-09000]", "mtu", "no such thing", "")

_PAINT = """new Promise(resolve => {
    const timer = setInterval(() => {
        const [entry] = performance.getEntriesByName('first-contentful-paint');
        if (entry) { clearInterval(timer); resolve(entry.startTime); }
    }, 5);
})"""
_FILTER = """new Promise(resolve => {
    const field = document.getElementById('search');
    const before = performance.now();
    field.value = %s;
    field.dispatchEvent(new Event('input', {bubbles: true}));
    const script = performance.now() - before;
    requestAnimationFrame(() => setTimeout(() => resolve([script, performance.now() - before])));
})"""


def main() -> None:
    """Render and measure the page; return 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--report", type=Path, help="take this report instead of a planted fleet")
    parser.add_argument("--keep", type=Path, help="write the page here as well")
    options = parser.parse_args()
    if BROWSER is None:
        sys.exit("no Chromium: apt-get install chromium-headless-shell")
    with tempfile.TemporaryDirectory(prefix="html-page-", ignore_cleanup_errors=True) as folder:
        report = json.loads(options.report.read_bytes()) if options.report else planted(Path(folder))
        sys.exit(measure(grown(report, options.nodes), Path(folder), options.rounds, options.keep))


def planted(folder: Path) -> dict[str, Any]:
    """Return the report of 200 nodes with 25 planted differences."""
    planted_fleet.write(folder / "evidence", 200)
    (folder / "cluster.toml").write_text(planted_fleet.CLUSTER)
    run = {"at": "2026-01-01T00:00:00Z", "version": "0", "command": "judge", "seconds": 1.0, "cluster_file": None}
    evidences, _ = load_evidence([folder / "evidence"])
    return judge(evidences, registry().checks, load(folder / "cluster.toml")) | {"run": run}


def grown(report: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Return a report extended to this many nodes with copies of passing nodes."""
    nodes = list(report["nodes"])
    good = [node for node in nodes if node["status"] == "pass"]
    copies: dict[str, list[str]] = {}
    for number in range(len(nodes), count):
        source = good[number % len(good)]
        name = f"gpu{number + 1:05d}"
        copies.setdefault(source["name"], []).append(name)
        nodes.append(json.loads(json.dumps(source)) | {"name": name})
    for number, node in enumerate(nodes):
        for numa in (node.get("topology") or {}).get("numa", ()):
            for nic in (nic for switch in numa["switches"] for nic in switch["nics"] if nic.get("leaf")):
                nic["leaf"] = f"su{number // NODES_OF_A_LEAF + 1:03d}-{nic['name']}"
                nic["leaf_port"] = f"Ethernet{number % NODES_OF_A_LEAF + 1}"
    findings = [
        finding | {"nodes": [name for own in finding["nodes"] for name in (own, *copies.get(own, ()))]}
        if finding["status"] in ("pass", "skip") else finding
        for finding in report["findings"]
    ]  # fmt: skip
    coverage = dict(report["coverage"], nodes={"planned": count, "answered": count, "no_answer": 0})
    return dict(report, nodes=nodes, findings=findings, coverage=coverage)


def measure(report: Mapping[str, Any], folder: Path, rounds: int, copy: Path | None) -> int:
    """Print the figures of a page; return 1 if a target is missed."""
    began = time.process_time()
    page = render(report)
    rendered_s = time.process_time() - began
    path = folder / "report.html"
    path.write_text(page, encoding="utf-8")
    if copy:
        copy.write_text(page, encoding="utf-8")
    size = path.stat().st_size
    paints: list[float] = []
    filters: dict[str, list[tuple[float, float]]] = {text: [] for text in SEARCHES}
    with browser(folder / "profile") as tab:
        tab.screen(1280, 800)
        for _ in range(rounds):
            tab.open(path)
            paints.append(float(tab.run(_PAINT)))
            for text in SEARCHES:
                script, frame = tab.run(_FILTER % json.dumps(text))
                filters[text].append((script, frame))
        elements = int(tab.run("document.querySelectorAll('*').length"))
        errors = tab.errors()
    slowest = max(min(frame for _, frame in times) for times in filters.values())
    count = len(report["nodes"])
    print(f"{count} nodes: page {size / 1e6:.2f} MB, {elements} elements, rendered in {rendered_s:.2f} s CPU")
    print(f"first contentful paint: {min(paints):.0f} ms at best, {max(paints):.0f} at worst of {rounds}")
    for text, times in filters.items():
        scripts, frames = zip(*times, strict=True)
        print(f"filter {text!r}: script {min(scripts):.1f} ms, next frame {min(frames):.1f} to {max(frames):.1f} ms")
    for error in errors:
        print(f"console: {error}")
    missed = size > MOST_BYTES or min(paints) > MOST_PAINT_MS or slowest > MOST_FILTER_MS or errors
    return 1 if missed else 0


if __name__ == "__main__":
    main()
