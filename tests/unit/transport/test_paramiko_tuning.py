"""What is overridden of paramiko's connection does what paramiko does, and what is sent early is what it would send."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import paramiko
import pytest
from paramiko.auth_handler import AuthHandler
from paramiko.packet import Packetizer

from preflight.transport.ssh import _paramiko_tuning
from preflight.transport.ssh._paramiko_tuning import TunedTransport
from preflight.transport.ssh.stream import RecordedStream

KEXINIT, SERVICE_REQUEST, SERVICE_ACCEPT, USERAUTH_REQUEST = 20, 5, 6, 50  # RFC 4250


class Recorded(TunedTransport):
    """A connection that records its messages instead of sending them."""

    def __init__(self, wire: RecordedStream) -> None:
        super().__init__(wire)
        self.sent: list[bytes] = []
        self.spoke = threading.Event()

    def _send_message(self, data: paramiko.Message) -> None:
        self.sent.append(data.asbytes())
        self.spoke.set()


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket.socketpair()
    with near, far:
        yield near, far


@pytest.fixture
def far(ends: tuple[socket.socket, socket.socket]) -> socket.socket:
    return ends[1]


@pytest.fixture
def session(ends: tuple[socket.socket, socket.socket]) -> Iterator[Recorded]:
    connection = Recorded(RecordedStream(ends[0]))
    yield connection
    connection.close()


def test_all_that_is_overridden_is_there() -> None:
    for ours, theirs in (
        (TunedTransport, paramiko.Transport),
        (_paramiko_tuning.Packets, Packetizer),
        (_paramiko_tuning.PipelinedAuth, AuthHandler),
    ):
        names = {name for name, what in vars(ours).items() if callable(what) and not name.startswith("__")}
        added = {"log_in", "before"}
        assert all(callable(getattr(theirs, name)) for name in names - added), names


@pytest.mark.parametrize("secret", [2**255 - 19, 2**31, b"\x80hybrid"])
@pytest.mark.parametrize("name", ["sha256", "sha512"])
def test_keys_are_derived_as_paramiko_does(session: Recorded, secret: int | bytes, name: str) -> None:
    if isinstance(secret, bytes) and not hasattr(paramiko.Transport, "_add_K"):
        pytest.skip("this paramiko has no hybrid key exchange")
    session.kex_engine = SimpleNamespace(hash_algo=getattr(hashlib, name))
    for exchange in (b"first" * 7, b"again" * 7):  # a second one, with the same session, is what rekeying does
        session._set_K_H(secret, exchange)  # type: ignore[attr-defined]
        for letter in "ABCDEF":
            for size in (12, 16, 32, 64, 100):
                expected = paramiko.Transport._compute_key(session, letter, size)  # type: ignore[attr-defined]
                assert session._compute_key(letter, size) == expected


def proposal() -> bytes:
    message = paramiko.Message()
    for lists in (["kex", "kex-strict-s-v00@openssh.com"], ["ssh-ed25519"], *(["a", "b"],) * 6, [], []):
        message.add_list(lists)
    message.add_boolean(False)
    message.add_int(0)
    return message.asbytes()


@pytest.mark.parametrize("beyond", [b"", b"\0", b"\0\0\0\0more"])
def test_what_a_host_can_do_is_read_as_paramiko_does(session: Recorded, beyond: bytes) -> None:
    for _ in range(2):  # the second time out of memory
        packet = os.urandom(16) + proposal() + beyond
        ours, theirs = paramiko.Message(packet), paramiko.Message(packet)
        parsed = session._really_parse_kex_init(ours)
        assert parsed == paramiko.Transport._really_parse_kex_init(session, theirs)  # type: ignore[attr-defined]
        assert ours.get_so_far() == theirs.get_so_far() == packet[: len(packet) - len(beyond)]
        parsed["kex_algo_list"].clear()  # as paramiko takes names out that are no algorithms
    with_type = paramiko.Message(b"\x14" + packet)
    assert session._really_parse_kex_init(with_type, ignore_first_byte=True)["server_key_algo_list"] == ["ssh-ed25519"]


def test_our_proposal_follows_our_banner_at_once_and_is_sent_once(session: Recorded, far: socket.socket) -> None:
    far.sendall(b"a word before\r\nSSH-2.0-Host\r\n\0\0\0\x0cpacket")
    session._check_banner()
    assert session.remote_version == "SSH-2.0-Host"
    assert [message[0] for message in session.sent] == [KEXINIT]
    assert session.local_kex_init == session.sent[0]
    assert session.packetizer.read_all(4) == b"\0\0\0\x0c"  # what came with the line is not lost
    session._send_kex_init()  # paramiko's own
    assert len(session.sent) == 1
    session._send_kex_init()  # keys are changed
    assert len(session.sent) == 2


def test_our_proposal_is_sent_before_the_banner_of_the_host(session: Recorded, far: socket.socket) -> None:
    waits = threading.Thread(target=session._check_banner, daemon=True)
    waits.start()
    assert session.spoke.wait(10)
    assert [message[0] for message in session.sent] == [KEXINIT]
    far.sendall(b"SSH-2.0-Host\n")
    waits.join(10)
    assert not waits.is_alive()


@pytest.mark.parametrize(
    ("kind", "kinds"),
    [
        ("ecdsa", [SERVICE_REQUEST, USERAUTH_REQUEST]),
        ("rsa", [SERVICE_REQUEST]),  # which waits for the host's word on hashes
    ],
)
def test_a_key_is_shown_without_waiting_for_the_service(session: Recorded, kind: str, kinds: list[int]) -> None:
    key: paramiko.PKey = paramiko.ECDSAKey.generate() if kind == "ecdsa" else paramiko.RSAKey.generate(2048)
    session.session_id = b"id" * 16
    session.log_in("me", key, threading.Event())
    assert [message[0] for message in session.sent] == kinds
    accepted = paramiko.Message()
    accepted.add_string("ssh-userauth")
    handlers = session.auth_handler._handler_table  # type: ignore[union-attr]
    handlers[SERVICE_ACCEPT](paramiko.Message(accepted.asbytes()))
    assert [message[0] for message in session.sent] == [SERVICE_REQUEST, USERAUTH_REQUEST]
    request = paramiko.Message(session.sent[1])
    assert request.get_byte() == bytes([USERAUTH_REQUEST])
    assert [request.get_text() for _ in range(3)] == ["me", "ssh-connection", "publickey"]
    assert request.get_boolean()
    algorithm, blob, signature = request.get_text(), request.get_binary(), request.get_binary()
    assert blob == key.asbytes()
    signed = paramiko.Message()
    signed.add_string(session.session_id)
    signed.add_bytes(session.sent[1][: -len(signature) - 4])
    assert key.verify_ssh_sig(signed.asbytes(), paramiko.Message(signature)), algorithm


def test_what_paramiko_does_without_is_not_imported() -> None:
    code = """if True:
        import sys, preflight.transport.ssh.paramiko_transport, paramiko
        assert not {"invoke", "importlib.metadata"} & set(sys.modules)
        import importlib.metadata
        assert importlib.metadata.version("cryptography") == paramiko.metadata.version("cryptography")
        print(paramiko.__version__)"""
    done = subprocess.run([sys.executable, "-c", code], check=True, timeout=60, capture_output=True, text=True)
    assert done.stdout.strip() == importlib.metadata.version("paramiko")
