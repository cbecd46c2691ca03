"""Nodes through srun on a real Slurm cluster: within a job and as a separate job, some of them sick."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from preflight.collector import frame
from preflight.transport.errors import NoAnswer
from preflight.transport.slurm import line_protocol
from preflight.transport.slurm.error_messages import meaning
from preflight.transport.slurm.line_protocol import StepAssembler
from tests.support import paths
from tests.support.slurm.cluster import Slurm, missing
from tests.support.stopwatch import Stopwatch

real = pytest.mark.skipif(bool(missing()), reason=f"needs a Slurm cluster: no {missing()}")

TOP = paths.ROOT
NODES = 6
#: Content of the nodes: incompressible documents of three lengths.
LENGTHS = {"3KB": 3_000, "70KB": 70_000, "1MB": 1_000_000}

#: Noise of a task before any of our code runs; and a command that keeps a task from starting.
_PROLOG = """\
#!/bin/sh
case $SLURMD_NODENAME in
n5) echo 'print welcome to n5, 0: @@PREFLIGHT-LINE/1 n1 0 00000000 AAAA'; printf 'print no line end'
    echo "from the prolog of n5" >&2;;
n4) test -e /run/here/hangs && exec sleep 1000;;
esac
exit 0
"""

_DRIVER = """\
import json, sys, threading
from types import SimpleNamespace
from preflight.evidence.document import to_document
from preflight.probes.probe import plan
from preflight.transport.slurm.srun import Srun
job, hosts, path, node_s, run_s = sys.argv[1:6]
asked = {"key": "file:" + path, "kind": "file", "target": path, "timeout_s": 5.0}
def plan_for(node, deadline_s):
    return dict(plan((), node=node, deadline_s=deadline_s, output_cap=3_000_000), probes=[asked])
srun = Srun(job or None, ",".join)
times = SimpleNamespace(node_s=float(node_s), run_s=float(run_s))
events = []
found = srun.gather(hosts.split(","), plan_for, times, lambda *event: events.append(event), threading.Event())
print(json.dumps([to_document(one) for one in found]))
"""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    folder = tmp_path_factory.mktemp("srun")
    folder.chmod(0o755)
    prolog = folder / "taskprolog"
    prolog.write_text(_PROLOG)
    prolog.chmod(0o755)
    for name, length in LENGTHS.items():
        for number in range(1, NODES + 1):
            (folder / f"{name}.n{number}").write_text(os.urandom(length // 2).hex())
    setup = f'mkdir -p /run/here && mount -t tmpfs here /run/here && for n in {" ".join(LENGTHS)}; do ' \
            f'cp {folder}/$n.$1 /run/here/$n; done'  # fmt: skip
    with Slurm(NODES, f"TaskProlog={prolog}\nMessageTimeout=5", setup) as cluster:
        cluster.contents = {  # type: ignore[attr-defined]
            (f"n{number}", name): (folder / f"{name}.n{number}").read_text()
            for name in LENGTHS for number in range(1, NODES + 1)
        }  # fmt: skip
        yield cluster


def collect(
    slurm: Slurm, hosts: list[str], job: str = "", document: str = "3KB", node_s: float = 20, run_s: float = 60
) -> dict[str, dict[str, Any]]:
    command = [sys.executable, "-c", _DRIVER, job, ",".join(hosts), f"/run/here/{document}", str(node_s), str(run_s)]
    ran = slurm.run(["env", f"PYTHONPATH={TOP}", *command], timeout=run_s + 30)
    assert ran.returncode == 0, ran.stderr
    return {one["node"]: one for one in json.loads(ran.stdout)}


@pytest.fixture
def job(slurm: Slurm) -> Iterator[str]:
    """Return a job that has all nodes."""
    number = slurm.submit("sleep 300", f"--nodes={NODES}", "--exclusive")
    for _ in slurm.wait_for("the job"):
        if slurm.job(number)["JobState"] == "RUNNING":
            break
    yield number
    slurm.run(["scancel", number])
    wait_until_idle(slurm)


def wait_until_idle(slurm: Slurm) -> None:
    for _ in slurm.wait_for("an empty queue"):
        if not slurm.run(["squeue", "-h"]).stdout.strip():
            return


@real
@pytest.mark.parametrize("document", LENGTHS)
def test_every_document_arrives_complete(slurm: Slurm, job: str, document: str) -> None:
    found = collect(slurm, slurm.names, job, document)
    assert sorted(found) == slurm.names
    for name, one in found.items():
        assert one.get("no_answer") is None, one["no_answer"]
        assert one["records"][f"file:/run/here/{document}"]["out"] == slurm.contents[name, document]  # type: ignore[attr-defined]


@real
def test_as_a_job_of_its_own(slurm: Slurm) -> None:
    found = collect(slurm, ["n2", "n5", "n99"])
    assert found["n99"]["no_answer"]["phase"] == "resolve"
    assert not any(found[name].get("no_answer") for name in ("n2", "n5"))
    wait_until_idle(slurm)


def hang(slurm: Slurm, on: bool) -> None:
    """Let tasks on n4 hang before any of our code runs."""
    job = "touch /run/here/hangs" if on else "rm -f /run/here/hangs"
    pid = slurm.daemons["n4"].pid
    here = ["nsenter", "--target", str(_slurmd(pid)), "--mount", "sh", "-c", job]
    subprocess.run(here, check=True, timeout=10)


def _slurmd(pid: int) -> int:
    """Return the process that replaced nsenter and unshare, or that they started."""
    while Path(f"/proc/{pid}/comm").read_text().strip() != "slurmd":
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if not children:
            return pid
        pid = int(children[0])
    return pid


@real
def test_sick_nodes_are_named_and_the_others_complete(slurm: Slurm, job: str) -> None:
    """n4 hangs, n5 prints noise, the slurmd of n6 is stopped: it joined the job, and starts no further task."""
    hang(slurm, True)
    stopped = _slurmd(slurm.daemons["n6"].pid)
    os.kill(stopped, signal.SIGSTOP)
    try:
        watch = Stopwatch()
        found = collect(slurm, slurm.names, job, "70KB", node_s=8, run_s=60)
        took_s = watch.seconds
    finally:
        os.kill(stopped, signal.SIGCONT)
        hang(slurm, False)
    for _ in slurm.wait_for("the end of the step"):  # including the stopped one, which has not received it yet
        if slurm.run(["squeue", "-h", "-s", "-o", "%j"]).stdout.split() == ["batch"]:
            break
    assert sorted(found) == slurm.names
    assert {name for name, one in found.items() if not one.get("no_answer")} == {"n1", "n2", "n3", "n5"}
    assert found["n6"]["no_answer"]["phase"] in ("start", "collect"), found["n6"]["no_answer"]
    assert found["n4"]["no_answer"]["phase"] == "collect"
    assert "no answer within" in found["n4"]["no_answer"]["reason"]
    assert took_s < 40


@real
def test_a_job_of_its_own_is_released_at_the_deadline(slurm: Slurm) -> None:
    hang(slurm, True)
    try:
        found = collect(slurm, ["n3", "n4"], node_s=4, run_s=20)
    finally:
        hang(slurm, False)
    assert found["n3"].get("no_answer") is None
    assert found["n4"]["no_answer"]["phase"] == "collect"
    wait_until_idle(slurm)


@real
def test_ctrl_c_ends_the_step_and_gives_a_report(slurm: Slurm, job: str) -> None:
    hang(slurm, True)
    try:
        command = check_command("--job", job, "--json", "-")
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        process = subprocess.Popen([*slurm._enter(), *command], **pipes)
        for _ in slurm.wait_for("the step"):
            if "preflight" in slurm.run(["squeue", "-h", "-s", "-o", "%j"]).stdout:
                break
        time.sleep(2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        hang(slurm, False)
    nodes = {node["name"]: node for node in json.loads(out)["nodes"]}
    assert sorted(nodes) == slurm.names, err
    assert nodes["n4"]["no_answer"]["phase"] == "interrupted"
    assert slurm.run(["squeue", "-h", "-s", "-o", "%j"]).stdout.split() == ["batch"]


def check_command(*options: str) -> list[str]:
    return ["env", f"PYTHONPATH={TOP}", sys.executable, "-m", "preflight", "check", "--via", "srun", *options]


@real
def test_a_job_is_collected_with_its_environment(slurm: Slurm, tmp_path: Path) -> None:
    number = slurm.submit("export NCCL_IB_DISABLE=1\nsrun sleep 300", "--nodes=2", "--ntasks-per-node=1")
    for _ in slurm.wait_for("the ranks"):
        if "0" in slurm.run(["squeue", "-h", "-s", "-j", number, "-o", "%i"]).stdout.replace("batch", ""):
            break
    time.sleep(0.5)
    ran = slurm.run(check_command("--job", number, "--save", str(tmp_path), "--json", "-"))
    names = slurm.run(["scontrol", "show", "hostnames", slurm.job(number)["NodeList"]]).stdout.split()
    slurm.run(["scancel", number])
    report = json.loads(ran.stdout)
    assert [node["name"] for node in report["nodes"]] == names, ran.stderr
    assert report["run"]["via"] == "srun"
    assert not any(node.get("no_answer") for node in report["nodes"])
    saved = json.loads((tmp_path / f"{names[1]}.json").read_text())
    ranks = json.dumps(saved["records"]["env:ranks"])
    assert '"NCCL_IB_DISABLE": "1"' in ranks, ranks
    assert f'"SLURM_JOB_ID": "{number}"' in ranks
    wait_until_idle(slurm)


@real
def test_inside_an_allocation_its_nodes_are_meant(slurm: Slurm, tmp_path: Path) -> None:
    command = " ".join(check_command("--json", str(tmp_path / "report.json")))
    number = slurm.submit(command, "--nodes=3", "--exclusive")
    for _ in slurm.wait_for("the report", 60):
        if (tmp_path / "report.json").exists():
            break
    report = json.loads((tmp_path / "report.json").read_text())
    assert len([node for node in report["nodes"] if not node.get("no_answer")]) == 3
    slurm.run(["scancel", number])


@real
def test_a_dead_slurmd_of_which_slurm_does_not_know_yet(slurm: Slurm) -> None:
    """Slurm aborts the step; the other nodes are collected again without it. This test is last: slurmd stays dead."""
    os.kill(_slurmd(slurm.daemons["n6"].pid), signal.SIGKILL)
    watch = Stopwatch()
    found = collect(slurm, slurm.names, document="1MB", node_s=20, run_s=90)
    silent = {name: one["no_answer"] for name, one in found.items() if one.get("no_answer")}
    assert silent.keys() == {"n6"}, silent
    assert "n6" in json.dumps(found["n6"]["no_answer"]) or found["n6"]["no_answer"]["phase"] in ("start", "queue")
    assert watch.seconds < 90


# --- without a cluster --------------------------------------------------------------------------------


def lines(node: str, document: dict[str, Any], task: int) -> list[bytes]:
    """Write an answer as the node's source does, labelled as by srun."""
    ran = subprocess.run(
        [sys.executable, "-c", f"{line_protocol._BOOT}\nsys.stdout.write(sys.stdin.buffer.read())"],
        input=frame.pack(document), env={"SLURMD_NODENAME": node}, capture_output=True, check=True,
    )  # fmt: skip
    return [b"%2d: %s\n" % (task, line) for line in ran.stdout.splitlines()]


def answer(node: str, text: str = "x") -> dict[str, Any]:
    return {"schema": "preflight.evidence/1", "node": node, "records": {"file:/x": {"status": "ok", "out": text}}}


def heard(*pieces: bytes) -> dict[str, Any]:
    """Return each node's text in the output of srun, or why there is none."""
    tasks = StepAssembler()
    found: dict[str, Any] = {}
    for piece in pieces:
        for node, task in tasks.hear(piece):
            try:
                found[node] = task.document("", None)["records"]["file:/x"]["out"]  # type: ignore[index]
            except NoAnswer as none:
                found[node] = none.reason
    return found


READY = b"PREFLIGHT-READY 50858480\n"


def test_lines_are_short_and_survive_any_mixture_of_nodes() -> None:
    long = os.urandom(40_000).hex()
    nodes = ["n1", "gpu-with-a-rather-long-name-0123456789.cluster.example"]
    answers = [lines(name, answer(name, long), number) for number, name in enumerate(nodes)]
    assert max(len(line) for one in answers for line in one) < 1024
    mixed = [line for pair in zip(*answers, strict=False) for line in pair]
    mixed += [line for one in answers for line in one[min(map(len, answers)) :]]
    stream = b"".join([b" 0: " + READY, b" 1: welcome\n", b" 1: " + READY, *mixed])
    assert heard(*(stream[at : at + 777] for at in range(0, len(stream), 777))) == dict.fromkeys(nodes, long)


def test_a_lost_or_damaged_line_is_no_answer() -> None:
    good = lines("n1", answer("n1", os.urandom(3000).hex()), 0)
    for bad in ([good[0], *good[2:]], [good[0], good[1].replace(b"A", b"B"), *good[2:]], [good[1], *good]):
        answers = heard(b" 0: " + READY, *bad)
        assert bad == [good[1], *good] or "lost or damaged" in answers["n1"], answers
    assert len(heard(b" 0: " + READY, good[1], *good)["n1"]) == 6000, "what comes before the first line is noise"


def test_a_node_that_speaks_for_another_is_found_out() -> None:
    honest, forged = lines("n1", answer("n1"), 0), lines("n1", answer("n1", "forged"), 1)
    answers = heard(b" 0: " + READY, b" 1: " + READY, *forged[:1], *honest)
    assert "two tasks answer for n1" in answers["n1"]


@pytest.mark.parametrize(
    ("line", "node", "phase"),
    [
        (b"srun: error: Task launch for StepId=1.3 failed on node n2: Communication connection failure", "n2", "start"),
        (b"srun: error: Task launch for 5.0 failed on node gpu-7: Unable to contact slurmd", "gpu-7", "start"),
        (b"srun: error: Node failure on n3", "n3", "collect"),
    ],
)
def test_words_of_srun_about_a_node(line: bytes, node: str, phase: str) -> None:
    parsed = meaning(line)
    assert parsed.answer is not None
    assert (parsed.node, parsed.answer.phase) == (node, phase)


def test_words_of_srun_about_tasks_and_all() -> None:
    assert meaning(b"srun: error: n3: task 2: Exited with exit code 97")[:3] == ("n3", 2, 97)
    assert meaning(b"srun: error: n1: task 0: Killed")[:3] == ("n1", 0, None)
    assert not meaning(b"srun: Job step aborted: Waiting up to 4 seconds for job step to finish.").cause
    assert meaning(b"srun: error: Unable to confirm allocation for job 3: Job is pending execution").cause.startswith(
        "Unable to confirm allocation"
    )
