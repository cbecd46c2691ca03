"""The commands as a user runs them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from preflight.cli.app import main
from tests.support.command_line import run
from tests.support.fixture import FIXTURES, whole_node

COMMANDS = [
    "check",
    "collect",
    "judge",
    "show",
    "demo",
    "pair",
    "redact",
    "bundle",
    "probes",
    "list",
    "explain",
    "checklist",
]


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_is_short_and_has_an_example(command: str) -> None:
    text = run(*([command] if command else []), "--help")
    most = {"check": 50, "": 49}.get(command, 41)  # one for each option; these two have groups
    assert len(text.splitlines()) <= most, f"{len(text.splitlines())} lines"
    assert max(map(len, text.splitlines())) <= 80
    assert f"preflight {command}".rstrip() in text.split("Usage:")[1].split("\n", 1)[1]


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("chek", "Did you mean 'check'?"), ("help explane", "Did you mean 'explain'?"), ("xyz", "`preflight help`"),
        ("demo --jsn", "'--json'"), ("check -o x", "--json F, --html F"), ("demo --output=x", "--json F, --html F"),
        ("-q demo", "preflight check -q"), ("show --md", "--format md"), ("judge x --yaml", "is valid YAML"),
        # no such option, and nothing in its place
        ("list -q", "option '-q'.\n"), ("diff -o x", "option '-o'.\n"), ("plan -o x", "option '-o'.\n"),
    ],
)  # fmt: skip
def test_words_of_other_programs_get_a_hint(words: str, hint: str) -> None:
    done = CliRunner().invoke(main, words.split())
    assert (done.exit_code, hint in done.stderr) == (2, True), done.stderr


def test_checklist_is_answered_by_saved_evidence() -> None:
    node = str(FIXTURES / "nodes" / "hgx-h100.json")
    items = {
        i["id"]: i
        for i in json.loads(run("checklist", node, "--cluster", str(FIXTURES / "nodes" / "hgx-h100.toml"), "--json"))
    }
    assert items["NT-FAB-1"]["status"] == "pass"
    assert items["FP-LOSS-2"]["status"] in ("skip", "unknown")
    assert items["NT-TRN-1"]["status"] == "unknown"
    assert items["NT-NCCL-1"]["status"] == "unknown"


USAGE_ERRORS = [
    (["judge", "no-such-dir"], "no such file"),
    (["judge"], "Missing argument"),
    (["explain", "rdma.port-rat"], "did you mean 'rdma.port-rate'"),
    (["check", "--only", "rdma.prot-rate"], "did you mean 'rdma.port-rate'"),
    (["check", "--only", "gpu.*", "--skip", "*"], "leave no check"),
    (["check", "--cluster", "no.toml"], "no.toml cannot be read"),
    (["check", "--json", "no/such/dir/x.json"], "no such directory"),
    (["check", "--html", "."], "is a directory"),
    (["check", "--deadline", "0"], "deadline"),
    (["check", "--log", "no.log"], "no.log cannot be read"),
    (["check", "--hosts", "gpu[1-"], "--hosts: "),
    (["check", "--hosts", "gpu[1-99999999]"], "--hosts: "),
    (["check", "--hosts", "-oProxyCommand=id"], "is not a host name"),
    (["check", "--hosts", "a", "--job", "7"], "use only one of"),
    (["check", "--hosts", ""], "names nothing"),  # an unset variable in a script is not "this node" or "all pods"
    (["check", "--via", "kubectl", "--pods", ""], "would select all pods"),
    (["check", "--hostfile", "no.hosts"], "no.hosts cannot be read"),
    (["check", "--rerun", "no.json"], "no.json cannot be read"),
    (["check", "--via", "telnet"], "telnet"),
]


@pytest.mark.parametrize(
    ("arguments", "expected"), USAGE_ERRORS, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_usage_errors_exit_2_and_touch_nothing(
    arguments: list[str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("preflight.transport.local.node.collect", lambda *a, **k: pytest.fail("a node was contacted"))
    assert expected in run(*arguments, expect=2)


def test_a_wrong_cluster_file_is_reported_before_anything_is_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("preflight.transport.local.node.collect", lambda *a, **k: pytest.fail("a node was contacted"))
    path = tmp_path / "cluster.toml"
    path.write_text("[class.a]\ngpuss = 8\n")
    assert f"{path}:2: class.a.gpuss: unknown key - did you mean gpus?" in run(
        "check", "--cluster", str(path), expect=2
    )


@pytest.mark.parametrize(
    "content", ["", "{", '{"schema": "x"}', "[]", "\x00", '{"schema": "preflight.evidence/1"}', "[" * 100_000]
)
def test_damaged_evidence_is_a_node_without_an_answer(tmp_path: Path, content: str) -> None:
    (tmp_path / "gpu001.json").write_text(content)
    good = dict(whole_node("hgx-h100"), node="gpu002")
    (tmp_path / "gpu002.json").write_text(json.dumps(good))
    document = json.loads(run("judge", str(tmp_path), "--json", "-", expect=3))
    assert document["nodes"][0]["name"] == "gpu001"
    assert document["nodes"][0]["no_answer"]["phase"] == "read"
    assert document["coverage"]["nodes"]["answered"] == 1


def test_two_documents_of_one_node_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(json.dumps(whole_node("hgx-h100")))
    assert "both describe node hgx-h100" in run("judge", str(tmp_path), expect=2)


def test_a_report_beside_the_evidence_is_not_evidence(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(whole_node("hgx-h100")))
    run("judge", str(tmp_path), "--json", str(tmp_path / "report.json"), expect=3)
    document = json.loads(run("judge", str(tmp_path), "--json", "-", expect=3))
    assert len(document["nodes"]) == 1


@pytest.mark.parametrize(
    "name", ["../../evil", "a/b", "<script>alert(1)</script>", "run", ".hidden", "x\x1b[31m\u202ey", "a" * 60]
)
def test_a_hostile_node_name_stays_in_its_directory_and_is_shown_as_text(tmp_path: Path, name: str) -> None:
    source = tmp_path / "in.json"
    source.write_text(json.dumps(dict(whole_node("hgx-h100"), node=name)))
    saved = tmp_path / "deep" / "kept"
    text = run("judge", str(source), "--save", str(saved), "--html", str(tmp_path / "p.html"), expect=3)
    assert [p.parent for p in saved.rglob("*.json")] == [saved]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["deep", "in.json", "p.html"]
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e]", text)
    assert "<script>alert" not in (tmp_path / "p.html").read_text()
    assert json.loads(run("judge", str(saved), "--json", "-", expect=3))["nodes"][0]["name"] == name


def test_switched_off_checks_are_named() -> None:
    document = json.loads(run("judge", str(FIXTURES / "nodes" / "hgx-h100.json"), "--skip", "rdma.*", "--json", "-"))
    assert "rdma.port-rate" in document["coverage"]["off"]


def test_an_interrupt_before_anything_was_judged_is_no_failed_check(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(**options: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("preflight.run.check.check", interrupted)
    run("check", expect=3)
