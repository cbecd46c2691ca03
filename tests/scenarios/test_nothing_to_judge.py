"""Machines without anything to judge (no GPU and NIC, or a network switch) never look like a pass."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from preflight.checks import registry
from preflight.cli import app
from preflight.evidence import document as evidence
from preflight.evidence.document import Evidence, from_document
from preflight.judge import judge
from preflight.reports import verdict_line
from preflight.transport.ssh.paramiko_transport import SshOptions, SshTransport
from preflight.transport.ssh.switch_cli import network_switch
from tests.integration.ssh.test_faults import make_plan
from tests.support.fixture import whole_node
from tests.support.sshfarm import Farm, View
from tests.support.sshfarm.marks import needs_farm

BARE = "has neither a GPU nor an RDMA NIC, and is not declared to have none"
#: Devices of the complete node other than bridges and parts of the board.
LEFT = "0000:00:00.0"
OPTIONS = "[class.other]\nnodes = '{}'\ngpus = {}\nhcas = {}\n"
SONIC = {"file:/etc/sonic/sonic_version.yml": {"status": "ok", "out": "build_version: 'SONiC.202405.1'\n"}}


IDENTITY = ("file:/etc/machine-id", "file:/proc/sys/kernel/random/boot_id", "file:/proc/sys/kernel/hostname")


def document(name: str, *, bare: bool = True, more: Mapping[str, Any] = {}) -> dict[str, Any]:
    """Return a complete node, or the same machine after all its GPUs and NICs fell off the bus."""
    made: dict[str, Any] = json.loads(json.dumps(whole_node("hgx-h100"))) | {"node": name}
    if bare:
        bus = made["records"]["dir:/sys/bus/pci/devices"]["entries"]
        made["records"]["dir:/sys/bus/pci/devices"]["entries"] = {LEFT: bus[LEFT]}
        made["records"]["dir:/sys/class/infiniband"] = {"status": "missing", "why": "no such directory"}
        for key in [key for key in made["records"] if key.startswith(("nvml:", "cmd:nvidia-smi", "cmd:ib"))]:
            made["records"][key] = {"status": "missing", "why": "there is no such tool"}
    for key in [
        key
        for key in made["records"]
        if key in IDENTITY or key.startswith(("psutil:", "cmd:ip ", "file:/sys/class/net/"))
    ]:
        del made["records"][key]  # copies of one machine are not treated as clones here
    made["records"] |= more
    return made


def judge_saved(folder: Path, nodes: list[dict[str, Any]], cluster: str = "", *options: str) -> tuple[int, str]:
    """Judge saved nodes with the command; return the exit status and the report."""
    saved = folder / "saved"
    saved.mkdir()
    for node in nodes:
        (saved / f"{node['node']}.json").write_text(json.dumps(node))
    given = ["judge", str(saved), *options]
    if cluster:
        (folder / "cluster.toml").write_text(cluster)
        given += ["--cluster", str(folder / "cluster.toml")]
    ran = CliRunner().invoke(app.main, given, catch_exceptions=False)
    return ran.exit_code, ran.output


def judged(nodes: list[Evidence]) -> dict[str, Any]:
    return judge(nodes, registry().checks)


def first(text: str) -> str:
    return " ".join(re.split("evidence:|\n[0-9]+ of [0-9]+ checks", text)[0].split())


@pytest.mark.parametrize("many", [1, 12])
def test_one_node_and_twelve_agree(tmp_path: Path, many: int) -> None:
    status, text = judge_saved(tmp_path, [document(f"n{at:02}") for at in range(many)])
    assert status == 3
    assert first(text) == f"NOT JUDGED: n00 {BARE}" if many == 1 else (
        "NOT JUDGED: 12 of 12 nodes have neither a GPU nor an RDMA NIC, and are not declared to have none"
    )  # fmt: skip
    assert "preflight demo" in text
    assert "hcas = 0" in text


def test_twelve_of_sixteen_are_counted_in_the_first_line(tmp_path: Path) -> None:
    nodes = [document(f"n{at:02}", bare=at >= 4) for at in range(16)]
    status, text = judge_saved(tmp_path, nodes)
    assert status in (1, 3)
    assert "12 of 16 nodes have neither a GPU nor an RDMA NIC" in first(text)


@pytest.mark.parametrize(
    ("gpus", "hcas", "bare", "status"),
    [(0, 0, True, 0), (0, 0, False, 1), (8, 8, True, 1), (8, 0, True, 1), (0, 8, True, 1)],
)
def test_an_expectation_of_none_is_one(tmp_path: Path, gpus: int, hcas: int, bare: bool, status: int) -> None:
    assert judge_saved(tmp_path, [document("n00", bare=bare)], OPTIONS.format("n00", gpus, hcas))[0] == status


@pytest.mark.parametrize(("key", "status"), [("gpus = 0", 0), ("hcas = 0", 3)])
def test_one_of_both_is_judged_by_itself(tmp_path: Path, key: str, status: int) -> None:
    """``hcas = 0`` does not allow missing GPUs; a machine declared without GPUs needs no NIC."""
    cluster = f"[class.other]\nnodes = 'n00'\n{key}\n"
    assert judge_saved(tmp_path, [document("n00")], cluster)[0] == status


def test_every_report_carries_it(tmp_path: Path) -> None:
    made = [str(tmp_path / name) for name in ("r.json", "r.html", "r.xml", "r.prom")]
    status, _ = judge_saved(tmp_path, [document("n00")], "", "--json", made[0], "--html", made[1], "--junit", made[2],
                     "--textfile", made[3])  # fmt: skip
    report = json.loads(Path(made[0]).read_text())
    assert (status, report["exit_status"]) == (3, 3)
    assert report["nodes"][0]["status"] == "unknown"
    assert f"n00 {BARE}" in Path(made[1]).read_text()
    assert "gpu.count" in Path(made[2]).read_text()
    assert "neither an NVIDIA GPU nor an RDMA NIC" in Path(made[2]).read_text()
    assert 'check="gpu.count"' in Path(made[3]).read_text()


def test_a_healthy_node_is_not_called_bare(tmp_path: Path) -> None:
    _, text = judge_saved(tmp_path, [document("n00", bare=False)])
    assert "neither" not in first(text)


# --- switches ---------------------------------------------------------------------------------------


def test_a_switch_that_runs_linux_is_named_and_does_not_vote(tmp_path: Path) -> None:
    nodes = [document(f"gpu{at}", bare=False) for at in range(3)] + [document("leaf1", more=SONIC)]
    report = judged([from_document(one, one["node"]) for one in nodes])
    assert "leaf1 is a network switch (SONiC.202405.1)" in verdict_line.headline(report)
    mine = [one for one in report["findings"] if "leaf1" in one["nodes"] and one["status"] != "skip"]
    assert [(one["check"], one["status"]) for one in mine] == [("gpu.count", "unknown")]
    alone = judged([from_document(one, one["node"]) for one in nodes[:3]])
    others = [[(one["check"], one["status"], one["message"]) for one in judgement["findings"]
               if set(one["nodes"]) & {"gpu0", "gpu1", "gpu2"}] for judgement in (report, alone)]  # fmt: skip
    assert others[0] == others[1]
    coverage = report["coverage"]
    parts = ("passed", "warned", "failed", "unknown", "skipped", "no_answer")
    assert coverage["planned"] == sum(coverage[part] for part in parts)


def test_a_switch_is_no_broken_gpu_node(tmp_path: Path) -> None:
    """A class that expects GPUs on every host does not make a switch a node that lost them."""
    status, text = judge_saved(tmp_path, [document("leaf1", more=SONIC)], OPTIONS.format("leaf1", 8, 8))
    assert (status, first(text)) == (3, "NOT JUDGED: leaf1 is a network switch (SONiC.202405.1)")


#: Output of switches' command lines for a shell command, from the vendors' references.
CLIS = {
    "Arista EOS": "% Invalid input (at token 0: 'sh')\r\n",
    "Cisco NX-OS": "Syntax error while parsing 'sh -c for p in'\r\n\r\nCmd exec error.\r\n",
    "Juniper Junos": "error: unknown command: sh\r\n",
    "NVIDIA Onyx or MLNX-OS": "UNIX shell commands cannot be executed using this account.\r\n",
    "Huawei VRP or H3C Comware": "           ^\r\nError: Unrecognized command found at '^' position.\r\n",
    "HPE or Aruba": "Invalid input: sh\r\n",
    "of an unknown vendor": "         ^\r\n% Invalid input detected at '^' marker.\r\n",
}
#: Output of hosts' shells and forced commands: not a switch.
HOSTS = (
    "bash: line 1: python3: command not found",
    "fatal: unrecognized command 'sh -c'",
    "This account is currently not available.",
    "rbash: sh: restricted: cannot specify `/' in command names",
    "Welcome to leaf1, the switch operators' jump host. Invalid use is logged.",
    "sh: 1: Syntax error: end of file unexpected",
    "100% Invalid",
    "PREFLIGHT-NO-PYTHON  : /usr/bin:/bin",
)


@pytest.mark.parametrize("system", CLIS)
def test_the_words_of_a_switch(system: str) -> None:
    assert network_switch(CLIS[system].encode()) == system


@pytest.mark.parametrize("output", HOSTS)
def test_the_words_of_a_host(output: str) -> None:
    assert network_switch(output.encode()) == ""


@pytest.fixture
def farm() -> Iterator[Farm]:
    with Farm(4) as made:
        yield made


@needs_farm
def test_a_switch_behind_ssh_is_named(farm: Farm) -> None:
    """Real sshd; the login shell prints a switch's message, and ends with its status."""
    systems = ("Arista EOS", "Cisco NX-OS", "Juniper Junos", "NVIDIA Onyx or MLNX-OS")
    hosts = dict(zip(farm.hosts, systems, strict=True))
    for at, (host, system) in enumerate(hosts.items()):
        words = CLIS[system].replace("\r\n", "\\r\\n").replace("'", "'\\''")
        shell = f"#!/bin/sh\nprintf '%b' '{words}' {'>&2' if at % 2 else ''}\nexit {at}\n"
        farm.view(host, View(shell="/etc/cli", files={"/etc/cli": shell}))
    transport = SshTransport(SshOptions(farm.ssh_config, connect_timeout_s=8), list(hosts))
    try:
        documents = [transport.collect(host, make_plan(), time.monotonic() + 15) for host in hosts]
    finally:
        transport.close()
    found = [evidence.from_document(one, "test") for one in documents]
    for one, system in zip(found, hosts.values(), strict=True):
        assert one.no_answer is not None
        assert one.no_answer["phase"] == "start"
        assert f"a network switch ({system})" in one.no_answer["reason"]
    report = judged(found)
    assert report["exit_status"] == 3
    assert "are network switches" in verdict_line.headline(report)
    assert "gave no answer" not in verdict_line.headline(report)
