"""Overrides of paramiko exist, and are in one module behind one switch."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import socket
import struct
import subprocess
import sys
import threading

import paramiko
import pytest
from paramiko.packet import Packetizer

from preflight.transport import ssh
from preflight.transport.ssh import _paramiko_tuning, plain_connection
from preflight.transport.ssh.stream import RecordedStream
from tests.support.paths import ROOT


def test_all_that_is_overridden_is_there() -> None:
    for ours, theirs, added in (
        (_paramiko_tuning.InlineConnection, paramiko.Transport, {"log_in", "drive", "keep", "start_command", "wait"}),
        (_paramiko_tuning.Packets, Packetizer, {"before"}),
    ):
        names = {name for name, what in vars(ours).items() if callable(what) and not name.startswith("__")}
        own = {"algorithms", "_go_on", "_disconnect", "_announced"}
        assert all(callable(getattr(theirs, name)) for name in names - added - own), names


@pytest.mark.parametrize("size", [-1, 256 * 1024 + 1, 2**32 - 1])
def test_a_packet_longer_than_ssh_allows_is_refused(size: int) -> None:
    near, far = socket.socketpair()
    with near, far:
        packets = plain_connection.BoundedPackets(RecordedStream(near))  # type: ignore[arg-type]
        with pytest.raises(paramiko.SSHException, match="which SSH does not allow"):
            packets.read_all(size)


def test_a_handshake_starts_no_timer() -> None:
    """Paramiko's own timer takes a thread and ends the handshake after 15 seconds, maybe before the deadline."""
    near, far = socket.socketpair()
    with near, far:
        packets = plain_connection.BoundedPackets(RecordedStream(near))  # type: ignore[arg-type]
        before = threading.active_count()
        packets.start_handshake(0.0)
        assert (threading.active_count(), packets.handshake_timed_out()) == (before, False)


@pytest.mark.parametrize(("kind", "expected"), [(4, b""), (2, b"text"), (80, b"text")])
def test_the_text_of_a_debug_message_is_left_out(kind: int, expected: bytes) -> None:
    """The message itself is not: strict key exchange rejects one that comes too early."""
    near, far = socket.socketpair()
    with near, far:
        body = bytes([kind]) + b"text"
        padding = 16 - (5 + len(body)) % 8
        far.sendall(struct.pack(">IB", 1 + len(body) + padding, padding) + body + bytes(padding))
        packets = plain_connection.BoundedPackets(RecordedStream(near))  # type: ignore[arg-type]
        got, message = packets.read_message()
        assert (got, message.asbytes()[-4:]) == (kind, expected)


def _private(path: str) -> set[str]:
    """Return the private names that a module reads from other modules."""
    text = (ROOT / "preflight" / "transport" / "ssh" / path).read_text()
    tree = ast.parse(text if "import paramiko" in text else "")
    own = {
        name.attr for name in ast.walk(tree) if isinstance(name, ast.Attribute) and isinstance(name.ctx, ast.Store)
    } | {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    return {
        node.attr for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__")
    } - own  # fmt: skip


def test_one_module_reaches_into_private_names() -> None:
    files = {name for name in os.listdir(ssh.__path__[0]) if name.endswith(".py")}
    assert {name for name in files if _private(name)} == {"_paramiko_tuning.py"}


def test_the_switch_does_without_that_module() -> None:
    code = """if True:
        import sys, preflight.transport.ssh.paramiko_transport
        print("preflight.transport.ssh._paramiko_tuning" in sys.modules)"""
    for value, expected in (("", "True"), ("0", "True"), ("1", "False")):
        env = {**os.environ, "PREFLIGHT_PLAIN_PARAMIKO": value}
        done = subprocess.run(
            [sys.executable, "-c", code], check=True, timeout=60, capture_output=True, text=True, env=env
        )
        assert done.stdout.strip() == expected


def test_what_paramiko_does_without_is_not_imported() -> None:
    code = """if True:
        import sys, preflight.transport.ssh.paramiko_transport, paramiko
        assert not {"invoke", "importlib.metadata"} & set(sys.modules)
        import importlib.metadata
        assert importlib.metadata.version("cryptography") == paramiko.metadata.version("cryptography")
        print(paramiko.__version__)"""
    done = subprocess.run([sys.executable, "-c", code], check=True, timeout=60, capture_output=True, text=True)
    assert done.stdout.strip() == importlib.metadata.version("paramiko")
