"""The commands, run as a user runs them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from preflight.checklist.items import KNOWN
from preflight.cli.app import main
from tests.support import paths
from tests.support.fixture import FIXTURES, whole_node
from tests.support.stopwatch import Stopwatch

SCHEMAS = paths.ROOT / "preflight" / "schemas"
COMMANDS = ["check", "collect", "judge", "demo", "pair", "redact", "bundle", "probes", "list", "explain", "checklist"]


def schema(name: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads((SCHEMAS / f"{name}.json").read_text()))


def run(*arguments: str, expect: int | None = 0) -> str:
    result = CliRunner().invoke(main, list(arguments))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    if expect is not None:
        assert result.exit_code == expect, result.output
    return result.output


def process(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "preflight", *arguments], capture_output=True, text=True, timeout=60, **options
    )


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_a_screen_and_has_an_example(command: str) -> None:
    text = run(*([command] if command else []), "--help")
    most = 24 if command else 34  # the list of commands is longer than an old screen
    assert len(text.splitlines()) <= most, f"{len(text.splitlines())} lines"
    assert max(map(len, text.splitlines())) <= 80
    assert f"preflight {command}".rstrip() in text.split("Usage:")[1].split("\n", 1)[1]


def test_check_on_this_machine(tmp_path: Path) -> None:
    page, saved, report = tmp_path / "r.html", tmp_path / "evidence", tmp_path / "r.json"
    watch = Stopwatch()
    done = process("check", "--json", str(report), "--html", str(page), "--save", str(saved))
    assert watch.seconds < 20
    assert not done.stderr
    document = json.loads(report.read_text())
    schema("report-1").validate(document)
    assert done.returncode == document["exit_status"]
    assert page.read_text().startswith("<!DOCTYPE html>")
    (evidence,) = saved.glob("*.json")
    assert evidence.stem == document["nodes"][0]["name"] == os.uname().nodename
    schema("evidence-1").validate(json.loads(evidence.read_text()))


def test_a_cluster_file_that_expects_gpus_and_hcas_fails_here(tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.toml"
    cluster.write_text("[class.h100]\ngpus = 8\nhcas = 8\n")
    if Path("/sys/class/infiniband").exists() or Path("/proc/driver/nvidia").exists():
        pytest.skip("this machine has a GPU or an HCA")
    done = process("check", "--cluster", str(cluster))
    assert done.returncode == 1
    assert "GPUs on the PCI bus: found 0, expected 8" in done.stdout
    assert "HCAs of the compute fabric: found 0, expected 8" in done.stdout


def without_run(text: str) -> str:
    document = json.loads(text)
    document.pop("run")
    return json.dumps(document)


def test_saved_evidence_is_judged_the_same_later(tmp_path: Path) -> None:
    saved = tmp_path / "evidence"
    first = process("check", "--json", "-", "--save", str(saved))
    later = process("judge", str(saved), "--json", "-")
    assert without_run(first.stdout) == without_run(later.stdout)
    assert first.returncode == later.returncode


def test_collect_then_judge(tmp_path: Path) -> None:
    node = tmp_path / "node.json"
    run("collect", "-o", str(node))
    schema("evidence-1").validate(json.loads(node.read_text()))
    assert json.loads(process("collect").stdout)["records"].keys() == json.loads(node.read_text())["records"].keys()
    run("judge", str(node), expect=None)


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
    assert all(set(c) == {"id", "title", "scope", "gating", "source", "fix", "answers", "action"} for c in checks)
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
    (["judge", "no-such-dir"], "there is no such file"),
    (["judge"], "Missing argument"),
    (["explain", "rdma.port-rat"], "did you mean 'rdma.port-rate'"),
    (["check", "--only", "rdma.prot-rate"], "did you mean 'rdma.port-rate'"),
    (["check", "--only", "gpu.*", "--skip", "*"], "leave no check"),
    (["check", "--cluster", "no.toml"], "no.toml: cannot be read"),
    (["check", "--json", "no/such/dir/x.json"], "there is no directory"),
    (["check", "--html", "."], "is a directory"),
    (["check", "--deadline", "0"], "deadline"),
    (["check", "--log", "no.log"], "no.log: cannot be read"),
    (["check", "--hosts", "gpu[1-"], "--hosts: "),
    (["check", "--hosts", "gpu[1-99999999]"], "--hosts: "),
    (["check", "--hosts", "-oProxyCommand=id"], "is not a host name"),
    (["check", "--hosts", "a", "--job", "7"], "give exactly one"),
    (["check", "--hosts", ""], "names nothing"),  # an unset variable of a script is not "this node", nor "all pods"
    (["check", "--via", "kubectl", "--pods", ""], "would mean all pods"),
    (["check", "--hostfile", "no.hosts"], "no.hosts: cannot be read"),
    (["check", "--rerun", "no.json"], "no.json: cannot be read"),
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


def test_a_log_is_judged_and_saved_with_the_evidence(tmp_path: Path) -> None:
    log = SCHEMAS.parent / "demo" / "job.log"
    node = str(FIXTURES / "nodes" / "hgx-h100-roce.json")
    arguments = ("--cluster", str(FIXTURES / "nodes" / "hgx-h100-roce.toml"), "--json", "-")
    first = run("judge", node, "--log", str(log), "--save", str(tmp_path / "kept"), *arguments, expect=1)
    assert any(f["check"] == "nccl.transport" and f["status"] == "fail" for f in json.loads(first)["findings"])
    assert without_run(run("judge", str(tmp_path / "kept"), *arguments, expect=1)) == without_run(first)


def test_switched_off_checks_are_named() -> None:
    document = json.loads(run("judge", str(FIXTURES / "nodes" / "hgx-h100.json"), "--skip", "rdma.*", "--json", "-"))
    assert "rdma.port-rate" in document["coverage"]["off"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_gives_a_report_with_unknown_results(tmp_path: Path, number: int) -> None:
    slow = tmp_path / "chronyc"
    slow.write_text("#!/bin/sh\nexec sleep 3117\n")
    slow.chmod(0o755)
    environment = dict(os.environ, PATH=f"{tmp_path}:{os.environ['PATH']}")
    running = subprocess.Popen(
        [sys.executable, "-m", "preflight", "check"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    for _ in range(1200):
        if any("3117" in line for line in _commands()):
            break
        time.sleep(0.05)
    running.send_signal(number)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 3, err
    assert "interrupted" in out
    for _ in range(1200):
        left = [line for line in _commands() if "3117" in line]
        if not left:
            break
        time.sleep(0.05)
    assert not left


def test_a_screen_that_takes_nothing_loses_neither_the_verdict_nor_the_files(tmp_path: Path) -> None:
    for words, status in ((["demo", "--json", f"{tmp_path}/r.json"], 1), (["list"], 3)):
        with Path("/dev/full").open("w", encoding="utf-8") as full:
            command = [sys.executable, "-m", "preflight", *words]
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert (done.returncode, "Traceback" in done.stderr) == (status, False)
        assert "standard output could not be written: No space left on device" in done.stderr
    assert json.loads((tmp_path / "r.json").read_text())["exit_status"] == 1


def _commands() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_text())
        except OSError:
            continue
    return found


def test_a_hanging_tool_does_not_hold_the_run(tmp_path: Path) -> None:
    slow = tmp_path / "chronyc"
    slow.write_text("#!/bin/sh\ntrap '' TERM\nwhile :; do sleep 1; done\n")
    slow.chmod(0o755)
    watch = Stopwatch()
    done = process(
        "check", "--deadline", "3", "--json", "-", env=dict(os.environ, PATH=f"{tmp_path}:{os.environ['PATH']}")
    )
    assert watch.seconds < 3 + 1 + 2, "the deadline, the slack, and the start of two interpreters"
    assert json.loads(done.stdout)["nodes"]


def test_help_imports_nothing_heavy() -> None:
    code = "import sys; sys.argv=['preflight','--help']\nfrom preflight.cli.app import main\n"
    code += "try: main()\nexcept SystemExit: pass\n"
    code += (
        "print([m for m in ('jinja2','paramiko','rich','ClusterShell','psutil','preflight.judge') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert done.stdout.endswith("[]\n"), done.stdout[-200:]


def test_console_script_starts_beside_a_folder_called_checks(tmp_path: Path) -> None:
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks" / "__init__.py").write_text("raise RuntimeError('imported')")
    done = process("list", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_an_interrupt_before_anything_was_judged_is_no_failed_check(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(**options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("preflight.run.local.check", interrupted)
    run("check", expect=3)
