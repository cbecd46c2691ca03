"""Complete commands: the demo, a log judged with its node, every check explained."""

from __future__ import annotations

import json
from pathlib import Path

from preflight.checklist.items import KNOWN
from tests.support.command_line import SCHEMAS, run, schema, without_run
from tests.support.fixture import FIXTURES


def test_demo_shows_at_least_eight_different_faults_on_six_nodes(tmp_path: Path) -> None:
    saved = tmp_path / "kept"
    text = run(
        "demo", "--html", str(tmp_path / "d.html"), "--json", str(tmp_path / "d.json"), "--save", str(saved), expect=1
    )
    assert "made by hand" in text
    document = json.loads((tmp_path / "d.json").read_text())
    schema("report-1").validate(document)
    assert len(document["nodes"]) >= 6
    assert len({f["check"] for f in document["findings"] if f["status"] == "fail"}) >= 8
    assert any("made by hand" in origin for origin in document["origins"])
    again = run(
        "judge", str(saved), "--cluster", str(SCHEMAS.parent / "demo" / "cluster.toml"), "--json", "-", expect=1
    )
    assert without_run(again) == without_run((tmp_path / "d.json").read_text())
    for path in saved.glob("*.json"):
        schema("evidence-1").validate(json.loads(path.read_text()))


def test_list_explain_probes_checklist() -> None:
    checks = json.loads(run("list", "--json"))
    keys = {"id", "title", "scope", "gating", "source", "fix", "answers", "action", "impact", "owner", "fault"}
    assert all(set(c) == keys for c in checks)
    for c in checks:
        page = run("explain", c["id"])
        assert c["title"] in page
        assert c["fix"] in page
    items = json.loads(run("checklist", "--json"))
    assert {item["id"] for item in items} == KNOWN
    assert len(KNOWN) == 139
    assert {item["status"] for item in items} == {"unknown"}
    plan = json.loads(run("probes", "--json"))
    schema("plan-1").validate(plan)
    assert "sudoers" in run("probes")


def test_a_log_is_judged_and_saved_with_the_evidence(tmp_path: Path) -> None:
    log = SCHEMAS.parent / "demo" / "job.log"
    node = str(FIXTURES / "nodes" / "hgx-h100-roce.json")
    arguments = ("--cluster", str(FIXTURES / "nodes" / "hgx-h100-roce.toml"), "--json", "-")
    first = run("judge", node, "--log", str(log), "--save", str(tmp_path / "kept"), *arguments, expect=1)
    assert any(f["check"] == "nccl.transport" and f["status"] == "fail" for f in json.loads(first)["findings"])
    assert without_run(run("judge", str(tmp_path / "kept"), *arguments, expect=1)) == without_run(first)
