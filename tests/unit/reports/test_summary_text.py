"""The first screen: names can be redacted, foreign text is harmless, machines with nothing to judge get three lines."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import sys
import time
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from preflight.cli.app import main
from preflight.redact import Redactor
from preflight.reports import incident_text
from preflight.reports.summary_text import render
from tests.support import manual
from tests.support.in_process import run
from tests.support.paths import ROOT


@cache
def _demo() -> Any:
    return json.loads(run("demo", "--json", "-", expect=(1,)))


def demo() -> Any:
    return copy.deepcopy(_demo())


def test_redacted_screen_names_no_node() -> None:
    text = render(demo())
    assert "gpu007" in text
    redactor = Redactor(b"key")
    redactor.learn(text)
    assert "gpu0" not in redactor.text(text)
    assert "GPUs on the PCI bus: found 7" in redactor.text(text)


def test_what_a_node_sent_cannot_steer_the_terminal() -> None:
    report = demo()
    report["incidents"][0]["title"] = "a\x1b[31mb\u202ec\nd"
    report["incidents"][0]["next"] = "x\x07"
    for text in (render(report), incident_text.render(report, [0], colour=False, width=80),
                 incident_text.lines(report, [0]), incident_text.markdown(report, [0])):  # fmt: skip
        assert not {"\x1b", "\x07", "\u202e"} & set(text)
    assert incident_text.lines(report, [0]).count("\n") == 1
    report["incidents"][0]["title"] = "<img src=x> [a](javascript:b) *c*"
    assert "<img" not in incident_text.markdown(report, [0]).replace("\\<", "")


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_is_wider_than_the_screen(width: int) -> None:
    table = [line for line in render(demo(), width=width).splitlines() if "job  " in line]
    assert max(map(len, table)) <= max(width, 62)


def test_many_incidents_are_counted() -> None:
    report = demo()
    report["incidents"] *= 3
    text = render(report)
    assert "and 20 more" in text
    assert len(text.splitlines()) < 30


def test_results_that_the_deadline_prevented_are_one_line() -> None:
    report = demo()
    late = {"status": "unknown", "nodes": ["gpu003"], "fix": "give the run more time: --deadline", "gating": True,
            "check": "a.one", "message": "was not started"}  # fmt: skip
    report["findings"] += [late, late | {"nodes": ["gpu004"]}, late | {"check": "a.two"}]
    assert "gpu[003-004]  the time ran out: set a longer --deadline" in render(report)
    assert "[3 results]" in render(report)
    assert "was not started" not in render(report)
    report |= {"incidents": [], "nodes": report["nodes"][:7]}
    assert "next" not in render(report)
    assert "next give the run more time: --deadline\n" in render(report | {"exit_status": 3})


def test_nodes_without_an_answer_come_first_and_have_a_next_step() -> None:
    report = demo()
    silent = "no answer: connection refused on port 22: is sshd running? (connect)"
    assert incident_text.document(report, "line").splitlines()[1] == f"-\tunknown\t-\t-\tgpu008\t{silent}"
    assert "\n\n- **no answer** from `gpu008`: connection refused" in incident_text.document(report, "md")
    report["incidents"] = []
    first, next_ = render(report).index("NO ANSWER  gpu008"), render(report).index("next remove the reason")
    assert first < next_
    report["nodes"] = [node for node in report["nodes"] if not node.get("no_answer")]
    assert "next" not in render(report)


@pytest.mark.parametrize("lines", [24, 20, 16, 4])
def test_low_screen_lists_fewer_incidents_but_five(lines: int) -> None:
    report = demo()
    report["incidents"] *= 3
    text, complete = render(report, width=80, height=lines), render(report, width=80)
    assert complete.count("\n") > 16
    listed = [line for line in text.splitlines() if re.match(r" {1,2}\d+  ", line)]
    assert len(listed) >= 5
    assert text.count("\n") <= lines or len(listed) == 5
    assert f"and {len(report['incidents']) - len(listed)} more" in text
    assert render(report, width=80, height=complete.count("\n")) == complete


def test_show(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps(_demo()))
    source = ("--from", str(path))
    assert "roce.chain" in run("show", "6", *source)
    assert run("show", "gpu005", *source, "--format", "line").count("\n") == 2
    fingerprint = _demo()["incidents"][3]["fingerprint"]
    assert "mlx5_5:1 is DOWN" in run("show", fingerprint[:6], *source)
    assert json.loads(run("show", *source, "--format", "json")) == _demo()["incidents"]
    assert run("show", "2", *source, "--json") == run("show", "2", *source, "--format", "json")
    assert run("show", "--bad", *source) == "gpu[002-008]\n"
    assert run("show", "--by", "owner", *source).index("network") > 0
    assert "no leaf known" in run("show", "--by", "leaf", *source)
    ticket = run("show", "4", *source, "--format", "md")
    assert "**mlx5\\_5:1 is DOWN" in ticket  # no emphasis
    assert "errors with `mlxlink -d mlx5_5 -m`, and" in ticket  # a command that can be copied
    assert "owner: network" in ticket
    for words in (("99", *source), ("nope", *source), ("1", "--from", str(tmp_path / "no"))):
        run("show", *words, expect=(2,))


def test_show_a_node_at_the_other_end(tmp_path: Path) -> None:
    report = demo()
    cable = next(incident for incident in report["incidents"] if incident["owner"] == "network")
    cause = report["findings"][cable["findings"][0]]
    report["nodes"] += [{**report["nodes"][0], "name": name} for name in ("far01", "far012")]
    cause["message"] += " (other end: far012 Ethernet4)"
    for node, rack in zip(report["nodes"], "aabb", strict=False):
        node["rack"] = rack
    (tmp_path / "report.json").write_text(json.dumps(report))
    source = ("--from", str(tmp_path / "report.json"))
    assert cause["message"][:20] in run("show", "far012", *source)
    assert run("show", "far01", *source) == "far01: no incident\n"
    report["incidents"][0]["title"] = "job.log:7 on gpu001, rank 3: no route"
    (tmp_path / "report.json").write_text(json.dumps(report))
    named = "gpu001: no incident of its own; named in incident 1 (job.log:7 on gpu001, rank 3: no route)\n"
    assert run("show", "gpu001", *source) == named
    assert {"rack a", "rack b", "no rack known"} <= set(run("show", "--by", "rack", *source).splitlines())


@pytest.mark.parametrize(
    ("name", "title", "row"),
    [
        ("job.log", "job.log:271 on gpu001, rank 3: no route", "job.log:271  gpu001, rank 3: no route"),
        ("job.log", "job.log:9, rank 3: no route", "job.log:9  rank 3: no route"),
        ("job.log", "job.log:9: gpu001: no route", "job.log:9  gpu001: no route"),
        ("job.log", "job.log: TCP instead of RDMA", "job.log  TCP instead of RDMA"),
        ("job.log", "job.login: TCP", "the run's logs  job.login: TCP"),  # its place is not a log
        ("slurm-8812-pretraining.out", "slurm-8812-pretraining.out:40127: TCP", "…etraining.out:40127  TCP"),
    ],
)
def test_a_log_is_the_place_of_its_incident(name: str, title: str, row: str) -> None:
    report = demo()
    report["incidents"] = [{**report["incidents"][0], "title": title, "nodes": ["@run"], "findings": [0]}]
    report["findings"][0]["evidence"] = [f"log:{name}"]
    assert f"  {row}  " in render(report, width=80)


def grown(count: int) -> Any:
    """Return the demo's report for this many nodes; all lists of a first screen grow with them."""
    report = demo()
    names = [f"ip-10-{number * 7919 % 251}-{number // 64 % 251}-{number % 64}" for number in range(count)]
    reasons = [f"phase {number}: {'x' * 300}" for number in range(count // 20)]
    report["nodes"] = [
        {
            "name": name,
            "status": "unknown",
            "checks": {},
            "no_answer": {"phase": "connect", "reason": reasons[at // 40]},
        }
        for at, name in enumerate(names)
    ]
    for incident in report["incidents"]:
        incident["nodes"] = names[::3]
    report["incidents"] *= count // 10
    report["origins"] = [f"made {number} {'by hand ' * 50}" for number in range(count // 50)]
    report["run"] |= {"openssh": [{"nodes": name, "why": "a proxy command"} for name in names[::10]],
                      "cluster_file": "cluster.toml", "command": "judge"}  # fmt: skip
    report["coverage"] |= {"without_class": names[::2], "without_evidence": names[1::2],
                           "off_in_class": {name: ["gpu.count"] * 9 for name in names[:200]}}  # fmt: skip
    report["findings"] += [
        {**report["findings"][-1], "status": "unknown", "nodes": names[at:], "message": f"unknown {at} " * 30}
        for at in range(0, count, 100)
    ]
    return report


@pytest.mark.parametrize("width", [80, 120])
def test_screen_does_not_grow_with_the_fleet(width: int) -> None:
    """Regular names fold to one word; those of cloud instances do not, and used to take minutes to fold."""
    lengths = {}
    for count in (400, 10_000):
        began = time.process_time()
        text = render(grown(count), width=width, more="preflight show 1 --from report.json")
        assert time.process_time() - began < 5
        lengths[count] = len(text.splitlines())
        assert max(map(len, text.splitlines())) <= width
        assert text.splitlines()[-1].split() == ["more", "preflight", "show", "1", "--from", "report.json"]
    assert lengths[10_000] == lengths[400] <= 61, lengths  # two of them are the next step, which is never truncated


def test_what_is_cut_is_counted() -> None:
    text = render(grown(10_000), width=100)
    assert "and 9800 nodes for 245 other reasons" in text
    assert re.search(r"^nodes: ip-10-0-0-0, .*… \(10000 nodes\)$", text, re.MULTILINE)
    assert "3334 nodes" in text
    assert "and 197 more kinds of evidence" in text
    assert "and 9990 more" in text


def test_nodes_to_keep_off_are_names_of_hosts(tmp_path: Path) -> None:
    report = demo()
    for node, name in zip(report["nodes"], ("a b --wrap=id", "x\x1b[2J", "gpu001,gpu009", "-v"), strict=False):
        node["name"] = name
        node["no_answer"] = {"phase": "connect", "reason": "no route"}
    (tmp_path / "report.json").write_text(json.dumps(report))
    argv = [sys.executable, "-m", "preflight", "show", "--bad", "--from", str(tmp_path / "report.json")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    assert not set(done.stdout) - set("gpu0123456789[],-\n")
    assert done.stderr.startswith("warning: 4 of the nodes to exclude have no valid host name, and are left out: ")
    assert "\x1b" not in done.stderr


@pytest.mark.parametrize("more", [["1"], ["--by", "node"], ["--format", "json"]])
def test_bad_takes_nothing_else(more: list[str]) -> None:
    run("show", "--bad", *more, "--from", "preflight/demo", expect=(2,))


def test_show_of_a_node_without_incident(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(json.dumps(demo()))
    shown = partial(run, "show", "--from", str(tmp_path / "report.json"))
    assert shown("gpu001") == "gpu001: no incident\n"
    report = demo()
    report["nodes"][0]["checks"]["gpu.driver"] = "unknown"
    (tmp_path / "report.json").write_text(json.dumps(report))
    assert shown("gpu001") == "gpu001: no incident; 1 check unknown\n"
    assert shown("gpu008") == "gpu008: no answer: connection refused on port 22: is sshd running?\n"
    shown("\u00b2", expect=(2,))  # a Unicode digit that is not a number


def test_next_command_can_be_pasted() -> None:
    command = f"preflight show 1 --from /{'long/' * 40}report.json"
    assert render(demo(), width=80, more=command).endswith(f"\n{command}\n")


@pytest.mark.parametrize("size", [0, 5, 100, 200_000, -5])
def test_part_of_a_report_is_refused(tmp_path: Path, size: int) -> None:
    """An empty list of nodes to exclude would send jobs to all of them."""
    text = json.dumps(demo())
    (tmp_path / "report.json").write_text(text[:size])
    assert run("show", "--bad", "--from", str(tmp_path / "report.json"), expect=(2,)) == ""


def test_finding_before_the_first_is_refused(tmp_path: Path) -> None:
    report = demo()
    report["incidents"][0]["findings"][0] = -1
    (tmp_path / "report.json").write_text(json.dumps(report))
    run("show", "--from", str(tmp_path / "report.json"), expect=(2,))


def test_colour_can_be_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[" not in run("demo", expect=(1,))
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in run("demo", expect=(1,))
    assert "\x1b[" not in run("demo", "--color", "never", expect=(1,))
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in run("demo", expect=(1,))
    assert "\x1b[1;31m" in run("demo", "--color", "always", expect=(1,))  # an option has priority


def test_a_report_does_not_replace_evidence(tmp_path: Path) -> None:
    """``judge --json DIR`` and ``judge --json NODE.json NODE.json``, written as if --json took no file."""
    node = tmp_path / "gpu003.json"
    node.write_bytes(saved := (ROOT / "preflight" / "demo" / "gpu003.json").read_bytes())
    for words, hint in (
        ([str(tmp_path)], "put --json last"),
        ([str(node), str(node)], "evidence of a node"),
    ):
        done = CliRunner().invoke(main, ["judge", "--json", *words])
        assert (done.exit_code, hint in done.stderr, node.read_bytes()) == (2, True, saved), done.output


@pytest.mark.parametrize("words", ["explain", "check --only", "judge DIR --skip"])
def test_ids_of_checks_are_completed(words: str) -> None:
    environment = {**os.environ, "_PREFLIGHT_COMPLETE": "bash_complete", "COMP_WORDS": f"preflight {words} rdma.port-",
                   "COMP_CWORD": str(1 + len(words.split()))}  # fmt: skip
    code = "from preflight.cli.app import main; main(prog_name='preflight')"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60,
                          check=False)  # fmt: skip
    assert set(done.stdout.split()) == {"plain,rdma.port-rate", "plain,rdma.port-state"}


@pytest.mark.parametrize("shell", manual.COMPLETIONS)
def test_completion_prints_the_file_of_a_shell(shell: str) -> None:
    file = ROOT / "deploy" / "completions" / manual.COMPLETIONS[shell]
    assert run("completion", shell) == file.read_text(encoding="utf-8")
