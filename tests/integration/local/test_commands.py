"""The commands as real processes: output, exit status, and what delays them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import run, schema, without_run
from tests.support.stopwatch import Stopwatch


def process(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "preflight", *arguments], capture_output=True, text=True, timeout=60, **options
    )


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
