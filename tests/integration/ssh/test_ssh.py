"""Real sshd, login shells and keys in the variety of sites, with the outcome of each."""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from preflight.evidence import document as evidence
from preflight.transport import bootstrap_protocol
from preflight.transport.ssh.connection import PLAIN
from preflight.transport.ssh.paramiko_transport import SshOptions, SshTransport
from preflight.transport.ssh.session import SshSession
from tests.integration.ssh.test_faults import make_plan, probe
from tests.support.sshfarm import Farm, View, Wire, keygen, network, public
from tests.support.sshfarm.marks import needs_farm, needs_network, needs_shell
from tests.support.stopwatch import Stopwatch

DEADLINE_S = 15.0
GATE, SECOND_GATE = "127.77.9.1", "127.77.9.2"


def collect(
    farm: Farm,
    hosts: Sequence[str],
    config: Path | None = None,
    deadline_s: float = DEADLINE_S,
    extra: Sequence[Mapping[str, Any]] = (),
    connect_timeout_s: float = 8.0,
) -> dict[str, evidence.Evidence]:
    """Collect hosts of a farm, all at once."""
    transport = SshTransport(SshOptions(config or farm.ssh_config, connect_timeout_s=connect_timeout_s), hosts)

    def one(host: str) -> evidence.Evidence:
        watch = Stopwatch()
        document = transport.collect(host, make_plan(*extra), time.monotonic() + deadline_s)
        assert watch.seconds < deadline_s + 1
        return evidence.from_document(document, "test")

    with ThreadPoolExecutor(len(hosts)) as pool:
        try:
            return dict(zip(hosts, pool.map(one, hosts), strict=True))
        finally:
            transport.close()


def answered(node: evidence.Evidence) -> bool:
    assert node.no_answer is None, node.no_answer
    return node.text("cmd:echo ok") == "ok\n"


def reason(node: evidence.Evidence, phase: str) -> str:
    assert node.no_answer, "there is an answer"
    assert node.no_answer["phase"] == phase, node.no_answer
    return node.no_answer["reason"]


def config_of(farm: Farm, tmp_path: Path, *first: str, general: str = "") -> Path:
    """Write a configuration: stanzas before the farm's own, and lines for all hosts."""
    path = tmp_path / "ssh_config"
    path.write_text("\n".join([*first, farm.ssh_config.read_text(), general]) + "\n", encoding="utf-8")
    return path


# Login shells


#: A session recorder: it runs a command on a separate terminal, and loses its exit status.
PTY = """python3 -c 'import pty, sys; pty.spawn(["bash", *sys.argv[1:]])'"""


def python() -> bytes:
    return Path("/usr/bin/python3").resolve().read_bytes()


@dataclass(frozen=True)
class Shell:
    """A login shell with its habits; ``reason_text`` is the expected reason for no answer, if any."""

    name: str
    shell: str = "/bin/bash"
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    tools: Mapping[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    reason_text: str = ""


def bash(name: str, rc: str, reason_text: str = "") -> Shell:
    return Shell(name, files={"~/.bashrc": rc + "\n"}, reason_text=reason_text)


NO_PYTHON = ("/usr/bin/python3*", "/usr/local/bin/python3*")
SHELLS = (
    Shell("sh", "/bin/sh"),
    Shell("bash"),
    Shell("zsh", "/usr/bin/zsh", {"~/.zshenv": "echo welcome\n"}),
    Shell("fish", "/usr/bin/fish", {"~/.config/fish/config.fish": "echo welcome\n"}),
    Shell("tcsh", "/usr/bin/tcsh", {"~/.tcshrc": "echo welcome\nset verbose\n"}),
    Shell("restricted bash", "/bin/rbash"),
    bash("noise", "echo 'Welcome!'; echo errors >&2; head -c 100000 /dev/urandom"),
    bash("noise that looks like ours", "echo PREFLIGHT-READY; echo PREFLIGHT-FRAME/1 12 ab"),
    bash("tracing", "set -xv"),
    bash("reads a line", "read -t 5 line"),
    bash("reads all lines that there are", "while read -t 1 line; do :; done"),
    bash("slow", "sleep 2"),
    bash("poisoned Python", "export PYTHONHOME=/none PYTHONPATH=/none PYTHONSTARTUP=/none PYTHONINSPECT=1"),
    bash("odd locale", "export LC_ALL=C LANG=tlh_TLH.klingon"),
    bash("shadowed commands", "command() { echo no; }; alias sh='echo no'; umask 777; set -eu; cd /"),
    bash("exits", "exit 0", "never ran our command: a start-up file exits"),
    bash("execs dash", "exec dash", "a start-up file execs another shell"),
    bash("execs tcsh", "exec tcsh", "a start-up file execs another shell"),
    bash("records sessions", f'[ "$ON" ] || ON=1 exec {PTY} -c "$BASH_EXECUTION_STRING"', "our command a terminal"),
    bash("redirects its input", "exec </dev/null", "a start-up file redirects standard input"),
    bash("closes its input", "exec <&-", "a start-up file redirects standard input"),
    bash("redirects its output", "exec >~/log", "a start-up file redirects standard output"),
    bash("closes its output", "exec >&- 2>&-", "a start-up file redirects standard output"),
    bash("traces and exits", "set -xv; trap 'exit 3' DEBUG", "the login shell did not run our command: exit status 3"),
    Shell(
        "prints the command",
        "/bin/echoes",
        {"/bin/echoes": '#!/bin/sh\necho "$@"\n'},
        reason_text="and never ran our command",
    ),
    bash("execs fish", "exec fish", "execs a shell or program that takes our input"),
    bash("execs a reader", "exec sh -c 'cat >~/eaten'", "the node's deadline passed before the login shell ran"),
    bash("hangs", "sleep 60", "the node's deadline passed before the login shell ran our command"),
    Shell(
        "nologin",
        "/usr/sbin/nologin",
        reason_text="exit status 1; the node printed: This account is currently not available.",
    ),
    Shell("false", "/bin/false", reason_text="the login shell did not run our command: exit status 1"),
    Shell("missing shell", "/bin/nothing", reason_text="no key was accepted"),
    Shell("platform-python", files={"/usr/libexec/platform-python": python()}, without=NO_PYTHON),
    Shell("version manager's shim", tools={"python3": "echo 'shim: python3: command not found' >&2; exit 127"}),
    Shell("too old a Python first", tools={"python3": "exit 97"}),
    Shell(
        "too old a Python only",
        tools={"python3": "exit 97"},
        without=NO_PYTHON,
        reason_text="; python3 cannot be used; s",
    ),
)


@pytest.fixture(scope="module")
def shells() -> Iterator[tuple[Farm, dict[str, evidence.Evidence]]]:
    """One run over all login shells, a few at a time."""
    with Farm(len(SHELLS)) as farm:
        transport = SshTransport(SshOptions(farm.ssh_config), farm.hosts)

        def one(host: str, case: Shell) -> evidence.Evidence:
            farm.view(host, View(case.shell, files=case.files, tools=case.tools, without=case.without))
            document = transport.collect(host, make_plan(), time.monotonic() + DEADLINE_S)
            return evidence.from_document(document, "test")

        with ThreadPoolExecutor(8) as pool:
            found = dict(zip(farm.hosts, pool.map(one, farm.hosts, SHELLS), strict=True))
        transport.close()
        yield farm, found


@needs_farm
@needs_shell("zsh")
@needs_shell("fish")
@needs_shell("tcsh")
@pytest.mark.parametrize("number", range(len(SHELLS)), ids=[shell.name for shell in SHELLS])
def test_login_shell(shells: tuple[Farm, dict[str, evidence.Evidence]], number: int) -> None:
    farm, found = shells
    host, case = farm.hosts[number], SHELLS[number]
    if case.reason_text:
        assert case.reason_text in reason(found[host], "authenticate" if "key" in case.reason_text else "start")
    else:
        assert answered(found[host])
    for eaten in farm.directory.glob(f"{host}-*/home/eaten"):
        assert eaten.read_bytes() in bootstrap_protocol.OPENING
    if case.name != "hangs":  # a process started by a start-up file belongs to the user, and ends by itself
        assert not farm.left(host)


def test_the_command_means_the_same_to_every_shell() -> None:
    quoted = bootstrap_protocol.COMMAND.removeprefix("sh -c '").removesuffix("'")
    assert f"sh -c '{quoted}'" == bootstrap_protocol.COMMAND
    assert not set(quoted) & set("'!\\\n`")
    assert len(bootstrap_protocol.COMMAND) < 1024  # a word of the oldest csh


# Time


@needs_farm
def test_the_collector_is_given_no_more_time_than_is_left() -> None:
    with Farm(1) as farm:
        host = farm.hosts[0]
        farm.view(host, View(tools={"hang": "exec sleep 60"}))
        node = collect(farm, [host], deadline_s=4, extra=[probe("hang", timeout_s=50)])[host]
        assert answered(node)
        assert not node.record("cmd:hang").ok
        assert not farm.left(host)


@needs_farm
@needs_network
def test_names_that_do_not_resolve() -> None:
    def run() -> dict[str, evidence.Evidence]:
        with Farm(1) as farm:
            return collect(farm, [*(f"nowhere-{number}.invalid" for number in range(40)), farm.hosts[0]])

    found = network.in_private_network(run)  # no name server there
    assert answered(found.pop("127.77.0.1"))
    for node in found.values():
        assert "does not resolve" in reason(node, "resolve")


@needs_farm
def test_nothing_of_a_transport_is_left() -> None:
    before, threads = set(os.listdir("/proc/self/fd")), threading.active_count()
    with Farm(4) as farm:
        farm.fault(farm.hosts[1], "noauth")
        farm.fault(farm.hosts[2], "close")
        collect(farm, farm.hosts, connect_timeout_s=2)
    assert len(os.listdir("/proc/self/fd")) <= len(before) + 1
    until = time.monotonic() + 60
    while time.monotonic() < until and threading.active_count() > threads:
        time.sleep(0.02)
    assert threading.active_count() <= threads


# Jump hosts


@needs_farm
def test_a_jump_host_is_shared_by_the_nodes_behind_it(tmp_path: Path) -> None:
    with Farm(30) as farm:
        farm.daemon(GATE)
        config = config_of(farm, tmp_path, f"Host !{GATE} 127.77.0.*\n ProxyJump {GATE}")
        farm.fault(farm.hosts[3], "refuse")
        farm.fault(farm.hosts[4], "silent")
        farm.fault(farm.hosts[5], "hostkey")
        found = collect(farm, farm.hosts, config, deadline_s=25, connect_timeout_s=4)
        refused = "Connect failed" if PLAIN else "Connection refused"  # only the tuned connection has the host's reason
        assert refused in reason(found.pop(farm.hosts[3]), "connect")
        assert "sent no SSH banner" in reason(found.pop(farm.hosts[4]), "banner")
        assert "has changed" in reason(found.pop(farm.hosts[5]), "host-key")
        assert all(answered(node) for node in found.values())
        assert not farm.left()


@needs_farm
def test_keys_that_are_changed_in_mid_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers, changes = probe("seq", "150000"), []
    agreed = SshSession._parse_newkeys  # type: ignore[attr-defined]

    def counted(session: SshSession, message: object) -> None:
        changes.append(session)
        agreed(session, message)

    monkeypatch.setattr(SshSession, "_parse_newkeys", counted)
    with Farm(1) as farm:
        farm.daemon(GATE, "RekeyLimit=16K")
        node = collect(farm, [GATE], extra=[numbers])[GATE]
    assert answered(node)
    assert node.text(numbers["key"]).split()[-1] == "150000"
    assert len(changes) > 2


@needs_farm
def test_a_busy_sshd_is_retried(tmp_path: Path) -> None:
    with Farm(1) as farm:
        farm.daemon(GATE, "MaxStartups=2:50:6")
        names = [f"node{number:02}" for number in range(16)]
        config = config_of(farm, tmp_path, f"Host node*\n HostName {GATE}\n HostKeyAlias [{GATE}]:{farm.port}\nHost *")
        config.write_text(config.read_text().replace("Host 127.*", "Host *"))
        found = collect(farm, names, config)
        assert all(answered(node) for node in found.values())


@needs_farm
def test_jump_hosts_in_a_row_and_what_can_be_wrong_with_them(tmp_path: Path) -> None:
    with Farm(5) as farm:
        plain, unknown, closed, dead, command = farm.hosts
        farm.daemon(GATE)
        farm.daemon(SECOND_GATE)
        third, fourth = "127.77.9.3", "127.77.9.4"
        farm.daemon(third, "AllowTcpForwarding=no")
        farm.daemon(fourth)
        farm.known_hosts.write_text(
            "".join(line + "\n" for line in farm.known_hosts.read_text().splitlines() if fourth not in line)
        )
        ssh = f"ssh -F {farm.ssh_config} -W %h:%p {GATE}"
        config = config_of(
            farm,
            tmp_path,
            f"Host {plain}\n ProxyJump {GATE},{farm.user}@{SECOND_GATE}:{farm.port}",
            f"Host {unknown}\n ProxyJump {fourth}",
            f"Host {closed}\n ProxyJump {third}",
            f"Host {dead}\n ProxyCommand echo 'gate is down' >&2; exit 1",
            f"Host {command}\n ProxyCommand {ssh}",
        )
        found = collect(farm, farm.hosts, config, connect_timeout_s=3)
        assert answered(found[plain])
        assert answered(found[command])
        assert f"jump host {fourth}: the host key is unknown" in reason(found[unknown], "host-key")
        assert "AllowTcpForwarding is off" in reason(found[closed], "connect")
        assert "gate is down" in reason(found[dead], "banner")
        assert not farm.left()


@needs_farm
def test_the_time_of_a_slow_jump_host_is_not_the_nodes(tmp_path: Path) -> None:
    with Farm(1) as farm:
        farm.daemon(GATE)
        farm.wire(farm.hosts[0], Wire(delay_s=0.4))
        slow = f"sh -c 'sleep 4; exec ssh -F {farm.ssh_config} -W %h:%p {GATE}'"
        farm.daemon(SECOND_GATE)
        config = config_of(
            farm,
            tmp_path,
            f"Host {SECOND_GATE}\n ProxyCommand {slow}\nHost {farm.hosts[0]}\n ProxyJump {SECOND_GATE}",
        )
        assert answered(collect(farm, farm.hosts, config, connect_timeout_s=6)[farm.hosts[0]])


# Keys


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "agent"
    command, never = ["ssh-agent", "-a", str(path)], {"SSH_ASKPASS": "/bin/false", "SSH_ASKPASS_REQUIRE": "force"}
    started = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **never})
    yield path
    number = re.search(r"SSH_AGENT_PID=(\d+)", started.stdout)
    assert number
    os.kill(int(number[1]), 15)


def add(agent: Path, key: Path, *how: str) -> None:
    command = ["ssh-add", "-q", *how, str(key)]
    subprocess.run(command, check=True, env={**os.environ, "SSH_AUTH_SOCK": str(agent)}, stdin=subprocess.DEVNULL)


@needs_farm
@pytest.mark.parametrize("kind", ["ed25519", "rsa", "ecdsa"])
def test_kinds_of_keys(tmp_path: Path, kind: str) -> None:
    key = keygen(tmp_path / f"id_{kind}", kind=kind)
    with Farm(1) as farm:
        farm.authorize(public(key))
        config = config_of(farm, tmp_path, f"Host *\n IdentityFile {key}")
        config.write_text(config.read_text().replace(f" IdentityFile {farm.key}\n", ""))
        assert answered(collect(farm, farm.hosts, config)[farm.hosts[0]])


@needs_farm
@pytest.mark.parametrize("only", [False, True])
def test_the_agent_is_shared_by_many_threads(tmp_path: Path, agent: Path, only: bool) -> None:
    with Farm(12) as farm:
        other, key = keygen(tmp_path / "other"), Path(shutil.move(farm.key, tmp_path / "held"))
        for held in (other, key):
            add(agent, held)
        key.unlink()
        named = f" IdentitiesOnly yes\n IdentityFile {farm.key}.pub" if only else " IdentitiesOnly no"
        config = config_of(farm, tmp_path, f"Host *\n IdentityAgent {agent}\n{named}")
        config.write_text(config.read_text().replace(f" IdentityFile {farm.key}\n", ""))
        assert all(answered(node) for node in collect(farm, farm.hosts, config).values())


@needs_farm
@pytest.mark.parametrize("more", [False, True])
def test_an_agent_that_does_not_sign_costs_one_key(tmp_path: Path, agent: Path, more: bool) -> None:
    held = keygen(tmp_path / "held")
    add(agent, held, "-c")  # its user is prompted first, and declines
    with Farm(1) as farm:
        farm.authorize(public(held))
        config = config_of(farm, tmp_path, f"Host *\n IdentityAgent {agent}\n IdentitiesOnly no")
        if more:
            assert answered(collect(farm, farm.hosts, config)[farm.hosts[0]])
            return
        config.write_text(config.read_text().replace(f" IdentityFile {farm.key}\n", ""))
        message = reason(collect(farm, farm.hosts, config)[farm.hosts[0]], "authenticate")
    assert "agent key held: the agent refused to sign" in message


@needs_farm
@pytest.mark.parametrize("kind", ["ed25519", "rsa", "ecdsa"])
@pytest.mark.parametrize("where", ["file", "CertificateFile", "agent"])
def test_user_certificates(tmp_path: Path, agent: Path, kind: str, where: str) -> None:
    authority, key = keygen(tmp_path / "authority"), keygen(tmp_path / "id", kind=kind)
    with Farm(1) as farm:
        sign = ["ssh-keygen", "-q", "-s", str(authority), "-I", "me", "-n", farm.user, "-V", "-5m:+1h", f"{key}.pub"]
        subprocess.run(sign, check=True, stdin=subprocess.DEVNULL)
        shutil.copy(f"{authority}.pub", farm.directory / "authority.pub")
        (farm.directory / "authority.pub").chmod(0o644)
        trusted = (f"TrustedUserCAKeys={farm.directory}/authority.pub", "AuthorizedKeysFile=none")
        farm.view(farm.hosts[0], View(sshd=trusted))
        named = f"Host *\n IdentityFile {key}"
        if where == "agent":
            add(agent, key)
            key.unlink()
            named = f"Host *\n IdentityAgent {agent}\n IdentitiesOnly no"
        elif where == "CertificateFile":
            named += f"\n CertificateFile {shutil.move(f'{key}-cert.pub', tmp_path / 'elsewhere.pub')}"
        config = config_of(farm, tmp_path, named)
        config.write_text(config.read_text().replace(f" IdentityFile {farm.key}\n", ""))
        assert answered(collect(farm, farm.hosts, config)[farm.hosts[0]])


@needs_farm
def test_message_names_keys_that_cannot_be_used(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", str(locked)], check=True)
    (tmp_path / "torn").write_text(
        "-----BEGIN OPENSSH PRIVATE KEY-----\n" + base64.b64encode(b"openssh-key-v1\0\0\0\0\4none\0").decode()
    )
    with Farm(1) as farm:
        own = "\n".join(f" IdentityFile {path}" for path in (locked, tmp_path / "torn", tmp_path / "absent"))
        config = config_of(farm, tmp_path, f"Host *\n IdentityAgent none\n{own}")
        config.write_text(config.read_text().replace(f" IdentityFile {farm.key}\n", ""))
        message = reason(collect(farm, farm.hosts, config)[farm.hosts[0]], "authenticate")
        many = [keygen(tmp_path / f"id_{number}") for number in range(8)]
        config.write_text("Host *\n" + "".join(f" IdentityFile {key}\n" for key in many) + config.read_text())
        crowded = reason(collect(farm, farm.hosts, config)[farm.hosts[0]], "authenticate")
    assert "the host disconnected after 6 keys: too many" in crowded
    assert "there is no key to offer" in message
    assert f"{locked} needs a passphrase" in message
    assert "torn is not a usable key" in message
