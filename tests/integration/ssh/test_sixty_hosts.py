"""A real fleet over SSH: every fault is named correctly, without an effect on other nodes.

Each host is a separate sshd with its own /sys, /proc, /etc, /dev and tools. The ordinary run has twelve hosts, ``pytest
-m fleet`` sixty. Needs root, sshd, fish and tcsh.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from preflight.archive import directory
from preflight.checks import registry
from preflight.collect.options import CollectOptions, plans
from preflight.collect.scheduler import Limits, NodeTransport, gather
from preflight.collect.targets import resolve
from preflight.evidence.document import Evidence
from preflight.expectations.cluster_file import load
from preflight.judge import judge
from preflight.reports.keep_off import bad_nodes
from preflight.reports.sanitize import fold
from preflight.reports.text_report import render
from preflight.transport.ssh.openssh import OpenSshTransport
from preflight.transport.ssh.paramiko_transport import SshOptions, SshTransport
from tests.support import hostroot
from tests.support.machines import Machine, hgx_h100, with_nic
from tests.support.machines.files import cluster_toml
from tests.support.sshfarm import SSHD, Farm, Wire, free_port, public
from tests.support.stopwatch import Stopwatch

pytestmark = pytest.mark.skipif(
    os.getuid() != 0 or not SSHD or not shutil.which("fish") or not shutil.which("tcsh"),
    reason="needs root, openssh-server, fish and tcsh",
)

Change = Callable[[Machine], Machine]
NOISY = "echo Welcome to $HOSTNAME\necho 'module: command not found' >&2\n"
LEAVES = "exec dash\n"

LONG = "".join(f"# {random.Random(number).random()}\n" for number in range(20_000))  # compresses to no less than 150 kB

HEALTHY = ("plain", "fish", "tcsh", "noisy")


@dataclass(frozen=True)
class FleetHost:
    """One host of the fleet: its construction, and the expected report of it."""

    change: Change = lambda machine: machine
    lives: Mapping[str, Any] = field(default_factory=dict)  # arguments of hostroot.assign_root
    fault: str = ""
    wire: Wire | None = None
    hung: tuple[str, ...] = ()
    python: bool = True
    loud: tuple[tuple[str, str], ...] = ()  # status and check of all findings that neither pass nor skip
    message: str = ""  # in the first of them
    silent: tuple[str, str] | None = None  # phase of the missing answer, words of its reason


ODD: dict[str, FleetHost] = {
    # healthy, but of a different make
    "fish": FleetHost(lives={"shell": "/usr/bin/fish"}),
    "tcsh": FleetHost(lives={"shell": "/usr/bin/tcsh"}),
    "noisy": FleetHost(lives={"bashrc": NOISY}),
    # sick by evidence
    "port-down": FleetHost(
        lambda m: with_nic(m, "mlx5_5", state="DOWN", physical="Polling", rate="40 Gb/sec (4X QDR)"),
        loud=(("fail", "rdma.port-state"), ("unknown", "rdma.bandwidth-per-gpu")), message="mlx5_5",
    ),
    "mtu": FleetHost(
        lambda m: with_nic(m, "mlx5_4", netdev_mtu=1500), message="1500",
        loud=(("fail", "roce.chain"),),  # by the cluster file; fleet.mtu-equal does not repeat it
    ),
    "uverbs": FleetHost(
        lambda m: with_nic(m, "mlx5_11", uverbs=False), message="mlx5_11: /dev/infiniband/uverbs11 is missing",
        loud=(("fail", "rdma.device-nodes"), ("unknown", "fleet.mtu-equal"), ("unknown", "roce.chain")),
    ),
    "p2p": FleetHost(
        lives={"environment": {"NCCL_P2P_DISABLE": "1"}}, message="NCCL_P2P_DISABLE",
        loud=(("fail", "nccl.left-over-disables"),),
    ),
    "memlock": FleetHost(lambda m: replace(m, memlock="8388608"), loud=(("fail", "host.memlock"),), message="8"),
    # faults on the way
    "refused": FleetHost(fault="refuse", silent=("connect", "refused")),
    "silent": FleetHost(fault="silent", silent=("banner", "no SSH banner")),
    "changed-key": FleetHost(fault="hostkey", silent=("host-key", "has changed")),
    "cut": FleetHost(
        lives={"files": {"/etc/nccl.conf": LONG}}, wire=Wire(cut_after_bytes=120_000), silent=("read", "truncated at"),
    ),
    "no-python": FleetHost(python=False, silent=("start", "no python3")),
    "execs": FleetHost(lives={"bashrc": LEAVES}, silent=("start", "execs another shell")),
    "hung": FleetHost(
        hung=("ibv_devinfo",), message="ibv_devinfo",
        loud=(("unknown", "fleet.mtu-equal"), ("unknown", "rdma.device-nodes"), ("unknown", "roce.chain")),
    ),
}  # fmt: skip


class SshFleet:
    """The hosts, with names in the style of a site, and the configuration to reach them."""

    def __init__(self, odd: Sequence[str], plain: int, folder: Path) -> None:
        kinds = [*["plain"] * plain, *odd]
        self.names = tuple(f"gpu{number:03d}" for number in range(1, len(kinds) + 1))
        self.kind = dict(zip(self.names, kinds, strict=True))
        self.farm = Farm(len(kinds) + 1)
        self.jump, self.jump_port = self.farm.hosts[-1], free_port()
        self.folder = folder
        self.cluster = folder / "cluster.toml"
        self._roots: dict[str, Path] = {}

    def start(self) -> None:
        """Open the hosts."""
        healthy = hgx_h100("gpu", roce=True)
        self.farm.start()
        for number, (name, address) in enumerate(zip(self.names, self.farm.hosts, strict=False)):
            host = ODD.get(self.kind[name], FleetHost())
            machine = host.change(replace(healthy, name=name, number=number))
            hostroot.assign_root(self.farm, address, self._root(machine, host), **host.lives)
            if host.fault:
                self.farm.fault(address, host.fault)
            if host.wire:
                self.farm.wire(address, host.wire)
        self.cluster.write_text(cluster_toml(fold(self.names), roce=True), encoding="utf-8")
        self.farm.daemon(self.jump, port=self.jump_port)  # with sshd's own MaxStartups, 10:30:100
        with self.farm.known_hosts.open("a", encoding="utf-8") as known:
            known.write(f"[{self.jump}]:{self.jump_port} {public(self.farm.host_key)}\n")

    def _root(self, machine: Machine, host: FleetHost) -> Path:
        """Write a machine's root, shared by all hosts with equal contents."""
        key = repr((machine, host.hung, host.python))
        if key not in self._roots:
            folder = self.farm.directory / f"root{len(self._roots)}"
            self._roots[key] = hostroot.write(machine, folder, hung=host.hung, python=host.python)
        return self._roots[key]

    def of(self, *kinds: str) -> tuple[str, ...]:
        """Return the names of the hosts of these kinds."""
        return tuple(name for name, kind in self.kind.items() if kind in kinds)

    def ssh_config(self, *, jump: bool) -> Path:
        """Write a configuration that maps each name to its address, through the jump host if requested."""
        path = self.folder / f"ssh_config-{int(jump)}"
        way = f" ProxyJump {self.jump}:{self.jump_port}\n" if jump else ""
        stanzas = [
            f"Host {name}\n HostName {address}\n{way}"
            for name, address in zip(self.names, self.farm.hosts, strict=False)
        ]
        common = self.farm.ssh_config.read_text(encoding="utf-8").replace("Host 127.*", "Host *")
        path.write_text("".join(stanzas) + common, encoding="utf-8")
        return path


@dataclass(frozen=True)
class HostOutcome:
    """One run over the fleet: documents, report, and the arrival time of each document in seconds."""

    evidences: Mapping[str, Evidence]
    report: Mapping[str, Any]
    after_s: Mapping[str, float]
    saved: Path


def run(fleet: SshFleet, transport: NodeTransport, limits: Limits, saved: Path) -> HostOutcome:
    """Run ``preflight check --hosts … --save DIR`` in process."""
    chosen, cluster = registry(), load(fleet.cluster)
    plan_for = plans(chosen.probes, cluster, CollectOptions())
    watch, evidences, after = Stopwatch(), dict[str, Evidence](), dict[str, float]()
    for evidence in gather(resolve(hosts=fold(fleet.names)), transport, plan_for, limits):
        after[evidence.node] = watch.seconds
        directory.save(saved, [evidence])
        evidences[evidence.node] = evidence
    report = judge([evidences[name] for name in fleet.names], chosen.checks, cluster)
    return HostOutcome(evidences, report, after, saved)


@contextmanager
def over(via: str, fleet: SshFleet, *, jump: bool = False) -> Iterator[NodeTransport]:
    """Connect to a fleet; sixty sshd and collectors that start at once on two cores delay each other."""
    config, connect_timeout_s = fleet.ssh_config(jump=jump), 8 if len(fleet.names) < 20 else 30
    transport: SshTransport | OpenSshTransport
    if via == "openssh":
        transport = OpenSshTransport(config, fleet.names, connect_timeout_s=connect_timeout_s)
    else:
        transport = SshTransport(SshOptions(config, connect_timeout_s=connect_timeout_s), fleet.names)
    try:
        yield transport
    finally:
        transport.close()


def loud(report: Mapping[str, Any], name: str) -> dict[tuple[str, str], str]:
    """Return the findings of a node other than passes and skips: status and check, message."""
    return {
        (finding["status"], finding["check"]): finding["message"] + str(finding["evidence"])
        for finding in report["findings"]
        if name in finding["nodes"] and finding["status"] not in ("pass", "skip")
    }


def assert_true_names(fleet: SshFleet, outcome: HostOutcome, limits: Limits) -> None:
    """Compare the report with the planted faults: each odd host by its cause, all others equal."""
    report = outcome.report
    for name, kind in fleet.kind.items():
        host, silence, findings = ODD.get(kind, FleetHost()), outcome.evidences[name].no_answer, loud(report, name)
        if host.silent:
            assert silence, (name, kind)
            assert (silence["phase"], host.silent[1] in silence["reason"]) == (host.silent[0], True), (
                name,
                silence,
            )
            continue
        assert not silence, (name, kind, silence)
        assert sorted(findings) == list(host.loud), (name, kind, findings)
        assert not host.loud or host.message in findings[host.loud[0]], (name, findings)
    healthy = set(fleet.of(*HEALTHY))
    of_healthy = [finding for finding in report["findings"] if healthy & set(finding["nodes"])]
    assert of_healthy
    apart = [finding for finding in of_healthy if not healthy <= set(finding["nodes"])]
    assert not apart, "healthy nodes share their findings, and none is loud"
    assert all(outcome.after_s[name] < limits.node_s for name in healthy)
    text = render(report, width=300)
    sick = [name for name in fleet.names if name not in healthy]
    assert all(name in text for name in sick)
    assert not any(name in text for name in healthy)
    assert not any(name in render(report, width=3000, verbose=True) for name in healthy), "folded: gpu[001-048]"
    assert bad_nodes(report) == fold(set(sick))


def assert_all_saved(fleet: SshFleet, outcome: HostOutcome) -> None:
    loaded, _ = directory.load([outcome.saved])
    assert [evidence.node for evidence in loaded] == sorted(fleet.names)
    assert {evidence.node: evidence for evidence in loaded} == outcome.evidences


def assert_hung_probe_costs_one_record(fleet: SshFleet, outcome: HostOutcome) -> None:
    (name,) = fleet.of("hung")
    records = outcome.evidences[name].records
    assert records["cmd:ibv_devinfo"]["status"] == "timeout"
    assert {key for key, record in records.items() if record["status"] == "timeout"} == {"cmd:ibv_devinfo"}
    node = next(node for node in outcome.report["nodes"] if node["name"] == name)
    assert list(node["checks"].values()).count("pass") >= 15


def assert_nothing_left(fleet: SshFleet) -> None:
    """No process is left on any host, except the shell that waits for a missing Python (``hostroot``)."""
    until = time.monotonic() + 60
    while left := [command for command in fleet.farm.running().values() if "/enter " not in command]:
        assert time.monotonic() < until, left
        time.sleep(0.05)


def assert_fleet(fleet: SshFleet, via: str, limits: Limits, saved: Path, *, jump: bool = False) -> None:
    watch = Stopwatch()
    with over(via, fleet, jump=jump) as transport:
        outcome = run(fleet, transport, limits, saved)
    assert watch.seconds < limits.run_s + 1
    assert_true_names(fleet, outcome, limits)
    assert_all_saved(fleet, outcome)
    assert_hung_probe_costs_one_record(fleet, outcome)
    assert_nothing_left(fleet)


@contextmanager
def standing(odd: Sequence[str], plain: int, folder: Path) -> Iterator[SshFleet]:
    fleet = SshFleet(odd, plain, folder)
    try:
        fleet.start()
        yield fleet
    finally:
        fleet.farm.stop()


# --- twelve hosts, in the ordinary run -----------------------------------------------------------------

FEW = ("fish", "tcsh", "port-down", "p2p", "memlock", "refused", "changed-key", "cut", "execs", "hung")
FEW_LIMITS = Limits(fanout=64, node_s=16, run_s=40)


@pytest.fixture(scope="module")
def twelve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshFleet]:
    with standing(FEW, 2, tmp_path_factory.mktemp("twelve")) as fleet:
        yield fleet


@pytest.mark.parametrize("via", ["ssh", "openssh"])
def test_twelve_hosts(twelve: SshFleet, via: str, tmp_path: Path) -> None:
    assert_fleet(twelve, via, FEW_LIMITS, tmp_path)


def test_the_command(twelve: SshFleet, tmp_path: Path) -> None:
    """The command as a user types it; the report, the folder and the list for Slurm have the contents tested above."""
    report, saved, exclude = tmp_path / "report.json", tmp_path / "saved", tmp_path / "exclude"
    command = [sys.executable, "-m", "preflight", "check", "--hosts", fold(twelve.names)]
    command += ["--ssh-config", str(twelve.ssh_config(jump=False)), "--cluster", str(twelve.cluster)]
    command += ["--deadline", "16", "--save", str(saved), "--json", str(report), "--exclude-file", str(exclude)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 1, ran.stderr
    assert "Traceback" not in ran.stderr
    assert len(list(saved.glob("*.json"))) == len(twelve.names)
    document = json.loads(report.read_text(encoding="utf-8"))
    assert document["coverage"]["nodes"] == {"planned": 12, "answered": 8, "no_answer": 4}
    sick = twelve.of("port-down", "p2p", "memlock", "refused", "changed-key", "cut", "execs", "hung")
    assert exclude.read_text(encoding="utf-8") == fold(sick) + "\n"
    again = resolve(rerun=report)
    assert again == sick


# --- sixty hosts, with ``pytest -m fleet`` -------------------------------------------------------------

#: The hosts share the processors of this machine, so not all run at once.
SIXTY_LIMITS = Limits(fanout=16, node_s=60, run_s=75)


@pytest.fixture(scope="module")
def sixty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshFleet]:
    with standing(tuple(ODD), 45, tmp_path_factory.mktemp("sixty")) as fleet:
        assert len(fleet.names) == 60
        yield fleet


@pytest.mark.fleet
@pytest.mark.parametrize("jump", [False, True], ids=["direct", "jump"])
@pytest.mark.parametrize("via", ["ssh", "openssh"])
def test_sixty_hosts(sixty: SshFleet, via: str, jump: bool, tmp_path: Path) -> None:
    assert_fleet(sixty, via, SIXTY_LIMITS, tmp_path, jump=jump)
