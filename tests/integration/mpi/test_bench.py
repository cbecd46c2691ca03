"""`preflight bench` with real Open MPI over real sshd, and links that are slow or cut.

The benchmark is named as a stand-in; its times are those of real MPI collectives over these links.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from preflight.bench.planner import circle
from preflight.campaign import scripts
from tests.support.mpi import hosts as mpi_hosts
from tests.support.mpi.hosts import HOST_MBIT, UPLINK_MBIT, MpiHosts

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(bool(mpi_hosts.missing()), reason=f"MPI hosts need {mpi_hosts.missing()}"),
]


@pytest.fixture(scope="module")
def hosts() -> Iterator[MpiHosts]:
    with MpiHosts(8, leaf=4) as started:
        yield started


@pytest.fixture
def folder(hosts: MpiHosts, request: pytest.FixtureRequest) -> Path:
    return hosts.folder / str(request.node.name)


def words(hosts: MpiHosts, folder: Path, *more: str) -> list[str]:
    return [
        "bench", "--hosts", "n[1-8]", "--gpus", "1", "--size", "512K", "--iterations", "5", "--binary",
        str(hosts.binaries), "--ssh-config", str(hosts.ssh_config), "--env", "OMPI_MCA_btl=tcp,self",
        "--run-limit", "15s", "--allow-root", "--yes", "--save", str(folder), *more,
    ]  # fmt: skip


def report(ran: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(ran.stdout)
    return document


def findings(document: dict[str, Any], check: str, *statuses: str) -> list[str]:
    return [
        finding["message"] for finding in document["findings"]
        if finding["check"] == check and finding["status"] in (statuses or ("pass", "warn", "fail", "unknown"))
    ]  # fmt: skip


def journal(folder: Path) -> list[dict[str, Any]]:
    path = folder / "journal.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def launches(folder: Path, state: str) -> list[dict[str, Any]]:
    return [line for line in journal(folder) if line.get("state") == state]


def begin(hosts: MpiHosts, folder: Path, *more: str) -> subprocess.Popen[str]:
    command = [*hosts.on("head"), sys.executable, "-m", "preflight", *words(hosts, folder, *more)]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, env=hosts.environment)  # fmt: skip


def wait_for(reached: Callable[[], object], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < until
        time.sleep(0.05)


def pid_of(hosts: MpiHosts, word: str) -> int:
    """Return the process id of the head node's first command line that contains a word."""
    inside = os.readlink(f"/proc/{hosts._inits['head']}/ns/pid")
    for entry in sorted(Path("/proc").glob("[0-9]*"), key=lambda path: int(path.name)):
        try:
            if os.readlink(entry / "ns/pid") == inside and word.encode() in (entry / "cmdline").read_bytes():
                return int(entry.name)
        except OSError:
            continue
    return 0


def test_nothing_is_named_on_healthy_hosts(hosts: MpiHosts, folder: Path) -> None:
    """A secret in the environment reaches neither a node nor a file; the rates are learnt."""
    secret = {"WANDB_API_KEY": "planted-4711", "NCCL_PLANTED": "planted-4711"}
    learnt = hosts.folder / "baseline.json"
    ran = hosts.preflight(*words(hosts, folder, "--json", "--learn", str(learnt)), env={**hosts.environment, **secret})
    (entry,) = json.loads(learnt.read_text())["entries"]
    assert (entry["collective"], entry["nodes"], entry["launches"] >= 8) == ("alltoall", 2, True)
    assert not any(b"planted-4711" in path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert "planted-4711" not in ran.stdout + ran.stderr
    assert not findings(report(ran), "bench.factor", "fail"), ran.stdout
    assert findings(report(ran), "bench.coverage", "pass")
    assert "STUB" in (folder / "out/0001.txt").read_text()
    assert hosts.left_behind() == {}


#: A tree of an RDMA device, made by hand; its symbol errors are the packets that the host really sends.
_DEVICE = """\
mount -t tmpfs tmpfs /sys/class && mkdir -p /sys/class/infiniband/mlx5_0/ports/1/counters &&
cd /sys/class/infiniband/mlx5_0/ports/1 && echo 4: ACTIVE >state && echo 5: LinkUp >phys_state &&
echo 400 Gb/sec >rate && echo InfiniBand >link_layer &&
echo 7 >counters/link_downed && ln -s /sys/devices/virtual/net/eth0/statistics/tx_packets counters/symbol_error
"""


def test_a_slow_node_is_named_and_judge_agrees(hosts: MpiHosts, folder: Path) -> None:
    """The finding names the port that counted errors in its runs."""
    hosts.run(["sh", "-c", _DEVICE], "n3", check=True)
    hosts.slow("n3", HOST_MBIT // 5)
    try:
        ran = hosts.preflight(*words(hosts, folder, "--json"))
    finally:
        hosts.slow("n3", HOST_MBIT)
        hosts.run(["umount", "/sys/class"], "n3", check=True)
    assert ran.returncode == 1, ran.stderr
    (named,) = findings(report(ran), "bench.factor", "fail")
    assert named.startswith("node n3: ")
    assert "; meanwhile n3 mlx5_0:1 counted symbol_error +" in named
    (port,) = findings(report(ran), "bench.ports", "fail")
    assert port.startswith("mlx5_0:1 of n3 counted errors in ")
    assert "link_downed" not in port
    again, first = report(hosts.preflight("judge", str(folder), "--json")), report(ran)
    assert {**again, "run": None} == {**first, "run": None}
    assert hosts.left_behind() == {}


def cluster_file(hosts: MpiHosts) -> str:
    """Return the path of a cluster file with the leaves of the hosts."""
    path = hosts.folder / "cluster.toml"
    path.write_text('[leaves]\nleaf0 = "n[1-4]"\nleaf1 = "n[5-8]"\n')
    return str(path)


def test_slow_uplinks_part_the_leaves(hosts: MpiHosts, folder: Path) -> None:
    hosts.slow_uplink(HOST_MBIT // 3)
    try:
        ran = hosts.preflight(*words(hosts, folder, "--json", "--goal", "links", "--cluster", cluster_file(hosts)))
    finally:
        hosts.slow_uplink(UPLINK_MBIT)
    assert not findings(report(ran), "bench.factor", "fail"), ran.stdout
    (named,) = findings(report(ran), "bench.pairs", "warn")
    assert "between leaves 0.3" in named
    assert "n1, n2, n3, n4; n5, n6, n7, n8" in named


def test_sound_uplinks_part_nothing(hosts: MpiHosts, folder: Path) -> None:
    """All pairs at once are as fast as one."""
    ran = hosts.preflight(*words(hosts, folder, "--json", "--goal", "links", "--load-spines", "--cluster",
                                 cluster_file(hosts)))  # fmt: skip
    assert findings(report(ran), "bench.shared-uplinks", "pass"), ran.stdout
    assert not findings(report(ran), "bench.factor", "fail", "warn"), ran.stdout
    assert not findings(report(ran), "bench.pairs", "fail", "warn"), ran.stdout
    assert findings(report(ran), "bench.coverage", "pass")


def test_uplinks_that_are_too_few_for_all_pairs(hosts: MpiHosts, folder: Path) -> None:
    """Four pairs share an uplink with room for two; each pair alone is as fast as within a leaf."""
    hosts.slow_uplink(HOST_MBIT)
    try:
        ran = hosts.preflight(*words(hosts, folder, "--json", "--goal", "links", "--load-spines", "--cluster",
                                     cluster_file(hosts)))  # fmt: skip
    finally:
        hosts.slow_uplink(UPLINK_MBIT)
    (finding,) = findings(report(ran), "bench.shared-uplinks", "warn")
    assert "all pairs at once reach 0.4" in finding or "all pairs at once reach 0.5" in finding
    assert not findings(report(ran), "bench.factor", "fail", "warn"), ran.stdout
    assert hosts.left_behind() == {}


def test_wrong_values_and_errors_fail(hosts: MpiHosts, folder: Path) -> None:
    hosts.fault("n5", "wrong")
    hosts.fault("n2", "fail")
    try:
        ran = hosts.preflight(*words(hosts, folder, "--json"))
    finally:
        hosts.fault("n5", "wrong", present=False)
        hosts.fault("n2", "fail", present=False)
    assert ran.returncode == 1
    wrong = findings(report(ran), "bench.pairs", "fail")
    assert wrong
    assert all("n5" in text and "gives wrong values at 524,288 bytes" in text for text in wrong)
    assert any("n2" in text and "does not run" in text and "unhandled system error" in text
               for text in findings(report(ran), "bench.pairs", "warn"))  # fmt: skip


def test_a_run_that_never_ends_is_ended(hosts: MpiHosts, folder: Path) -> None:
    hosts.fault("n6", "deaf")  # and it ignores SIGTERM
    try:
        ran = hosts.preflight(*words(hosts, folder, "--json", "--run-limit", "4s"))
    finally:
        hosts.fault("n6", "deaf", present=False)
    assert any("n6" in text and "no end within 4 s" in text for text in findings(report(ran), "bench.pairs", "warn"))
    assert hosts.left_behind() == {}


def test_a_launcher_that_hangs_is_ended(hosts: MpiHosts, folder: Path) -> None:
    """A stopped mpirun ends neither by itself nor after SIGTERM."""
    hosts.fault("n1", "hang")
    running = begin(hosts, folder, "--json", "--run-limit", "8s")
    wait_for(lambda: len(launches(folder, "ended")) == 3)
    os.kill(pid_of(hosts, "mpirun"), signal.SIGSTOP)
    hosts.fault("n1", "hang", present=False)
    stdout, _ = running.communicate(timeout=120)
    assert [line["status"] for line in launches(folder, "ended")].count("timeout") == 1
    assert any("n1" in text and "no end within 8 s" in text
               for text in findings(json.loads(stdout), "bench.pairs", "warn"))  # fmt: skip
    assert hosts.left_behind() == {}


def test_a_cut_link(hosts: MpiHosts, folder: Path) -> None:
    running = begin(hosts, folder, "--json")
    wait_for(lambda: len(launches(folder, "started")) == 4)
    hosts.cut("n3")
    try:
        stdout, _ = running.communicate(timeout=120)
        assert hosts.left_behind() == {}
    finally:
        hosts.cut("n3", down=False)
    document = json.loads(stdout)
    assert running.returncode != 0
    assert any(text.startswith("n3 was excluded: no answer")
               for text in findings(document, "bench.coverage", "unknown"))  # fmt: skip
    assert not findings(document, "bench.factor", "fail")


def test_killed_in_round_two_and_resumed(hosts: MpiHosts, folder: Path) -> None:
    running = begin(hosts, folder)
    wait_for(lambda: any(line["round"] == 2 for line in launches(folder, "started")))
    wait_for(lambda: any(line["round"] == 2 for line in launches(folder, "ended")))
    os.kill(pid_of(hosts, "preflight"), signal.SIGKILL)
    running.communicate(timeout=30)
    before = {line["n"]: (line["round"], line["run"]) for line in launches(folder, "ended")}
    other = hosts.preflight(*words(hosts, folder))
    assert other.returncode == 2
    assert "already contains a campaign" in other.stderr
    ran = hosts.preflight("bench", "--resume", str(folder), "--yes", "--allow-root", "--json")
    assert findings(report(ran), "bench.coverage", "pass"), ran.stderr
    ended = [(line["round"], line["run"]) for line in launches(folder, "ended") if line["status"] != "cut"]
    assert len(ended) == len(set(ended))
    started = [(line["round"], line["run"]) for line in launches(folder, "started")]
    twice = {run for run in started if started.count(run) > 1}
    assert twice.isdisjoint(before.values())
    assert hosts.left_behind() == {}


def test_ctrl_c(hosts: MpiHosts, folder: Path) -> None:
    hosts.fault("n1", "hang")
    try:
        running = begin(hosts, folder, "--json")
        wait_for(lambda: len(launches(folder, "started")) == 4)
        refused = hosts.preflight(*words(hosts, folder.with_name("second")))
        os.kill(pid_of(hosts, "preflight"), signal.SIGINT)
        stdout, stderr = running.communicate(timeout=60)
    finally:
        hosts.fault("n1", "hang", present=False)
    assert refused.returncode == 2
    assert "another campaign is running on this host: process" in refused.stderr
    assert running.returncode == 3
    assert "preflight bench --resume" in stderr
    assert any("interrupted" in text for text in findings(json.loads(stdout), "bench.coverage", "unknown"))
    assert hosts.left_behind() == {}


def test_a_launcher_that_vanishes_is_launched_again(hosts: MpiHosts, folder: Path) -> None:
    hosts.fault("n1", "hang")
    running = begin(hosts, folder, "--json")
    wait_for(lambda: len(launches(folder, "ended")) == 3)
    os.kill(pid_of(hosts, "mpirun"), signal.SIGKILL)
    hosts.fault("n1", "hang", present=False)
    stdout, _ = running.communicate(timeout=120)
    statuses = [line["status"] for line in launches(folder, "ended")]
    assert statuses.count("cut") == 1
    assert findings(json.loads(stdout), "bench.coverage", "pass")
    assert hosts.left_behind() == {}


def test_a_full_disk(hosts: MpiHosts, folder: Path) -> None:
    folder.mkdir()
    hosts.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(folder)], check=True)
    ran = hosts.preflight(*words(hosts, folder, "--json"))
    assert ran.returncode == 3, ran.stderr
    assert "No space left on device; the campaign ends" in ran.stderr
    assert any("the disk is full" in text for text in findings(report(ran), "bench.coverage", "unknown"))
    assert hosts.left_behind() == {}


def test_a_script_runs_the_rounds_without_preflight(hosts: MpiHosts, folder: Path) -> None:
    """It launches runs as bench does, and its folder can be judged and resumed like a campaign of bench."""
    printed = hosts.preflight(*words(hosts, folder)[:-3], "--print", "sh")
    assert printed.returncode == 0, printed.stderr
    (script := hosts.folder / "rounds.sh").write_text(printed.stdout)
    hosts.slow("n3", HOST_MBIT // 5)
    try:
        ran = subprocess.run([*hosts.on("head"), "sh", str(script), str(folder)], capture_output=True, text=True,
                             env=hosts.environment, timeout=200, check=False)  # fmt: skip
    finally:
        hosts.slow("n3", HOST_MBIT)
    assert ran.returncode == 0, ran.stderr
    judged = hosts.preflight("judge", str(folder), "--json")
    (named,) = findings(report(judged), "bench.factor", "fail")
    assert named.startswith("node n3: ")
    assert not findings(report(judged), "bench.factor", "unknown")
    starts = [(line["round"], line["run"]) for line in launches(folder, "started")]
    assert starts == sorted(set(starts), key=starts.index)
    assert sorted(starts) == sorted((line["round"], line["run"]) for line in launches(folder, "ended"))
    again = subprocess.run([*hosts.on("head"), "sh", str(script), str(folder)], capture_output=True, text=True,
                           env=hosts.environment, timeout=60, check=False)  # fmt: skip
    assert (again.returncode, again.stderr) == (2, f"{folder}: already contains a campaign\n")
    assert hosts.left_behind() == {}


def test_a_manifest_runs_its_rounds_in_pods(hosts: MpiHosts, tmp_path: Path) -> None:
    """Hosts in place of pods: a list of other names than the nodes', as the MPI operator writes, and a key."""
    pods = dict(zip(hosts.names, (f"gpu{number}" for number in range(1, 9)), strict=True))
    options = words(hosts, tmp_path)[1:-4]
    options[options.index("n[1-8]")] = "gpu[1-8]"
    printed = hosts.preflight("bench", *options, "--print", "mpijob", "--image", "example/nccl-tests:1")
    assert printed.returncode == 0, printed.stderr
    config, job = yaml.safe_load_all(printed.stdout)
    (script := hosts.folder / "pods.sh").write_text(config["data"]["rounds.sh"])
    (hostfile := hosts.folder / "hostfile").write_text("".join(f"{pod} slots=1\n" for pod in pods))
    for pod, node in pods.items():
        hosts.run(["sh", "-c", f"echo {node} >{scripts.NODE_FILE}"], pod, check=True)
    hosts.slow("n3", HOST_MBIT // 5)
    try:
        ran = hosts.run(
            ["ssh-agent", "sh", "-c", 'ssh-add -q "$1" && exec sh "$2" "$3"', "sh", str(hosts.folder / "id"),
             str(script), str(hosts.folder / job["metadata"]["name"])],
            env={**hosts.environment, "OMPI_MCA_orte_default_hostfile": str(hostfile),
                 "OMPI_MCA_orte_keep_fqdn_hostnames": "true"},
        )  # fmt: skip
    finally:
        hosts.slow("n3", HOST_MBIT)
        Path(scripts.POD_SSH_CONFIG).unlink()
        for pod in pods:
            hosts.run(["rm", scripts.NODE_FILE], pod)
    assert ran.returncode == 0, ran.stderr
    (packed,) = (line for line in ran.stdout.splitlines() if line.startswith("campaign: "))
    subprocess.run(["tar", "xz", "-C", str(tmp_path)], input=base64.b64decode(packed.split()[1]), check=True)
    judged = hosts.preflight("judge", str(tmp_path / job["metadata"]["name"]), "--json")
    (named,) = findings(report(judged), "bench.factor", "fail")
    assert named.startswith("node gpu3: ")
    assert hosts.left_behind() == {}


def test_a_script_that_is_ended_leaves_nothing(hosts: MpiHosts, folder: Path) -> None:
    printed = hosts.preflight(*words(hosts, folder)[:-3], "--print", "sh")
    (script := hosts.folder / "ended.sh").write_text(printed.stdout)
    hosts.fault("n1", "hang")
    try:
        running = subprocess.Popen([*hosts.on("head"), "sh", str(script), str(folder)], env=hosts.environment)
        wait_for(lambda: len(launches(folder, "ended")) == 3)
        os.kill(pid_of(hosts, "ended.sh"), signal.SIGTERM)
        running.wait(timeout=30)
    finally:
        hosts.fault("n1", "hang", present=False)
    assert [line["status"] for line in launches(folder, "ended")].count("cut") == 1
    assert journal(folder)[-1]["why"] == "interrupted"
    continued = hosts.preflight("bench", "--resume", str(folder), "--print", "sh")
    assert continued.stdout.count("\nstart ") == 1
    assert hosts.left_behind() == {}


def test_a_split_launch_is_judged_pair_by_pair(hosts: MpiHosts, folder: Path) -> None:
    """One launch of four pairs in each of six pairings; n3 is slow."""
    folder.mkdir()
    hosts.slow("n3", HOST_MBIT // 5)
    names = [f"n{number}" for number in range(1, 9)]
    try:
        for turn in range(6):
            order = [node for pair in circle(names, turn) for node in pair]
            ran = subprocess.run(
                [*hosts.on("head"), "mpirun", "--allow-run-as-root", "-H", ",".join(order), "-np", "8", "--mca",
                 "plm_rsh_agent", f"ssh -F {hosts.ssh_config}", "--mca", "btl", "tcp,self", "-x", "NCCL_TESTS_SPLIT",
                 str(hosts.binaries / "alltoall_perf"), "-b", "512K", "-e", "512K", "-n", "5", "-w", "2", "-I", "1",
                 "-J", f"/tmp/turn{turn}.json"],
                capture_output=True, text=True, timeout=100, check=False,
                env={**hosts.environment, "NCCL_TESTS_SPLIT": "DIV 2"},
            )  # fmt: skip
            assert ran.returncode == 0, ran.stdout + ran.stderr
            text = subprocess.run([*hosts.on(order[0]), "cat", f"/tmp/turn{turn}.json"], capture_output=True, text=True,
                                  check=True).stdout  # fmt: skip
            subprocess.run([*hosts.on(order[0]), "rm", f"/tmp/turn{turn}.json"], check=True)
            (folder / f"turn{turn}.json").write_text(text)
    finally:
        hosts.slow("n3", HOST_MBIT)
    judged = report(hosts.preflight("judge", str(folder), "--json"))
    (named,) = findings(judged, "bench.factor", "fail")
    assert named.startswith("node n3: 6 of its 6 runs")
