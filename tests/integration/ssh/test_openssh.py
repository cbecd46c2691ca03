"""The system's own ssh as a transport to real hosts: the same frames, the same names for the same faults."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from preflight.probes.probe import plan
from preflight.transport.errors import TransportError
from preflight.transport.ssh import error_messages
from preflight.transport.ssh.openssh import OpenSshTransport
from tests.support.local_transport import EVIDENCE
from tests.support.sshfarm import Farm, View, Wire, free_port, public
from tests.support.sshfarm.marks import needs_farm, needs_shell
from tests.support.stopwatch import Stopwatch

pytestmark = needs_farm

NODE_S = 10.0


def make_plan(*argv: str, deadline_s: float = 6.0, timeout_s: float = 4.0) -> dict[str, Any]:
    argv = argv or ("echo", "ok")
    target = " ".join(argv)
    probe = {
        "key": f"cmd:{target}",
        "kind": "cmd",
        "target": target,
        "timeout_s": timeout_s,
        "argv": list(argv),
    }
    return {**plan((), node="gpu001", deadline_s=deadline_s), "probes": [probe]}


@pytest.fixture(scope="module")
def farm() -> Iterator[Farm]:
    with Farm(8) as farm:
        yield farm


@pytest.fixture
def host(farm: Farm) -> Iterator[str]:
    """A host that a test may change; it is healthy again afterwards."""
    yield farm.hosts[0]
    farm.fault(farm.hosts[0], "")
    farm._wires.pop(farm.hosts[0], None)
    farm.view(farm.hosts[0], View())


def collect(
    farm: Farm,
    host: str,
    plan: dict[str, Any] | None = None,
    *,
    config: Path | None = None,
    node_s: float = NODE_S,
) -> dict[str, Any]:
    """Collect, and compare the outcome with the promises of every transport."""
    transport = OpenSshTransport(config or farm.ssh_config, [host], connect_timeout_s=2)
    try:
        watch = Stopwatch()
        document = transport.collect(host, plan or make_plan(), time.monotonic() + node_s)
        assert watch.seconds < node_s + 1
    finally:
        transport.close()
    jsonschema.validate(document, EVIDENCE)
    assert farm.left() == {}
    return document


def silence(document: dict[str, Any]) -> tuple[str, str]:
    return document["no_answer"]["phase"], document["no_answer"]["reason"]


def test_an_answer(farm: Farm, host: str) -> None:
    document = collect(farm, host)
    assert document["node"] == "gpu001"
    assert document["records"]["cmd:echo ok"]["out"] == "ok\n"


@pytest.mark.parametrize("shell", ["/bin/dash", pytest.param("/usr/bin/fish", marks=needs_shell("fish")),
                                   pytest.param("/usr/bin/tcsh", marks=needs_shell("tcsh"))])  # fmt: skip
def test_login_shells(farm: Farm, host: str, shell: str) -> None:
    farm.view(host, View(shell=shell))
    assert "cmd:echo ok" in collect(farm, host)["records"]


def test_a_noisy_start_up_file(farm: Farm, host: str) -> None:
    farm.view(
        host,
        View(files={"~/.bashrc": "echo Welcome; echo 'x: Permission denied (publickey).' >&2; read a\n"}),
    )
    assert "cmd:echo ok" in collect(farm, host)["records"]


def test_a_start_up_file_that_execs_another_shell_is_not_fed_our_bytes(farm: Farm, host: str) -> None:
    farm.view(host, View(files={"~/.bashrc": "exec dash\n"}))
    phase, reason = silence(collect(farm, host))
    assert phase == "start"
    assert "execs another shell" in reason


@pytest.mark.parametrize(
    ("fault", "phase", "text"),
    [
        ("silent", "banner", "received no SSH banner"),
        ("banner", "banner", "not an SSH server"),
        ("reset", "banner", "before the login"),
        ("close", "banner", "before the login"),
        ("hostkey", "host-key", "the host key has changed"),
        ("noauth", "authenticate", "it accepts none of your keys"),
    ],
)
def test_faults_by_their_true_names(farm: Farm, host: str, fault: str, phase: str, text: str) -> None:
    farm.fault(host, fault)
    found, reason = silence(collect(farm, host, node_s=5))
    assert (found, text in reason) == (phase, True), reason
    assert host not in reason, "reasons that name the node cannot be folded"


def test_refused_and_unresolved(farm: Farm) -> None:
    refused = farm.hosts[7]
    farm.fault(refused, "refuse")
    assert silence(collect(farm, refused)) == (
        "connect",
        f"connection refused on port {farm.port}: is sshd running?",
    )


def test_unknown_host_key_is_refused_with_the_fix(farm: Farm, host: str, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        "Host *\n UserKnownHostsFile /dev/null\n StrictHostKeyChecking no\n" + farm.ssh_config.read_text()
    )
    phase, reason = silence(collect(farm, host, config=config))
    assert phase == "host-key"
    assert "ssh-keyscan -f HOSTFILE" in reason


def test_a_connection_dropped_twice_is_tried_again(farm: Farm, host: str) -> None:
    farm.accepted[host] = 0
    farm.fault(host, "reset", first=2)
    assert "cmd:echo ok" in collect(farm, host)["records"]


def test_cut_in_mid_answer(farm: Farm, host: str) -> None:
    farm.wire(host, Wire(cut_after_bytes=120_000))
    plan = make_plan("head", "-c", "300000", "/dev/urandom")
    phase, reason = silence(collect(farm, host, plan))
    assert (phase, "the connection was lost: the answer was truncated at" in reason) == ("read", True), reason


def while_it_sleeps(farm: Farm, host: str, act: Callable[[], None]) -> None:
    """Call a function once a host runs ``sleep 60``."""

    def wait() -> None:
        until = time.monotonic() + NODE_S
        while time.monotonic() < until and not any("sleep 60" in command for command in farm.running(host).values()):
            time.sleep(0.02)
        act()

    threading.Thread(target=wait, daemon=True).start()


def test_a_reboot(farm: Farm) -> None:
    host = farm.hosts[6]
    while_it_sleeps(farm, host, lambda: farm.reboot(host))
    phase, reason = silence(collect(farm, host, make_plan("sleep", "60")))
    assert (phase, reason) == ("collect", "the connection was lost")


def test_a_reboot_during_the_login(farm: Farm) -> None:
    host = farm.hosts[4]
    farm.view(host, View(files={"~/.bashrc": "sleep 60\n"}))
    while_it_sleeps(farm, host, lambda: farm.reboot(host))
    phase, reason = silence(collect(farm, host))
    assert (phase, reason) == (
        "start", "the connection was lost before the login shell ran our command; try: ssh HOST true",
    )  # fmt: skip


def test_a_slow_connection_leaves_the_collector_less_time(farm: Farm, host: str) -> None:
    """A hanging probe is recorded as such, although connecting took part of the node's time."""
    farm.wire(host, Wire(delay_s=0.15))
    document = collect(farm, host, make_plan("sleep", "60", deadline_s=11.9, timeout_s=60), node_s=12)
    assert document["records"]["cmd:sleep 60"]["status"] == "timeout"


def test_a_login_shell_that_is_killed(farm: Farm, host: str) -> None:
    farm.view(host, View(files={"~/.bashrc": "kill -9 $$\n"}))
    assert silence(collect(farm, host))[0] == "start"


def test_what_no_deadline_of_the_collector_ends(farm: Farm, host: str) -> None:
    farm.view(host, View(tools={"python3": "cat >/dev/null"}))
    assert silence(collect(farm, host, node_s=2)) == (
        "start", "no answer within 2 s: sshd hangs during the login, or a start-up file hangs, or execs a shell "
        "or program that takes our input (exec fish); try: ssh -v HOST true",
    )  # fmt: skip


def test_behind_a_jump_host(farm: Farm, host: str, tmp_path: Path) -> None:
    jump, port = farm.hosts[5], free_port()
    farm.daemon(jump, port=port)
    with farm.known_hosts.open("a", encoding="utf-8") as known:
        known.write(f"[{jump}]:{port} {public(farm.host_key)}\n")
    config = tmp_path / "config"
    names = {"there": host, "gone": farm.hosts[7]}
    stanzas = [f"Host {name}\n HostName {at}\n ProxyJump {jump}:{port}\n" for name, at in names.items()]
    stanzas.append(f"Host nowhere\n HostName {host}\n ProxyJump {farm.hosts[7]}:1\n")
    config.write_text("".join(stanzas) + farm.ssh_config.read_text().replace("Host 127.*", "Host *"))
    farm.fault(farm.hosts[7], "refuse")
    assert "cmd:echo ok" in collect(farm, "there", config=config)["records"]
    assert silence(collect(farm, "gone", config=config)) == (
        "connect", "the jump host cannot connect to the node: connect failed: Connection refused",
    )  # fmt: skip
    assert silence(collect(farm, "nowhere", config=config)) == (
        "connect", "the jump host: connection refused on port 1: is sshd running?",
    )  # fmt: skip


def test_stderr_of_ssh_counts_though_it_did_not_end(host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a jump host ``ssh`` reports that no banner came, and still waits for the ``ssh`` that connects it."""
    slow = tmp_path / "ssh"
    slow.write_text('#!/bin/sh\n[ "$1" = -G ] || { echo Connection timed out during banner exchange >&2; sleep 60; }\n')
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    transport = OpenSshTransport(None, [host])
    assert silence(transport.collect(host, make_plan(), time.monotonic() + 2))[0] == "banner"
    transport.close()


def test_close_ends_what_runs(farm: Farm, host: str) -> None:
    transport = OpenSshTransport(farm.ssh_config, [host])
    closed: list[Stopwatch] = []

    def close() -> None:
        closed.append(Stopwatch())
        transport.close()

    while_it_sleeps(farm, host, close)
    document = transport.collect(host, make_plan("sleep", "60"), time.monotonic() + 30)
    assert closed[0].seconds < 2
    assert silence(document) == ("collect", "interrupted")
    assert silence(transport.collect(host, make_plan(), time.monotonic() + 5)) == ("connect", "interrupted")
    assert farm.left() == {}


def test_settings_of_people_do_not_disturb(farm: Farm, host: str, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        "Host *\n RequestTTY force\n RemoteCommand tmux\n LocalForward 1 127.0.0.1:1\n LogLevel QUIET\n"
        f" PermitLocalCommand yes\n LocalCommand touch {tmp_path}/local\n"
        f" ControlMaster auto\n ControlPath {tmp_path}/%h\n ControlPersist 60\n"
        + farm.ssh_config.read_text()
    )  # fmt: skip
    assert "cmd:echo ok" in collect(farm, host, config=config)["records"]
    assert os.listdir(tmp_path) == ["config"]


def test_an_invalid_configuration_is_found_before_any_node_is_touched(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host *\n Prot 22\n", encoding="utf-8")
    with pytest.raises(TransportError, match=r"config.*line 2.*[Bb]ad configuration option: prot"):
        OpenSshTransport(config, ["gpu001"])


def test_no_ssh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TransportError, match="install OpenSSH"):
        OpenSshTransport(None, ["gpu001"])


@pytest.mark.parametrize(
    ("stderr", "phase", "reason", "busy"),
    [
        # messages of OpenSSH 7.4 to 10 that the tests above do not cause
        (b"ssh: Could not resolve hostname n1: Name or service not known\r\n", "resolve", "Name or service", False),
        (b"ssh: connect to host n1 port 22: Connection timed out\r\n", "connect", "packets are dropped", False),
        (b"ssh: connect to host n1 port 22: No route to host\r\n", "connect", "No route to host", False),
        (b"ssh_exchange_identification: read: Connection reset by peer\r\n", "banner", "was reset", True),
        (b"kex_exchange_identification: Connection closed by remote host\r\n"
         b"Connection closed by UNKNOWN port 65535\r\n", "banner", "through the jump host", True),
        (b"Unable to negotiate with 10.0.0.1 port 22: no matching host key type found. Their offer: ssh-rsa\r\n",
         "banner", "no matching host key type", False),
        (b"Received disconnect from 10.0.0.1 port 22:2: Too many authentication failures\r\n"
         b"Disconnected from 10.0.0.1 port 22\r\n", "authenticate", "IdentitiesOnly", False),
        (b"@ WARNING: REVOKED HOST KEY DETECTED!               @\r\n", "host-key", "revoked", False),
        (b"channel 0: open failed: connect failed: open failed\r\n", "start", "sshd refused a session", False),
        (b"who knows\r\n", "connect", "ssh gave up: who knows", False),
        (b"", "connect", "without a message", False),
    ],
)  # fmt: skip
def test_words_of_ssh(stderr: bytes, phase: str, reason: str, busy: bool) -> None:
    meaning = error_messages.meaning(stderr)
    assert (meaning.answer.phase, meaning.busy) == (phase, busy)
    assert reason in meaning.answer.reason
