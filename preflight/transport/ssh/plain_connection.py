"""An SSH connection that uses only paramiko's public interface.

paramiko runs each connection in a separate thread; the script runs in the caller's thread and polls for input.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from typing import Any

import paramiko
from paramiko.packet import Packetizer

from preflight.transport.ssh import algorithms
from preflight.transport.ssh.stream import RecordedStream

#: The script of a connection; it yields whenever it waits for the next message or for the end of the connection.
Script = Generator[None, None, None]

#: Maximum size of a packet in bytes, as in OpenSSH.
_PACKET_MOST = 256 * 1024

_MSG_DEBUG = 4  # RFC 4250

#: Seconds between polls of a connection, and until paramiko itself gives up, which is later than the deadline thread.
_LOOK_S, _NEVER_S = 0.01, 86400.0


class BoundedPackets(Packetizer):
    """A packetizer that rejects long packets.

    The length of a packet is sent unencrypted, before the host's key is known.
    """

    def start_handshake(self, timeout: float) -> None:
        """Start no timer: the deadline thread ends a handshake that hangs.

        Without a timer thread per connection, 200 hosts take 5% less wall time and 10% less CPU.
        """

    def read_message(self) -> tuple[int, paramiko.Message]:
        """Wait for a message; drop the text of debug messages.

        paramiko logs that text byte by byte, which takes 1.1 s for 256 KiB, and any host may send it.
        """
        kind, message = super().read_message()
        return kind, paramiko.Message() if kind == _MSG_DEBUG else message

    def read_all(self, n: int, check_rekey: bool = False) -> bytes:
        """Read this many bytes; raise SSHException beyond the maximum packet size.

        The check has no measurable cost.
        """
        if not 0 <= n <= _PACKET_MOST:
            raise paramiko.SSHException(f"a packet with {n} more bytes, which SSH does not allow")
        return super().read_all(n, check_rekey)


class PlainConnection(paramiko.Transport):
    """A connection that runs a script."""

    active: bool

    def __init__(self, wire: RecordedStream, pubkeys: tuple[str, ...] = ()) -> None:
        """Prepare the connection; ``drive`` sends the first message.

        ``pubkeys`` are the algorithms to sign with; empty for all.
        """
        able = self.algorithms()["key"]
        disabled = [name for name in able if name not in pubkeys] if pubkeys else []
        super().__init__(wire, packetizer_class=BoundedPackets, disabled_algorithms={"pubkeys": disabled})  # type: ignore[arg-type]
        self.banner_timeout = self.handshake_timeout = self.auth_timeout = _NEVER_S
        self.wire = wire
        self.refused_channel = ""
        self.agreed = threading.Event()  # key exchange finished or failed

    @classmethod
    def algorithms(cls) -> dict[str, tuple[str, ...]]:
        """Return what paramiko supports: kex, cipher, mac, and key (hosts and users)."""
        if _able:
            return _able
        options = paramiko.Transport(_NoSocket()).get_security_options()  # type: ignore[arg-type]
        usual = {
            "kex": ("kex", (*options.kex, *algorithms.KEX)),
            "cipher": ("ciphers", (*options.ciphers, *algorithms.CIPHERS)),
            "mac": ("digests", (*options.digests, *algorithms.MACS)),
            "key": ("key_types", (*options.key_types, *algorithms.USUAL["hostkeyalgorithms"], "ssh-rsa")),
        }
        for kind, (attribute, names) in usual.items():
            _able[kind] = tuple(name for name in dict.fromkeys(names) if _accepts(options, attribute, name))
        return _able

    def log_in(self, user: str, key: paramiko.PKey, done: threading.Event) -> None:
        """Authenticate with a key, and set ``done`` with the answer.

        Raises SSHException if it cannot sign.
        """
        self.auth_publickey(user, key, done)

    def drive(self, script: Script) -> None:
        """Connect, run a script, disconnect.

        Raises what the script raises, and ends when ``close`` is called.
        """
        self._connect_and_run(script)
        self.close()

    def keep(self, script: Script) -> None:
        """Connect and run a script; then stay open for channels of many threads.

        Raises what the script raises.
        """
        self._connect_and_run(script)

    def _connect_and_run(self, script: Script) -> None:
        self.start_client(event=self.agreed)
        while not self.agreed.wait(_LOOK_S) and self.is_alive():
            continue
        for _ in script:
            time.sleep(_LOOK_S)

    def start_command(self, command: str) -> Generator[None, None, paramiko.Channel]:
        """Start a command on a new, non-blocking channel."""
        channel = self.open_session(timeout=_NEVER_S)
        channel.exec_command(command)
        channel.settimeout(0.0)
        return channel
        yield  # a generator, like the tuned one

    def wait(self, event: threading.Event) -> Script:
        """Wait for the effect of a message, or for the end of the connection."""
        while self.active and not event.is_set():
            yield


#: Algorithms of paramiko, determined once.
_able: dict[str, tuple[str, ...]] = {}


def _accepts(options: paramiko.transport.SecurityOptions, attribute: str, name: str) -> bool:
    """Return whether paramiko supports an algorithm; it rejects unknown ones."""
    try:
        setattr(options, attribute, (name,))
    except ValueError:
        return False
    return True


class _NoSocket:
    """Socket interface that a connection requires but never uses."""

    def settimeout(self, seconds: float | None) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)
