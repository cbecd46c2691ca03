"""``--via auto``: paramiko or the system's ``ssh``; no refused login is repeated."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path

import jsonschema
import paramiko
import pytest

from preflight.collect.progress import ProgressLine
from preflight.evidence import document as evidence
from preflight.transport.errors import OpenSshRequired
from preflight.transport.ssh import algorithms, host_keys, requirements
from preflight.transport.ssh.automatic import AutoTransport
from preflight.transport.ssh.config import HostConfig, SshConfig
from preflight.transport.ssh.connection import PLAIN
from preflight.transport.ssh.keys import _FIDO, _raw
from preflight.transport.ssh.paramiko_transport import SshOptions
from preflight.transport.ssh.plain_connection import Script
from preflight.transport.ssh.session import SshSession, offer
from preflight.transport.ssh.stream import RecordedStream
from tests.integration.ssh.test_faults import make_plan
from tests.integration.ssh.test_ssh import answered, reason
from tests.support.sshfarm import Farm, View, keygen
from tests.support.sshfarm.marks import needs_farm, needs_ssh

pytestmark = needs_ssh

DEADLINE_S = 15.0


@pytest.fixture(autouse=True)
def _nothing_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    monkeypatch.delenv("KRB5CCNAME", raising=False)


@pytest.fixture(scope="module")
def farm() -> Iterator[Farm]:
    with Farm(8) as farm:
        yield farm


def write(folder: Path, text: str) -> Path:
    path = folder / "config"
    path.write_text(text)
    return path


def auto(
    farm: Farm, config: Path, host: str = "", deadline_s: float = DEADLINE_S
) -> tuple[evidence.Evidence, dict[str, str]]:
    """Reach a host; return its document, and the hosts that used the system's ``ssh`` with the reason."""
    host = host or farm.hosts[0]
    transport = AutoTransport(SshOptions(config, connect_timeout_s=2), [host])
    try:
        document = transport.collect(host, make_plan(deadline_s=deadline_s), time.monotonic() + deadline_s)
    finally:
        transport.close()
    return evidence.from_document(document, "test"), transport.through_openssh


# Algorithms


def of_openssh(kind: str) -> list[str]:
    return subprocess.run(["ssh", "-Q", kind], check=True, capture_output=True, text=True).stdout.split()


def usual_in_openssh(keyword: str) -> list[str]:
    printed = subprocess.run(["ssh", "-G", "-F", "none", "x"], check=True, capture_output=True, text=True).stdout
    return next(line.split()[1].split(",") for line in printed.splitlines() if line.startswith(keyword.lower() + " "))


@needs_farm
@pytest.mark.parametrize(("keyword", "kind"), [("KexAlgorithms", "kex"), ("Ciphers", "cipher"), ("MACs", "mac")])
def test_a_host_with_one_algorithm_is_reached_as_openssh_would(tmp_path: Path, keyword: str, kind: str) -> None:
    names, also = of_openssh(kind), ("Ciphers aes128-ctr",) if kind == "mac" else ()
    able = set(SshSession.algorithms()[kind])
    with Farm(len(names)) as farm:
        for host, name in zip(farm.hosts, names, strict=True):
            farm.view(host, View(sshd=(f"{keyword}={name}", *(line.replace(" ", "=") for line in also))))

        def reach(host: str, name: str, named: bool) -> tuple[bool, str]:
            folder = tmp_path / f"{host}-{named}"
            folder.mkdir()
            lines = [*also, f"{keyword} {name}"] if named else also
            node, through = auto(farm, write(folder, "\n".join([*lines, farm.ssh_config.read_text()])), host)
            return node.no_answer is None, through.get(host, "")

        with ThreadPoolExecutor(4) as pool:
            configured = [pool.submit(reach, *pair, True) for pair in zip(farm.hosts, names, strict=True)]
            default = [pool.submit(reach, *pair, False) for pair in zip(farm.hosts, names, strict=True)]
            named = dict(zip(names, (future.result() for future in configured), strict=True))
            plain = dict(zip(names, (future.result() for future in default), strict=True))
    why = f"paramiko supports none of the {keyword} of the SSH configuration"
    expected = {name: (True, "" if name in able else why) for name in names}
    if PLAIN and "curve25519-sha256" in names:  # paramiko knows only its other name, which the host refuses
        answered, reason = named.pop("curve25519-sha256")
        assert (answered, "no acceptable kex algorithm" in reason, expected.pop("curve25519-sha256")[0]) == (True,) * 3
    assert named == expected
    usual = usual_in_openssh(keyword)
    assert {name for name, (answered, _) in plain.items() if answered} == set(usual)
    assert {name for name in usual if not plain[name][1]} == set(usual) & able  # paramiko is used if it can
    curve = {"curve25519-sha256", "curve25519-sha256@libssh.org"}  # plain paramiko 3 knows only the second name
    assert ({"aes128-ctr", "hmac-sha2-256"} | curve) & able


LISTS = [
    "+3des-cbc", "+aes128-cbc,3des-cbc", "-aes128-ctr", "-*ctr", "^aes256-ctr", "-aes*,chacha*", "-aes???-ctr",
    "aes256-ctr,aes128-ctr", "^aes192-ctr,aes256-ctr", "+aes128-ctr", "chacha20-poly1305@openssh.com", "^3des-cbc",
]  # fmt: skip


@pytest.mark.parametrize("text", LISTS)
def test_a_list_of_algorithms_is_read_as_openssh_reads_it(text: str) -> None:
    command = ["ssh", "-G", "-F", "none", "-o", f"Ciphers={text}", "x"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    theirs = next(line for line in printed.splitlines() if line.startswith("ciphers ")).removeprefix("ciphers ")
    assert ",".join(algorithms.listed(text, usual_in_openssh("Ciphers"))) == theirs


def test_a_list_from_which_all_was_removed_allows_none(tmp_path: Path) -> None:
    found = SshConfig(write(tmp_path, "Ciphers -*\n")).resolve_one("gpu001")
    with pytest.raises(OpenSshRequired, match="none of the Ciphers"):
        offer(found, host_keys.known(host_keys.HostKeys([]), "gpu001", 22))


def test_weak_algorithms_are_offered_only_by_name() -> None:
    known = host_keys.known(host_keys.HostKeys([]), "gpu001", 22)
    usual = offer(HostConfig("gpu001", "gpu001", 22, "me"), known)
    everything = {*usual.kex, *usual.ciphers, *usual.macs, *usual.keys}
    assert not {name for name in everything if "cbc" in name or "md5" in name or name.endswith("-96")}
    assert not {name for name in (*usual.kex, *usual.keys) if "sha1" in name or name in ("ssh-rsa", "ssh-dss")}
    config = HostConfig("gpu001", "gpu001", 22, "me", ciphers=("aes128-cbc",), macs=("hmac-md5", "umac-64@openssh.com"))
    assert offer(config, known).ciphers == ("aes128-cbc",)
    assert offer(config, known).macs == ("hmac-md5",)


def test_the_order_of_the_configuration_is_preserved() -> None:
    known = host_keys.known(host_keys.HostKeys([]), "gpu001", 22)
    kex = ("ecdh-sha2-nistp521", "sntrup761x25519-sha512", "curve25519-sha256")
    config = HostConfig("gpu001", "gpu001", 22, "me", kex=kex, host_key_algorithms=("rsa-sha2-256", "ssh-ed25519"))
    curve = "curve25519-sha256@libssh.org" if PLAIN else "curve25519-sha256"
    assert offer(config, known).kex == ("ecdh-sha2-nistp521", curve)
    assert offer(config, known).keys == ("rsa-sha2-256", "ssh-ed25519")


@pytest.mark.skipif(
    "mlkem768x25519-sha256" not in SshSession.algorithms()["kex"], reason="this cryptography has no ML-KEM"
)
def test_the_post_quantum_exchange_comes_first_and_works() -> None:
    near, far = socket.socketpair()
    key = paramiko.ECDSAKey.generate()
    known_keys = host_keys.HostKeys([])
    known = host_keys.known(known_keys, "gpu001", 22, strict=False)
    config = HostConfig("gpu001", "gpu001", 22, "me")
    server = paramiko.Transport(far)
    server.add_server_key(key)
    session = SshSession(RecordedStream(near), config)
    session.choose(offer(config, known))
    server.get_security_options().kex = ("mlkem768x25519-sha256",)

    def script() -> Script:
        session._check_host_key(known)
        yield

    server.start_server(event=threading.Event(), server=paramiko.ServerInterface())
    try:
        session.drive(script())  # the key exchange and the host key's signature are valid, or it raises
    finally:
        session.close()
        server.close()
    assert offer(config, known).kex[0] == "mlkem768x25519-sha256"


# What a configuration requires


def test_every_keyword_of_ssh_is_known_and_its_default_needs_nothing(tmp_path: Path) -> None:
    printed = subprocess.run(["ssh", "-G", "-F", "none", "x"], check=True, capture_output=True, text=True).stdout
    keywords = {line.split()[0].lower() for line in printed.splitlines()}
    classified = requirements.FOLLOWED | requirements.HARMLESS | set(requirements._NAMES)
    assert keywords <= classified, keywords - classified
    assert SshConfig(write(tmp_path, "")).resolve_one("gpu001").beyond == ()
    assert not requirements.FOLLOWED & requirements.HARMLESS


#: As shipped by distributions: they affect all hosts of their users, so nothing in them may require OpenSSH.
SHIPPED = {
    "Debian 12": "Host *\n SendEnv LANG LC_*\n HashKnownHosts yes\n GSSAPIAuthentication yes\n",
    "Red Hat 9": "Match final all\n GSSAPIAuthentication yes\n ForwardX11Trusted yes\n"
    " Ciphers aes256-gcm@openssh.com,chacha20-poly1305@openssh.com,aes256-ctr,aes128-gcm@openssh.com,aes128-ctr\n"
    " MACs hmac-sha2-256-etm@openssh.com,hmac-sha1-etm@openssh.com,umac-128-etm@openssh.com,hmac-sha2-256\n"
    " KexAlgorithms curve25519-sha256,curve25519-sha256@libssh.org,ecdh-sha2-nistp256,diffie-hellman-group14-sha256\n"
    " HostKeyAlgorithms ecdsa-sha2-nistp256,ecdsa-sha2-nistp256-cert-v01@openssh.com,ssh-ed25519,rsa-sha2-256\n"
    " PubkeyAcceptedAlgorithms ecdsa-sha2-nistp256,ssh-ed25519,rsa-sha2-256,rsa-sha2-512\n"
    " CASignatureAlgorithms ecdsa-sha2-nistp256,ssh-ed25519,rsa-sha2-256\n RequiredRSASize 2048\n"
    " SendEnv LANG LC_CTYPE XMODIFIERS\n",
}


@needs_farm
@pytest.mark.parametrize("name", SHIPPED)
def test_configuration_of_distributions_needs_nothing(farm: Farm, tmp_path: Path, name: str) -> None:
    node, through = auto(farm, write(tmp_path, farm.ssh_config.read_text() + SHIPPED[name]))
    assert answered(node)
    assert not through


def ticket(folder: Path, valid: bool) -> None:
    """Create a klist in a folder that reports a ticket, or none."""
    (folder / "klist").write_text(f"#!/bin/sh\nexit {0 if valid else 1}\n")
    (folder / "klist").chmod(0o755)


@pytest.mark.parametrize("valid", [True, False])
def test_gssapi_is_a_demand_only_with_a_ticket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, valid: bool) -> None:
    ticket(tmp_path, valid)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = SshConfig(write(tmp_path, "GSSAPIAuthentication yes\n")).resolve_one("gpu001")
    assert found.beyond == (("GSSAPIAuthentication yes",) if valid else ())


DEMANDS = {
    "SetEnv A=1": "SetEnv A=1",
    "HostbasedAuthentication yes": "HostbasedAuthentication yes",
    "KnownHostsCommand /bin/cat {known_hosts}": "KnownHostsCommand /bin/cat {known_hosts}",
    "PreferredAuthentications hostbased": "PreferredAuthentications hostbased",
    "BindInterface lo": "BindInterface lo",
    "VerifyHostKeyDNS yes": "VerifyHostKeyDNS true",
    "PKCS11Provider /nonexistent.so": "PKCS11Provider /nonexistent.so",
    "Ciphers chacha20-poly1305@openssh.com": "paramiko supports none of the Ciphers of the SSH configuration",
}


@needs_farm
@pytest.mark.parametrize("line", DEMANDS)
def test_what_paramiko_cannot_do_goes_to_openssh(farm: Farm, tmp_path: Path, line: str) -> None:
    text = f"{line}\n".format(known_hosts=farm.known_hosts) + farm.ssh_config.read_text()
    host, before = farm.hosts[0], farm.accepted[farm.hosts[0]]
    node, through = auto(farm, write(tmp_path, text), host)
    assert list(through) == [host]
    assert through[host].lower() == DEMANDS[line].format(known_hosts=farm.known_hosts).lower()
    assert farm.accepted[host] <= before + 1, "the demand is seen before the host is connected to"
    if not line.startswith("PreferredAuthentications"):
        assert answered(node)


@needs_farm
def test_a_krl_and_a_jump_host_go_to_openssh(farm: Farm, tmp_path: Path) -> None:
    other = keygen(tmp_path / "other")
    subprocess.run(["ssh-keygen", "-q", "-k", "-f", str(tmp_path / "krl"), f"{other}.pub"], check=True)
    base = farm.ssh_config.read_text()
    node, through = auto(farm, write(tmp_path, f"RevokedHostKeys {tmp_path}/krl\n" + base))
    assert answered(node)
    assert through == {farm.hosts[0]: f"RevokedHostKeys {tmp_path}/krl is a KRL"}
    gate, host = farm.hosts[1], farm.hosts[2]
    text = f"Host {host}\n ProxyJump {gate}\nHost {gate}\n SetEnv A=1\n" + base
    node, through = auto(farm, write(tmp_path, text), host)
    assert through == {host: f"jump host {gate}: SetEnv A=1"}


def security_key(path: Path) -> Path:
    """Write a private key with its other half in a token (PROTOCOL.u2f); made by hand."""

    def packed(*fields: bytes) -> bytes:
        return b"".join(struct.pack(">I", len(field)) + field for field in fields)

    half = packed(b"sk-ssh-ed25519@openssh.com", bytes(32), b"ssh:")
    raw = b"openssh-key-v1\0" + packed(b"none", b"none", b"") + struct.pack(">I", 1) + packed(half, bytes(64))
    body = base64.b64encode(raw).decode()
    path.write_text(f"-----BEGIN OPENSSH PRIVATE KEY-----\n{body}\n-----END OPENSSH PRIVATE KEY-----\n")
    path.chmod(0o600)
    return path


@needs_farm
def test_a_fido_key_is_used_only_when_no_other_was_taken(farm: Farm, tmp_path: Path) -> None:
    token, host = security_key(tmp_path / "id_sk"), farm.hosts[3]
    first = f"IdentityFile {token}\n"
    node, through = auto(farm, write(tmp_path, first + farm.ssh_config.read_text()), host)
    assert answered(node)
    assert not through
    farm.fault(host, "noauth")
    before = farm.accepted[host]
    _, through = auto(farm, write(tmp_path, first + farm.ssh_config.read_text()), host)
    assert through == {host: f"no key that paramiko can use was accepted, and {token} is a FIDO key"}
    assert farm.accepted[host] == before + 2


def test_kinds_of_key_files_are_distinguished(tmp_path: Path) -> None:
    assert _FIDO.match(_raw(security_key(tmp_path / "sk").read_bytes()))
    for kind in ("ed25519", "rsa", "ecdsa"):
        assert not _FIDO.match(_raw(keygen(tmp_path / kind, kind=kind).read_bytes()))


@needs_farm
@pytest.mark.parametrize("kind", ["hostkey", "noauth", "silent", "reset", "close", "banner", "refuse"])
def test_a_refusal_or_a_silence_is_not_repeated(tmp_path: Path, kind: str) -> None:
    with Farm(1) as farm:
        host = farm.hosts[0]
        farm.fault(host, kind)
        began = time.monotonic()
        node, through = auto(farm, farm.ssh_config, host, deadline_s=6)
        assert node.no_answer
        assert not through
        assert time.monotonic() - began < 7
        if kind in ("hostkey", "noauth", "silent", "banner"):
            assert farm.accepted[host] == 1


@needs_farm
def test_partial_logins_are_not_repeated_unless_a_second_key_is_wanted(farm: Farm) -> None:
    host = farm.hosts[4]
    farm.view(host, View(sshd=("KbdInteractiveAuthentication=yes", "UsePAM=yes",
                               "AuthenticationMethods=publickey,keyboard-interactive")))  # fmt: skip
    node, through = auto(farm, farm.ssh_config, host)
    assert "is required as well" in reason(node, "authenticate")
    assert not through
    farm.view(host, View(sshd=("AuthenticationMethods=publickey,publickey",)))
    _, through = auto(farm, farm.ssh_config, host)
    assert list(through) == [host]


@needs_farm
def test_without_ssh_only_hosts_that_need_it_fail(farm: Farm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    needs, plain = farm.hosts[5], farm.hosts[6]
    config = write(tmp_path, f"Host {needs}\n SetEnv A=1\n" + farm.ssh_config.read_text())
    node, through = auto(farm, config, needs)
    assert reason(node, "connect") == "SetEnv A=1: this needs `ssh`, which is not in PATH: install OpenSSH"
    assert not through
    assert answered(auto(farm, config, plain)[0])


@needs_farm
def test_a_host_without_time_left_is_not_begun_again(farm: Farm, tmp_path: Path) -> None:
    config = write(tmp_path, "SetEnv A=1\n" + farm.ssh_config.read_text())
    node, through = auto(farm, config, deadline_s=0.5)
    assert "no time is left" in reason(node, "connect")
    assert not through


@needs_farm
def test_the_report_names_hosts_and_reasons(farm: Farm, tmp_path: Path) -> None:
    one, two = farm.hosts[6:8]
    config = write(tmp_path, f"Host {one}\n SetEnv A=1\n" + farm.ssh_config.read_text())
    page, document = tmp_path / "page.html", tmp_path / "report.json"
    command = [sys.executable, "-m", "preflight", "check", "-v", "--hosts", f"{one},{two}", "--ssh-config",
               str(config), "--json", str(document), "--html", str(page)]  # fmt: skip
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    report = json.loads(document.read_text())
    assert report["run"]["via"] == "auto", ran.stderr
    assert report["run"]["openssh"] == [{"nodes": one, "why": "SetEnv A=1"}]
    assert report["coverage"]["no_answer"] == 0
    schema = json.loads((resources.files("preflight.schemas") / "report-1.json").read_text())
    jsonschema.validate(report, schema)
    assert f"through the system's ssh: {one}: SetEnv A=1" in ran.stdout
    assert f"</code>: {one}: SetEnv A=1" in page.read_text()


def test_the_progress_line_counts_them() -> None:
    through: dict[str, str] = {}
    shown = ProgressLine(3, through_openssh=through)
    assert shown.line() == "0 of 3 answered, 3 waiting"
    through["gpu001"] = "SetEnv A=1"
    assert shown.line() == "0 of 3 answered, 3 waiting, 1 through the system's ssh"


# A hostile host


@pytest.mark.parametrize("claimed", [0xFFFFFFFC, 0x7FFFFFFC, (1 << 20) + 4, 4])
def test_a_packet_of_any_claimed_length_costs_no_memory(tmp_path: Path, claimed: int) -> None:
    taken: list[int] = []
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n" + struct.pack(">I", claimed) + bytes(12))
                while len(taken) < 4096:
                    taken.append(connection.send(bytes(1 << 16)))

        server = threading.Thread(target=serve, daemon=True)
        server.start()
        config = write(tmp_path, f"Host x\n HostName 127.0.0.1\n Port {listener.getsockname()[1]}\n")
        transport = AutoTransport(SshOptions(config), ["x"])
        try:
            document = transport.collect("x", make_plan(), time.monotonic() + 10)
        finally:
            transport.close()
        server.join(10)
    assert not transport.through_openssh
    assert document["no_answer"]["phase"] == "banner"
    assert "the key exchange failed" in document["no_answer"]["reason"]
    assert sum(taken) < 32 << 20, "the connection is closed at once; what was taken lies in the kernel's buffers"
