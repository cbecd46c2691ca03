"""Switches over a real sshd with a forced command, and over TLS: what is sent, and that all ways agree."""

from __future__ import annotations

import base64
import datetime
import http.server
import json
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from preflight.collect import command_switches
from preflight.collect.command_switches import GAP_S, WithCommandSwitches, command_plan
from preflight.collect.switch_lock import LockedSwitches
from preflight.evidence.document import read
from preflight.parsers.switch.eos_answers import COMMANDS
from preflight.parsers.switch.session import COMMANDED
from preflight.transport.command_rules import CommandRules
from preflight.transport.eapi import Eapi
from preflight.transport.errors import TransportError
from tests.support.eos import NAME, EosLeaf
from tests.support.in_process import run
from tests.support.junos import JunosLeaf
from tests.support.linux_switch import LinuxLeaf
from tests.support.nxos import NxosLeaf
from tests.support.sshfarm import SSHD, free_port, keygen, public
from tests.support.sshfarm.marks import needs_farm

WINDOW_S = 1

Leaf = EosLeaf | NxosLeaf | JunosLeaf | LinuxLeaf

#: A login shell without a shell: it answers known commands from files, and notes each one with its time.
_CLI = """#!/bin/sh
printf '%s\\n%s\\n' "$(date +%s.%N)" "$SSH_ORIGINAL_COMMAND" >> {folder}/log
name=$(printf '%s' "$SSH_ORIGINAL_COMMAND" | tr " |/*'" '_____')
[ ! -f {folder}/slow ] || sleep 5
[ -f {folder}/"$name" ] || {{ echo '% Invalid input'; exit 1; }}
cat {folder}/"$name"
[ ! -f {folder}/"$name".later ] || mv {folder}/"$name".later {folder}/"$name"
"""


class SshDevice:
    """An sshd that runs one command for every request; ``log`` are the commands with their times."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("host_key", "id"):
            keygen(folder / name)
        cli = folder / "cli"
        cli.write_text(_CLI.format(folder=folder))
        cli.chmod(0o755)
        (folder / "authorized").write_text(f'restrict,command="{cli}" {public(folder / "id")}\n')
        (folder / "authorized").chmod(0o600)
        self.port = free_port()
        (folder / "sshd_config").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {folder}/host_key\nAuthorizedKeysFile "
            f"{folder}/authorized\nPidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin prohibit-password\n"
            "SetEnv SHLVL=2\n"  # bash then reads no ~/.bashrc, which may take seconds
        )
        Path("/run/sshd").mkdir(exist_ok=True)
        assert SSHD
        self.process = subprocess.Popen([SSHD, "-D", "-f", folder / "sshd_config"], stderr=subprocess.DEVNULL)
        (folder / "known").write_text(f"[127.0.0.1]:{self.port} {public(folder / 'host_key')}\n")
        self.config = folder / "ssh_config"
        self.config.write_text(
            f"Host {NAME}\n HostName 127.0.0.1\n Port {self.port}\n User root\n IdentityFile {folder}/id\n"
            f" IdentitiesOnly yes\n UserKnownHostsFile {folder}/known\n StrictHostKeyChecking yes\n"
            f" HostKeyAlias [127.0.0.1]:{self.port}\n"
        )
        until = time.monotonic() + 10
        while not self._listens():
            assert time.monotonic() < until
            time.sleep(0.02)

    def _listens(self) -> bool:
        with socket.socket() as connection:
            return connection.connect_ex(("127.0.0.1", self.port)) == 0

    def sessions(self) -> list[int]:
        """Return the processes of sshd that serve a connection."""
        return [
            int(status.parent.name) for status in Path("/proc").glob("[0-9]*/stat")
            if _parent(status) == self.process.pid
        ]  # fmt: skip

    def answers(self, leaf: Leaf, platform: str = "eos") -> None:
        for later, suffix in ((False, ""), (True, ".later")):
            texts = shown_by(leaf, later)
            for command in texts:
                self.path(COMMANDED[platform].sent(command), suffix).write_text(texts[command])
        (self.folder / "log").write_text("")

    def path(self, sent: str, suffix: str = "") -> Path:
        return self.folder / (re.sub(r"[ |/*']", "_", sent) + suffix)

    def log(self) -> list[tuple[float, str]]:
        lines = (self.folder / "log").read_text().splitlines()
        return list(zip(map(float, lines[::2]), lines[1::2], strict=True))


def shown_by(leaf: Leaf, later: bool = False) -> dict[str, str]:
    """Return what a leaf prints for each command that preflight sends."""
    if isinstance(leaf, NxosLeaf):
        return {command: json.dumps(answer) for command, answer in leaf.rows(later).items()}
    return leaf.texts(later)


def _parent(status: Path) -> int:
    try:
        return int(status.read_text().rpartition(")")[2].split()[1])
    except OSError:  # it ended
        return 0


class EapiDevice:
    """eAPI over TLS; ``sent`` are the commands that arrived."""

    def __init__(self, folder: Path) -> None:
        self.sent: list[str] = []
        self.counts: dict[str, int] = {}
        self.leaf = EosLeaf()
        self.page = b""  # instead of all answers
        self.silent = False  # keep each client waiting until it disconnects
        self.waiting = 0  # these clients
        device = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                wanted = "Basic " + base64.b64encode(b"reader:secret").decode()
                if device.silent:
                    device.sent += body["params"]["cmds"]
                    device.waiting += 1
                    self.rfile.read(1)  # the end of the connection
                    device.waiting -= 1
                    return
                admitted = self.path == "/command-api" and self.headers.get("Authorization") == wanted
                content = device.page or json.dumps(device.reply(body)).encode()
                self.send_response(200 if admitted else 401)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server.socket = self.context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        self.folder = folder

    def reply(self, body: dict[str, Any]) -> dict[str, Any]:
        (command,) = body["params"]["cmds"]
        self.sent.append(command)
        times = self.counts[command] = self.counts.get(command, 0) + 1
        answers = self.leaf.now if times == 1 else self.leaf.later
        if command not in answers:
            return {"jsonrpc": "2.0", "id": body["id"], "error": {"code": 1002, "message": "invalid command"}}
        return {"jsonrpc": "2.0", "id": body["id"], "result": [answers[command]]}

    def shows(self, name: str, *, days: int = 2) -> Path:
        """Show a certificate of this name that ends in so many days; return its file."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.datetime.now(datetime.timezone.utc)
        made = (
            x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
            .serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=9))
            .not_valid_after(now + datetime.timedelta(days=days))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )  # fmt: skip
        path = self.folder / "certificate.pem"
        path.write_bytes(made.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))  # fmt: skip
        self.context.load_cert_chain(path)
        return path


@pytest.fixture(scope="module")
def ssh_device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshDevice]:
    device = SshDevice(tmp_path_factory.mktemp("device"))
    yield device
    device.process.terminate()
    device.process.wait()


@pytest.fixture(scope="module")
def eapi(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EapiDevice]:
    device = EapiDevice(tmp_path_factory.mktemp("eapi"))
    yield device
    device.server.shutdown()
    device.server.server_close()


def cluster(folder: Path, words: str = "", name: str = NAME, platform: str = "eos") -> Path:
    path = folder / "cluster.toml"
    path.write_text(f'[switches]\n{platform} = "{name}"\nroce_priority = 3\nroce_dscp = 26\ndcqcn = true\n{words}')
    return path


def check(folder: Path, *options: str, words: str = "", window: bool = True, platform: str = "eos") -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    run("check", "--switches", "--cluster", str(cluster(folder, words, platform=platform)), "--save",
        str(folder / "saved"), "--json", str(folder / "report.json"),
        *(("--window", str(WINDOW_S)) if window else ()), *options, expect=(0, 1, 3))  # fmt: skip
    made: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return made


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, eapi: EapiDevice) -> EapiDevice:
    """Let the switch's name lead to this machine, and have an account of it."""
    real = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *more, **words: real(
        "127.0.0.1" if host == NAME else host, *more, **words))  # fmt: skip
    (tmp_path / "netrc").write_text(f"machine {NAME} login reader password secret\n")
    (tmp_path / "netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    eapi.sent, eapi.counts, eapi.page, eapi.leaf = [], {}, b"", EosLeaf()
    return eapi


def through_eapi(eapi: EapiDevice, ca: Path) -> str:
    return f'eos_via = "eapi"\neapi_port = {eapi.port}\neapi_ca = "{ca}"\n'


@needs_farm
def test_all_ways_give_the_same_findings_and_send_only_words_of_the_table(
    ssh_device: SshDevice, here: EapiDevice, tmp_path: Path
) -> None:
    leaf = EosLeaf()
    for module in leaf.port("Ethernet2/1", "show interfaces transceiver dom thresholds"):
        module["parameters"]["rxPower"]["channels"]["3"] = -12.5
    ssh_device.answers(leaf)
    here.leaf = leaf
    (tmp_path / "pasted.txt").write_text(leaf.session())
    over_ssh = check(tmp_path / "ssh", "--ssh-config", str(ssh_device.config))
    over_eapi = check(tmp_path / "eapi", words=through_eapi(here, here.shows(NAME)))
    run("judge", "--switch-files", str(tmp_path / "pasted.txt"), "--cluster", str(cluster(tmp_path)), "--json",
        str(tmp_path / "pasted.json"), expect=(0, 1, 3))  # fmt: skip
    pasted = json.loads((tmp_path / "pasted.json").read_text())
    texts = {json.dumps({**report, "run": None}, sort_keys=True) for report in (over_ssh, over_eapi, pasted)}
    assert len(texts) == 1
    assert ("fail", "optics.switch-end") in {(f["status"], f["check"]) for f in pasted["findings"]}
    assert ("pass", "optics.fec-margin") in {(f["status"], f["check"]) for f in pasted["findings"]}  # growth is known
    documents = [read(tmp_path / way / "saved" / f"{NAME}.json") for way in ("ssh", "eapi")]
    assert documents[0].records == documents[1].records
    assert [document.collector["via"] for document in documents] == ["ssh", "eapi"]
    assert "secret" not in (tmp_path / "eapi" / "saved" / f"{NAME}.json").read_text()

    times, sent = zip(*ssh_device.log(), strict=True)
    twice = [question for question, about in COMMANDS.items() if about.twice]
    assert list(sent) == [f"{question} | json" for question in (*COMMANDS, *twice)]
    assert here.sent == [*COMMANDS, *twice]
    assert min(after - before for before, after in pairwise(times)) >= GAP_S * 0.9


#: Question -> its answer in the hands of a stranger, and a part of the reason for which it is not read, if it is not.
STRANGE: dict[str, tuple[Callable[[str], str], str]] = {
    "show processes top once": (lambda text: "% Authorization denied for command 'show processes top once'", "denied"),
    "show version": (lambda text: f"*** {{Authorized}} users only! ***\nlog in > read\n{text}", ""),
    "show hostname": (lambda text: "% Invalid input (at token 1: 'hostname')", "% Invalid input"),
    "show interfaces": (lambda text: text.replace('"to ', '"\\u001b[2Jto '), ""),
    "show interfaces phy detail": (lambda text: text + " " * (1 << 20), "exceeds 1 MiB"),
    "show interfaces transceiver dom thresholds": (lambda text: text[: len(text) // 2], "line"),
    "show lldp neighbors detail": (lambda text: "<html>\n{ color: red }\n<form>Log in</form></html>", "line 1"),
}


@needs_farm
def test_strange_answers_over_ssh_cost_no_other_answer(
    ssh_device: SshDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_switches, "_MOST_BYTES", 1 << 20)
    monkeypatch.setattr(command_switches, "GAP_S", 0.0)
    ssh_device.answers(EosLeaf().change("Ethernet1/1", interfaceStatus="connected\x1b]0;x\x07"))
    for question, (change, _) in STRANGE.items():
        path = ssh_device.path(f"{question} | json")
        path.write_text(change(path.read_text()))
    report = check(tmp_path, "--ssh-config", str(ssh_device.config), window=False)
    assert report["exit_status"] == 3
    assert {finding["status"] for finding in report["findings"]} <= {"unknown", "pass", "skip"}
    records = read(tmp_path / "saved" / f"{NAME}.json").records
    assert set(records) == {f"eos:{question}" for question in STRANGE}
    for question, (_, why) in STRANGE.items():
        record = records[f"eos:{question}"]
        assert (record["status"], why in record.get("why", "")) == ("error" if why else "ok", True), record


def interrupt(options: list[str], opened: Callable[[], object]) -> None:
    """Interrupt a run once a connection is open; assert that none stays open."""
    process = subprocess.Popen([sys.executable, "-m", "preflight", "check", "--switches", *options],
                               stdout=subprocess.DEVNULL)  # fmt: skip
    try:
        until = time.monotonic() + 30
        while not opened():
            assert time.monotonic() < until
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) != 0
        while opened():
            assert time.monotonic() < until
            time.sleep(0.02)
    finally:
        process.kill()
        process.wait()


@needs_farm
def test_an_interrupt_leaves_no_session_open(ssh_device: SshDevice, tmp_path: Path) -> None:
    ssh_device.answers(EosLeaf())
    (ssh_device.folder / "slow").touch()
    try:
        interrupt(
            ["--cluster", str(cluster(tmp_path)), "--ssh-config", str(ssh_device.config)],
            lambda: ssh_device.log() and ssh_device.sessions(),
        )
    finally:
        (ssh_device.folder / "slow").unlink()


def test_an_interrupt_leaves_no_connection_to_eapi_open(here: EapiDevice, tmp_path: Path) -> None:
    here.silent = True
    (tmp_path / "netrc").write_text("machine localhost login reader password secret\n")
    words = through_eapi(here, here.shows("localhost"))
    try:
        interrupt(["--cluster", str(cluster(tmp_path, words, "localhost"))], lambda: here.waiting)
    finally:
        here.silent = False
    assert here.sent == [next(iter(COMMANDS))]


@pytest.mark.parametrize(
    ("shown", "trusted", "words"),
    [
        ("another.example.net", True, "certificate of leaf4 is not valid"),
        (NAME, False, "certificate of leaf4 is not valid"),
        ("expired", True, "certificate of leaf4 is not valid"),
    ],
)
def test_a_certificate_that_is_not_valid_is_refused(
    here: EapiDevice, tmp_path: Path, shown: str, trusted: bool, words: str
) -> None:
    other = tmp_path / "other.pem"
    other.write_bytes(here.shows("other.example.net").read_bytes())
    path = here.shows(NAME, days=-1) if shown == "expired" else here.shows(shown)
    report = check(tmp_path / "run", words=through_eapi(here, path if trusted else other), window=False)
    assert words in str(report["findings"])
    assert here.sent == []


@pytest.mark.parametrize(
    "page", [b"<html>log in</html>", b'{"jsonrpc": "2.0", "result": ', b"[]", b'{"result": [1, 2]}']
)
def test_another_answer_than_eapi_is_unknown(here: EapiDevice, tmp_path: Path, page: bytes) -> None:
    here.page = page
    report = check(tmp_path / "run", words=through_eapi(here, here.shows(NAME)), window=False)
    (finding,) = [finding for finding in report["findings"] if finding["check"] == "switch.answers"]
    assert finding["status"] == "unknown"
    assert report["exit_status"] == 3


def test_a_huge_answer_is_cut_off(here: EapiDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_switches, "_MOST_BYTES", 1 << 20)
    monkeypatch.setattr(command_switches, "GAP_S", 0.0)
    here.page = b'{"jsonrpc": "2.0", "id": "1", "result": [{"modelName": "' + b"x" * (1 << 20) + b'"}]}'
    report = check(tmp_path / "run", words=through_eapi(here, here.shows(NAME)), window=False)
    (finding,) = [finding for finding in report["findings"] if finding["check"] == "switch.answers"]
    assert finding["status"] == "unknown"
    assert "the answer exceeds 1 MiB" in finding["message"]


def test_accounts_that_others_can_read_are_refused(here: EapiDevice, tmp_path: Path) -> None:
    (tmp_path / "netrc").chmod(0o644)
    with pytest.raises(TransportError, match="chmod 600"):
        Eapi.prepare(str(here.shows(NAME)), here.port)


class Nothing:
    def collect(self, *words: object) -> dict[str, Any]:
        raise AssertionError(words)


class Device:
    """Prints what a leaf shows, at most ``at_once`` answers on each connection; ``sent`` are the commands."""

    def __init__(self, leaf: Leaf, platform: str, at_once: int = 99) -> None:
        self.answers = {COMMANDED[platform].sent(name): text for name, text in shown_by(leaf).items()}
        self.platform, self.at_once, self.sent, self.connections = platform, at_once, list[str](), 0

    def __call__(self, host: str, commands: Sequence[str], rules: CommandRules, until: float) -> None:
        self.connections += 1
        for command in commands[: self.at_once]:
            self.sent.append(command)
            rules.heard(self.answers[command].encode())

    def collected(self, plan: Mapping[str, Any] | None = None) -> dict[str, Any]:
        reader = WithCommandSwitches(Nothing(), {NAME: (self, "ssh")})
        return reader.collect(NAME, {**command_plan(NAME, 5, None, self.platform), **(plan or {})},
                              time.monotonic() + 5)  # fmt: skip


def leaf_of(platform: str, idle: float = 91.5) -> Leaf:
    if platform == "eos":
        eos = EosLeaf()
        eos.now["show processes top once"]["cpuInfo"]["%Cpu(s)"]["idle"] = idle
        return eos
    if platform == "nxos":
        nxos = NxosLeaf()
        nxos.idle = f"{idle:.2f}"
        return nxos
    if platform == "junos":
        junos = JunosLeaf()
        junos.idle = f"{idle:.0f}"
        return junos
    linux = LinuxLeaf()
    linux.load = f"{4 * (100 - idle) / 100:.2f}"
    return linux


@pytest.fixture
def no_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_switches, "GAP_S", 0.0)


@pytest.mark.parametrize("platform", COMMANDED)
def test_a_busy_switch_gets_no_more_commands(no_gap: None, platform: str) -> None:
    for idle, busy in ((0.0, True), (9.0, True), (10.0, False), (91.0, False)):
        device = Device(leaf_of(platform, idle), platform)
        document = device.collected()
        if busy:
            assert f"control plane is busy: {100 - idle:.0f}% of CPU" in document["no_answer"]["reason"]
            assert len(device.sent) == (2 if platform == "linux" else 1)
        else:
            assert "no_answer" not in document
            assert len(device.sent) == len(COMMANDED[platform].commands)


@pytest.mark.parametrize("platform", COMMANDED)
def test_a_load_that_cannot_be_read_is_not_busy(no_gap: None, platform: str) -> None:
    for answer in ("", "% Invalid input", "{}", '{"cpuInfo": {"%Cpu(s)": {"idle": "none"}}}', "nan 0 0 "):
        device = Device(leaf_of(platform), platform)
        for command in list(device.answers)[: 2 if platform == "linux" else 1]:
            device.answers[command] = answer
        assert "no_answer" not in device.collected()
        assert len(device.sent) == len(COMMANDED[platform].commands)


def test_a_switch_that_ends_each_connection_is_read_by_several(no_gap: None) -> None:
    device = Device(leaf_of("nxos"), "nxos", at_once=1)
    document = device.collected()
    assert {record["status"] for record in document["records"].values()} == {"ok"}
    assert document["collector"]["notes"] == ["the switch closed a connection after 1 commands"]
    assert device.connections == len(device.sent) == len(COMMANDED["nxos"].commands)


@needs_farm
@pytest.mark.parametrize("platform", ["nxos", "junos", "linux"])
def test_commands_over_ssh_and_a_session_give_the_same_report(
    ssh_device: SshDevice, tmp_path: Path, no_gap: None, platform: str
) -> None:
    """The leaves have a fault that they show alone: a dark lane, or a session that is down."""
    leaf = leaf_of(platform)
    sessions = []
    if isinstance(leaf, NxosLeaf):
        leaf.ports["Ethernet1/3"]["rx"][1] = -11.0
        sessions = [leaf.session(as_json=True), leaf.session(as_json=False)]
    elif isinstance(leaf, JunosLeaf):
        sessions = [leaf.session()]
    elif isinstance(leaf, LinuxLeaf):
        leaf.peers["swp5"].update(state="Active", peerState="OK")
        sessions = [leaf.session()]
    ssh_device.answers(leaf, platform)
    live = check(tmp_path / "ssh", "--ssh-config", str(ssh_device.config), platform=platform)
    alone = {"unknown"} if platform == "junos" else {"fail", "unknown"}  # Junos shows no fault alone
    assert {finding["status"] for finding in live["findings"]} >= alone
    table = COMMANDED[platform].commands
    assert [sent for _, sent in ssh_device.log()] == [
        COMMANDED[platform].sent(command) for command in (*table, *(name for name in table if table[name].twice))
    ]
    for text in sessions:
        (tmp_path / "pasted.txt").write_text(text)
        run("judge", "--switch-files", str(tmp_path / "pasted.txt"), "--cluster", str(tmp_path / "ssh/cluster.toml"),
            "--json", str(tmp_path / "pasted.json"), expect=(1, 3))  # fmt: skip
        pasted = json.loads((tmp_path / "pasted.json").read_text())
        assert json.dumps({**pasted, "run": 0}, sort_keys=True) == json.dumps({**live, "run": 0}, sort_keys=True)


@pytest.mark.parametrize("platform", COMMANDED)
def test_a_changed_plan_is_refused_before_connecting(platform: str) -> None:
    device = Device(leaf_of(platform), platform)
    for bad in ("configure terminal", "show running-config", "show version | redirect flash:x", "sudo reboot"):
        assert "is not one of the commands" in device.collected({"questions": [bad]})["no_answer"]["reason"]
    assert device.sent == []


def test_one_run_at_a_time_reads_a_switch() -> None:
    called: list[object] = []

    def commands(host: str, commands: Sequence[str], rules: CommandRules, until: float) -> None:
        called.append(host)
        again = reader.collect(NAME, plan, time.monotonic() + 5)
        assert "another run of preflight" in again["no_answer"]["reason"]

    plan = command_plan(NAME, 5, None, "eos")
    reader = LockedSwitches(WithCommandSwitches(Nothing(), {NAME: (commands, "ssh")}), frozenset({NAME}))
    document = reader.collect(NAME, plan, time.monotonic() + 5)
    assert len(called) == 1
    assert "the connection ended" in document["records"]["eos:show version"]["why"]
