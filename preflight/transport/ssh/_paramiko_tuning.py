"""paramiko's connection without what costs CPU and nobody here reads, and with two round trips fewer.

The one place that overrides what paramiko keeps private; ``tests/unit/transport/test_paramiko_tuning.py`` holds it to
paramiko's own.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import paramiko
from paramiko.auth_handler import AuthHandler
from paramiko.packet import Packetizer

from preflight.transport.ssh.stream import RecordedStream

_COOKIE = 16  # RFC 4253, 7.1

#: Bytes of the longest packet, as in OpenSSH; its length comes in clear and before the host's key is known.
_PACKET_MOST = 256 * 1024
_USERAUTH = "ssh-userauth"


def _nothing() -> None:
    """Do nothing."""


class Packets(Packetizer):
    """Packets that say when the next is waited for, without paramiko's own clock: our alarm ends what hangs."""

    #: Called before each wait.
    before: Callable[[], None] = staticmethod(_nothing)

    def __init__(self, wire: RecordedStream) -> None:
        """Read from a wire."""
        super().__init__(wire)  # type: ignore[arg-type]
        self._wire = wire

    def read_message(self) -> tuple[int, paramiko.Message]:
        """Wait for a message."""
        self.before()
        return super().read_message()

    def read_all(self, n: int, check_rekey: bool = False) -> bytes:
        """Read that many bytes, at once if the wire has them; raise SSHException for more than a packet may have."""
        if not 0 <= n <= _PACKET_MOST:
            raise paramiko.SSHException(f"a packet with {n} more bytes, which SSH does not allow")
        return self._wire.ahead(n) or super().read_all(n, check_rekey)

    def readline(self, timeout: float) -> str:
        """Read a line and nothing after it, which paramiko would keep to itself."""
        self._wire.by_line = True
        try:
            return super().readline(timeout)
        finally:
            self._wire.by_line = False

    def start_handshake(self, timeout: float) -> None:
        """Start no timer: it would be a thread for each connection."""


class PipelinedAuth(AuthHandler):
    """Requests authentication and authenticates without waiting for a yes between the two (RFC 4253, 10)."""

    def _request_auth(self) -> None:
        super()._request_auth()  # type: ignore[misc]
        yes = paramiko.Message()
        yes.add_string(_USERAUTH)
        super()._parse_service_accept(paramiko.Message(yes.asbytes()))  # type: ignore[misc]

    def _parse_service_accept(self, m: paramiko.Message) -> None:
        """Take the yes as read; for a no the host hangs up."""


def _exchanges() -> dict[str, Any]:
    """Return paramiko's key exchanges, curve25519 by both of its names: some hosts know only that of RFC 8731."""
    found: dict[str, Any] = dict(paramiko.Transport._kex_info)  # type: ignore[attr-defined]
    if "curve25519-sha256@libssh.org" in found:
        found.setdefault("curve25519-sha256", found["curve25519-sha256@libssh.org"])
    return found


class TunedTransport(paramiko.Transport):
    """A connection that sends what it can ahead of the host's request, and logs nothing."""

    _kex_info = _exchanges()

    def __init__(self, wire: RecordedStream) -> None:
        """Prepare; nothing is sent yet."""
        super().__init__(wire, packetizer_class=Packets)  # type: ignore[arg-type]
        self._proposed = False
        self._shared: tuple[bytes | None, bytes] = None, b""

    def log_in(self, user: str, key: paramiko.PKey, done: threading.Event) -> None:
        """Ask to be let in with a key; raises SSHException if it cannot sign, and sets ``done`` with the answer."""
        # An RSA key waits for the host's word on which hashes it takes (RFC 8308), which comes about now
        handler = AuthHandler if "rsa" in key.get_name() else PipelinedAuth
        self.auth_handler = handler(self)
        self.auth_handler.auth_publickey(user, key, done)

    def _check_banner(self) -> None:
        """Send what we can do along with our banner, not after the host's (RFC 4253, 4.2)."""
        self._send_kex_init()
        self._proposed = True
        super()._check_banner()  # type: ignore[misc]

    def _send_kex_init(self) -> None:
        """Send it, unless the first was sent before its time."""
        if self._proposed:
            self._proposed = False
        else:
            super()._send_kex_init()  # type: ignore[misc]

    def _really_parse_kex_init(self, m: paramiko.Message, ignore_first_byte: bool = False) -> dict[str, Any]:
        """Read what a side can do; hosts of one release of sshd send the same but for the cookie."""
        before = _COOKIE + ignore_first_byte
        fields, length = _parsed(m.get_remainder()[before:])
        m.get_bytes(before + length)
        return {name: list(value) if isinstance(value, list) else value for name, value in fields.items()}

    def _compute_key(self, id: str, nbytes: int) -> bytes:
        """Derive a key (RFC 4253, 7.2); what all six begin with is put together once."""
        algorithm = getattr(self.kex_engine, "hash_algo", None)
        secret, exchange, session = self.K, self.H, self.session_id
        if algorithm is None or exchange is None or session is None or nbytes > algorithm().digest_size:
            return super()._compute_key(id, nbytes)  # type: ignore[misc,no-any-return]
        if self._shared[0] is not exchange:
            start = paramiko.Message()
            (start.add_string if isinstance(secret, bytes) else start.add_mpint)(secret)  # type: ignore[arg-type]
            self._shared = exchange, start.asbytes() + exchange
        return bytes(algorithm(b"%b%b%b" % (self._shared[1], id.encode("ascii"), session)).digest()[:nbytes])

    def _log(self, level: int, msg: object, *args: object) -> None:
        """Drop what paramiko tells of its progress: about forty lines."""

    def _parse_debug(self, m: paramiko.Message) -> None:
        """Drop sshd's remarks on the options of a key."""

    def _filter_algorithm(self, type_: str) -> tuple[str, ...]:
        """Return the algorithms as they were chosen: none is disabled besides."""
        return tuple(getattr(self, f"_preferred_{type_}"))


@functools.lru_cache(16)
def _parsed(proposal: bytes) -> tuple[dict[str, Any], int]:
    """Read a KEXINIT after its cookie; return its fields, and its length without what must not be hashed."""
    message = paramiko.Message(bytes(_COOKIE) + proposal)
    fields = paramiko.Transport._really_parse_kex_init(None, message)  # type: ignore[attr-defined]
    return fields, len(message.get_so_far()) - _COOKIE
