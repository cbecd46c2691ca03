"""Output of preflight for the demo and a fleet has no node name after `preflight redact`."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from preflight.diff.render import render as diff_text
from preflight.reports import html_page, junit, prometheus, text_report
from tests.support import paths
from tests.support.in_process import run

LOG = paths.ROOT / "preflight" / "demo" / "job.log"


#: Node names of real sites that a pattern would miss: each represents a series.
HOSTILE: tuple[Callable[[int], str], ...] = (
    lambda n: f"trainbox-{n}.ml.acme-corp.net",
    lambda n: f"rack-{n % 7}-unit-{n}",
    lambda n: f"{n:04d}zebra",
    lambda n: f"{n}f-dgx-{n:02d}",
    lambda n: f"gpu{n:03d}",
    lambda n: f"WOLF{n}",
    lambda n: f"wolf{n}-ib0.cluster.acme-corp.net",
    lambda n: f"ip-10-20-{n % 250}-{n * 7 % 250}",
    lambda n: "".join("bcdfghjklm"[int(digit)] + "aeiouaeiou"[int(digit)] for digit in f"{n:03d}") + "quux",
    lambda n: f"x{n}y{n % 3}z{n % 5}",
    lambda n: f"owl_{n}_a",
    lambda n: f"r{n % 9}kelp{n}-" + "very-long-name-of-a-node-" * 2 + "end",
)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of the commands for the demo."""
    folder = tmp_path_factory.mktemp("written")
    at, evidence, history = folder / "files", folder / "evidence", folder / "history.db"
    at.mkdir()
    demo = ["demo", "--html", f"{at}/report.html", "--junit", f"{at}/report.xml", "--textfile", f"{at}/report.prom"]
    (at / "report.txt").write_text(run(*demo, "--save", str(evidence), expect=(1,)))
    (at / "verbose.txt").write_text(run("demo", "-v", expect=(1,)))
    (at / "report.json").write_text(run("demo", "--json", "-", expect=(1,)))
    other = folder / "other"
    other.mkdir()
    for path in evidence.glob("*.json"):
        text = path.read_text()
        if path.name == "gpu003.json":
            continue
        (other / path.name).write_text(text.replace("ACTIVE", "DOWN") if path.name == "gpu001.json" else text)
    run("judge", str(evidence), "--log", str(LOG), "--history", str(history), expect=(1, 3))
    run("judge", str(other), "--history", str(history), expect=(1, 3))
    (at / "diff.txt").write_text(run("diff", str(evidence), str(other), expect=(0, 1, 3)))
    (at / "diff.json").write_text(run("diff", str(evidence), str(other), "--json", expect=(0, 1, 3)))
    (at / "node.txt").write_text(run("history", "node", str(history), "gpu005"))
    (at / "node.json").write_text(run("history", "node", str(history), "gpu005", "--json"))
    (at / "read.txt").write_text(run("read", str(LOG), expect=(0, 1)))
    (at / "read.json").write_text(run("read", "--json", str(LOG), expect=(0, 1)))
    (at / "learnt.txt").write_text(run("learn", str(evidence), "-o", f"{at}/learnt.toml"))
    (at / "lint.txt").write_text(run("lint", f"{at}/learnt.toml", str(evidence), expect=(0, 1, 2, 3)))
    (at / "checklist.txt").write_text(run("checklist", str(evidence), expect=(0, 1, 3)))
    (at / "run.json").write_text((evidence / "run.json").read_text())
    (at / "evidence.json").write_text((evidence / "gpu005.json").read_text())
    (at / "job.log").write_text(LOG.read_text())
    (at / "verdict.json").write_text(json.dumps({"schema": "preflight.verdict/1", "node": "gpu005", "reason": "x"}))
    (at / "gate.log").write_text("preflight: gpu005: FAIL: gpu.count: found 7 [node] (slurm-prolog; judged in 0.4 s)\n")
    return at


_FILES = ("report.html", "report.xml", "report.prom", "report.txt", "verbose.txt", "report.json", "diff.txt",
          "diff.json", "node.txt", "node.json", "read.txt", "read.json", "learnt.toml", "learnt.txt", "lint.txt",
          "checklist.txt", "run.json", "evidence.json",
          "job.log", "verdict.json", "gate.log")  # fmt: skip


@pytest.mark.parametrize("name", _FILES)
def test_a_file_of_the_demo_names_no_node(name: str, written: Path, tmp_path: Path) -> None:
    text = (written / name).read_text()
    run("redact", str(written / name), "-o", str(tmp_path / name), expect=(0, 3))
    left = (tmp_path / name).read_text()
    assert not re.findall(r"(?i).{0,40}\bgpu0\d\d.{0,20}", left)
    assert not re.findall(r"(?i).{0,40}\bgpu\[0.{0,20}", left)
    for address in set(re.findall(r"(?<![\d.])(?:10|172)\.\d+\.\d+\.\d+(?![\d.])", text)):
        assert address not in left
    for serial in set(re.findall(r"\b[0-9a-f]{4}:[0-9a-f]{4}:[0-9a-f]{4}:[0-9a-f]{4}\b", text)):
        assert serial not in left or not serial.strip("0:") or serial.startswith("fe80")


def hostile_names(count: int) -> list[str]:
    return list(dict.fromkeys(HOSTILE[n % len(HOSTILE)](n // len(HOSTILE) + 11) for n in range(count)))


@pytest.fixture(scope="module")
def report() -> Mapping[str, Any]:
    """The demo's report as that of a fleet of 300 nodes with names that are hard to recognise."""
    one = json.loads(run("demo", "--json", "-", expect=(1,)))
    names = hostile_names(300)
    old = [node["name"] for node in one["nodes"]]
    instead = {name: names[place :: len(old)] for place, name in enumerate(old)}
    made: dict[str, Any] = copy.deepcopy(one)
    made["nodes"] = [
        _renamed(node, {**{o: n[0] for o, n in instead.items()}, node["name"]: name})
        for node in one["nodes"]
        for name in instead[node["name"]]
    ]
    for finding in made["findings"]:
        finding.update(_renamed(finding, {o: n[0] for o, n in instead.items()}))
        first = {n[0]: n for n in instead.values()}
        finding["nodes"] = [name for node in finding["nodes"] for name in first.get(node, [node])]
    made["coverage"]["nodes"] = {"planned": 300, "answered": 262, "no_answer": 38}
    return made


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    text = json.dumps(value)
    return json.loads(re.sub("|".join(map(re.escape, names)), lambda match: names[match[0]], text))


RENDERED: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "report.txt": text_report.render,
    "narrow.txt": lambda report: text_report.render(report, width=80),
    "verbose.txt": lambda report: text_report.render(report, verbose=True),
    "coloured.txt": lambda report: text_report.render(report, colour=True),
    "report.html": html_page.render,
    "report.xml": junit.render,
    "report.prom": prometheus.render,
    "report.json": lambda report: json.dumps(report),
    "lines.json": lambda report: json.dumps(report, indent=1, sort_keys=True),
    "diff.txt": lambda report: diff_text(difference(report)),
    "diff.json": lambda report: json.dumps(difference(report)),
}


def difference(report: Mapping[str, Any]) -> dict[str, Any]:
    names = [node["name"] for node in report["nodes"]]
    side = {"path": "runs/a", "at": "2026-11-21T03:00:00Z"}
    finding = {
        "change": "new",
        "check": "gpu.count",
        "subject": "",
        "before": None,
        "after": "fail",
        "message": "x",
        "was": None,
        "now": "x",
    }
    return {
        "schema": "preflight.diff/1", "exit_status": 1, "before": side, "after": side, "values_compared": True,
        "nodes": {"both": 200, "fell_silent": names[:40], "answer_again": names[40:50], "came": names[50:60],
                  "went": names[60:80], "came_silent": names[80:85], "silent_in_both": names[85:90]},
        "findings": [{**finding, "nodes": names[90:150]}, {**finding, "change": "gone", "nodes": names[150:200]}],
        "incidents": [
            {"change": how, "fingerprint": "0123456789ab", "title": "x", "was": "", "nodes": names[at : at + 9]}
            for at, how in enumerate(("new", "worse", "changed", "first judged", "unclear", "gone"))
        ],
        "not_judged_again": [{"nodes": names[50:70], "check": "gpu.count"}],
        "values": [{"nodes": names[200:], "what": "driver", "before": "570.1", "after": "570.2"}],
    }  # fmt: skip


@pytest.mark.parametrize("name", RENDERED)
def test_a_fleet_with_hostile_names(name: str, report: Mapping[str, Any], tmp_path: Path) -> None:
    source, target = tmp_path / name, tmp_path / f"redacted-{name}"
    source.write_text(RENDERED[name](report))
    run("redact", str(source), "-o", str(target))
    left = target.read_text()
    assert not list(leaks(left, [node["name"] for node in report["nodes"]]))
    if name.endswith(".json"):
        assert len(left.splitlines()) == len(source.read_text().splitlines())


def leaks(text: str, names: list[str]) -> Iterator[str]:
    """Yield the names in a text: complete, truncated to their start, folded or cut at a line end."""
    lower = text.lower()
    joined = re.sub(r"\s+", "", lower)
    for name in names:
        if name.lower() in lower or name.lower() in joined:
            yield name
    for word in ("trainbox", "acme", "zebra", "wolf", "quux", "kelp", "owl_", "-dgx-", "very-long", "rack-"):
        if word in lower:
            yield f"{word}: {lower[max(0, lower.index(word) - 60) : lower.index(word) + 40]}"
