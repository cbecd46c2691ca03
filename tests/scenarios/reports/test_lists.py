"""Checks listed as passed did pass wherever they apply, in text, page, JSON, JUnit and metrics."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from preflight.archive.directory import load
from preflight.archive.directory import logs as read_logs
from preflight.checks import registry
from preflight.expectations.cluster_file import load as load_cluster
from preflight.judge import judge
from preflight.reports import html_page, junit, page_cards, prometheus, text_report

DEMO = Path(str(files("preflight.demo")))


@cache
def demo() -> dict[str, Any]:
    nodes, _ = load(sorted(DEMO.glob("gpu*.json")))
    run = read_logs([DEMO / "job.log"], 1 << 20)
    report = judge(nodes, registry().checks, load_cluster(DEMO / "cluster.toml"), run=run)
    report["run"] = {"at": "2026-11-22T00:00:00Z", "version": "1", "command": "demo", "seconds": 1.0,
                     "cluster_file": "cluster.toml"}  # fmt: skip
    return report


def statuses(report: dict[str, Any]) -> dict[str, Counter[str]]:
    """Return the count of each status by check: nodes, or findings for a run or a sweep."""
    found: dict[str, Counter[str]] = {}
    for node in report["nodes"]:
        for check, status in node["checks"].items():
            found.setdefault(check, Counter())[status] += 1
    for finding in report["findings"]:
        if any(name.startswith("@") for name in finding["nodes"]):
            found.setdefault(finding["check"], Counter())[finding["status"]] += 1
    return found


def listed(text: str, title: str) -> set[str]:
    """Return the ids of checks in a paragraph of the text report."""
    found = re.search(rf"^{re.escape(title)}: (.*?)\n\n", text, re.MULTILINE | re.DOTALL)
    return set(re.findall(r"[a-z0-9-]+\.[a-z0-9-]+", found[1])) if found else set()


def test_a_check_that_failed_anywhere_is_not_listed_as_passed() -> None:
    report = demo()
    counted = statuses(report)
    text = text_report.render(report, width=4000)
    passed, partly = listed(text, "Passed"), listed(text, "Passed on some nodes only")
    left = {finding["check"] for finding in report["findings"] if finding.get("reported_by")}
    assert passed == {c for c, all_of in counted.items() if set(all_of) <= {"pass", "skip"} and all_of["pass"]} - left
    assert partly == {c for c, all_of in counted.items() if all_of["pass"]} - passed
    page = page_cards.quiet(report, "pass")
    assert {card.check for card in page if not card.share} == passed
    assert {card.check for card in page if card.share} == partly
    for card in page:
        if card.share:
            assert f"passed on {card.share} nodes" in html_page.render(report)
            assert f"{card.check} ({card.share})" in text


def test_all_formats_count_alike() -> None:
    report = demo()
    of_nodes = Counter(status for node in report["nodes"] for status in node["checks"].values())
    suites = ElementTree.fromstring(junit.render(report))
    cases = [case for case in suites.iter("testcase") if not case.attrib["name"].startswith("@")]
    tags = Counter(child.tag for case in cases for child in case)
    silent = sum("no_answer" in node for node in report["nodes"])
    assert tags["failure"] == of_nodes["fail"]
    assert tags["error"] == of_nodes["unknown"] + silent
    assert tags["skipped"] == of_nodes["skip"]
    metrics = prometheus.render(report)
    counted = Counter[str]()
    for status, number in re.findall(
        r'^preflight_check_nodes\{[^}]*status="(\w+)"[^}]*\} (\d+)', metrics, re.MULTILINE
    ):
        counted[status] += int(number)
    assert counted == of_nodes


def test_checks_that_were_switched_off_are_counted_in_one_line() -> None:
    off = [f"made.number-{n}" for n in range(150)]
    report = {**demo(), "coverage": {**demo()["coverage"], "off": off, "off_in_class": {"login": off}}}
    output = " ".join(text_report.render(report).split())
    assert (
        "; not run (--only, --skip or the cluster file): 150 checks (-v lists them); off in class login: 150 checks;"
        in output
    )
    assert "made.number-" not in output
    assert text_report.render(report, verbose=True).count("made.number-149") == 2
    few = text_report.render({**report, "coverage": {**report["coverage"], "off": off[:2]}})
    assert "cluster file): made.number-0, made.number-1; " in " ".join(few.split())
