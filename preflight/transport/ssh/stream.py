"""The stream below an SSH connection: a TCP connection, or a ProxyCommand's."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

import paramiko

from preflight.transport.errors import NoAnswer, quoted
from preflight.transport.ssh.config import HostConfig

_FIRST_BYTES = 300

#: Bytes per system call: paramiko reads every packet in two pieces, each with its own system calls.
_READ_AHEAD = 1 << 16

#: Maximum bytes held back to send packets together: each separate packet costs both sides a system call.
_HELD = 1 << 17

#: Seconds between checks for space in a channel.
_ROOM_S = 0.005

# Linux has it; elsewhere the option is TCP_NODELAY, which is set already
_QUICKACK = getattr(socket, "TCP_QUICKACK", socket.TCP_NODELAY)


class ConnectionDropped(NoAnswer):
    """The host disconnected before the session, as a busy sshd does.

    Another attempt may succeed.
    """


def no_banner(config: HostConfig, how: str) -> ConnectionDropped:
    """Return the error of a host that hangs up before its banner.

    ``how`` is a verb phrase, such as ``reset the connection``.
    """
    why = "too many connections at once (MaxStartups), or sshd is dying"
    return ConnectionDropped("banner", f"{config.itself} {how} before its SSH banner: {why}")


class Stream(Protocol):
    """Socket interface that paramiko needs; a channel has it as well."""

    def recv(self, size: int, /) -> bytes: ...  # noqa: D102
    def send(self, data: bytes, /) -> int: ...  # noqa: D102
    def settimeout(self, seconds: float | None, /) -> None: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102


class RecordedStream:
    """A stream that records its first bytes and how it ended, which paramiko does not."""

    def __init__(
        self, stream: Stream, release: Callable[[], object] = lambda: None, complaint: Callable[[], str] = str
    ):
        """Wrap a stream.

        ``release`` frees its resources, ``complaint`` returns the errors of a helper program.
        """
        self.first = b""
        self.ended = ""
        self.holds = False
        self._held = bytearray()
        self._ahead = memoryview(b"")
        self._closing = threading.Lock()
        self._sending = threading.Lock()
        self._stream, self._release, self._complaint = stream, release, complaint
        self._tcp = stream if isinstance(stream, socket.socket) and stream.family != socket.AF_UNIX else None

    @property
    def wakes(self) -> bool:
        """Whether ``close`` wakes readers and writers, so that they need no time limit."""
        return isinstance(self._stream, socket.socket)

    def recv(self, size: int) -> bytes:
        """Read data; only one thread may read at a time."""
        if not self._ahead:
            self.flush()
            self._ahead = memoryview(self._receive())
        data, self._ahead = self._ahead[:size], self._ahead[size:]
        return bytes(data)

    def _receive(self) -> bytes:
        """Read available data, and acknowledge at once.

        sshd uses Nagle's algorithm, which costs 40 ms each time.
        """
        try:
            if self._tcp is not None:
                self._tcp.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)
            data = self._stream.recv(_READ_AHEAD)
        except TimeoutError:
            raise
        except OSError as error:
            self.ended = self.ended or "reset" if error.errno == errno.ECONNRESET else self.ended or str(error)
            raise
        if not data:
            self.ended = self.ended or "closed"
        if len(self.first) < _FIRST_BYTES:
            self.first += data[: _FIRST_BYTES - len(self.first)]
        return data

    def send(self, data: bytes) -> int:
        """Write data; if ``holds`` is set, hold it back until the next read.

        ``holds`` is only for a single-threaded caller.
        """
        if self.holds and len(self._held) < _HELD:
            self._held += data
            return len(data)
        self.flush()
        return self._send_now(data)

    def flush(self) -> None:
        """Write held data; raises EOFError if the peer is gone, as paramiko does."""
        while self._held:
            try:
                del self._held[: self._send_now(bytes(self._held))]
            except TimeoutError:
                raise
            except OSError:
                raise EOFError from None

    def _send_now(self, data: bytes) -> int:
        """Write, and record if the peer is gone."""
        try:
            return self._send(data)
        except TimeoutError:
            raise
        except OSError as error:
            self.ended = self.ended or ("reset" if error.errno in (errno.ECONNRESET, errno.EPIPE) else str(error))
            raise

    def _send(self, data: bytes) -> int:
        """Send data, but never after the stream is closed.

        paramiko would, and sshd would then drop the shared jump connection.
        """
        channel = self._stream if isinstance(self._stream, paramiko.Channel) else None
        while channel is not None and not channel.send_ready():  # true once it is closed
            time.sleep(_ROOM_S)
        with self._sending:
            return self._stream.send(data)

    def settimeout(self, seconds: float | None) -> None:
        """Limit how long reading and writing may block, in seconds."""
        self._stream.settimeout(seconds)

    def getpeername(self) -> Any:
        """Return the peer's address, if any."""
        return getattr(self._stream, "getpeername", lambda: "")()

    @property
    def _closed(self) -> bool:
        return bool(getattr(self._stream, "_closed", False))

    @property
    def complaint(self) -> str:
        """The standard error of a helper program."""
        return self._complaint()

    def close(self) -> None:
        """Close immediately and wake readers; the peer gets end-of-file."""
        if isinstance(self._stream, socket.socket):
            with contextlib.suppress(OSError):
                self._stream.shutdown(socket.SHUT_RDWR)
        with self._sending, contextlib.suppress(EOFError):  # a jump connection that is gone was reported before
            self._stream.close()
        with self._closing:  # users and the alarm may close it concurrently
            complaint, release = self._complaint(), self._release
            self._complaint, self._release = (lambda: complaint), lambda: None
        release()


def connect(config: HostConfig, until: float) -> RecordedStream:
    """Connect to a host over TCP by ``until``, a monotonic time; raises NoAnswer."""
    addresses = _resolve(config, until)
    failures: list[tuple[str, OSError]] = []
    for number, (family, address) in enumerate(addresses):
        left_s = (until - time.monotonic()) / (len(addresses) - number)
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.settimeout(max(0.05, left_s))
            if config.bind_address:
                sock.bind((config.bind_address, 0))
            sock.connect(address)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return RecordedStream(sock)
        except OSError as error:
            sock.close()
            failures.append((address[0], error))
        except BaseException:
            sock.close()
            raise
    if any(error.errno == errno.ECONNRESET for _, error in failures):
        raise no_banner(config, "reset the connection")
    reasons = "; ".join(dict.fromkeys(_why(config, address, error) for address, error in failures))
    raise NoAnswer("connect", reasons)


def _why(config: HostConfig, address: str, error: OSError) -> str:
    """Return the cause of a failed connection."""
    where = f"port {config.port}" if config.itself == "the host" else f"{address} port {config.port}"
    if isinstance(error, TimeoutError):
        return f"no reply from {where}: powered off, or packets are dropped on the path"
    why = {
        errno.ECONNREFUSED: "connection refused: the host is up, but no sshd listens there",
        errno.EHOSTUNREACH: "no route to the host, or it does not answer ARP",
        errno.ENETUNREACH: "this machine has no route to its network",
        errno.EACCES: "this machine's routes or firewall prohibit it",
        errno.EPERM: "this machine's firewall prohibits it",
        errno.EINVAL: "a blackhole route on this machine swallows it",
        errno.EMFILE: "this process has too many open files (ulimit -n)",
        errno.EADDRNOTAVAIL: "no local port or address is left to connect from",
    }.get(error.errno or 0, error.strerror or str(error))
    return f"{where}: {why}"


def _resolve(config: HostConfig, until: float) -> list[tuple[socket.AddressFamily, Any]]:
    """Return a host's addresses.

    The resolver has no deadline of its own, so it is abandoned at ``until``.
    """
    with contextlib.suppress(ValueError):
        version = ipaddress.ip_address(config.hostname).version
        return [(socket.AF_INET if version == 4 else socket.AF_INET6, (config.hostname, config.port))]
    name = "its name" if config.hostname == config.name else f"the name {config.hostname}"
    found: list[tuple[socket.AddressFamily, Any]] = []
    failure: list[str] = []

    def look_up() -> None:
        try:
            answers = socket.getaddrinfo(config.hostname, config.port, config.family, socket.SOCK_STREAM)
            found.extend((family, address) for family, _, _, _, address in answers)
        except (OSError, UnicodeError) as error:
            failure.append(getattr(error, "strerror", None) or str(error))

    thread = threading.Thread(target=look_up, daemon=True)
    thread.start()
    thread.join(max(0.0, until - time.monotonic()))
    if failure:
        raise NoAnswer("resolve", f"{name} does not resolve: {failure[0]}")
    if not found:
        raise NoAnswer("resolve", f"the resolver returned no address for {name} in time")
    return list(dict.fromkeys(found))


def proxy(config: HostConfig) -> RecordedStream:
    """Start a host's ProxyCommand and connect through it; raises NoAnswer."""
    near, far = socket.socketpair()
    log = tempfile.TemporaryFile()  # noqa: SIM115
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", "exec " + config.proxy_command],
            stdin=far.fileno(),
            stdout=far.fileno(),
            stderr=log,
            start_new_session=True,
        )
    except OSError as error:
        near.close()
        log.close()
        raise NoAnswer("connect", f"the ProxyCommand could not be started: {error.strerror}") from None
    finally:
        far.close()

    def release() -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        log.close()

    def complaint() -> str:
        with contextlib.suppress(OSError, ValueError):
            return quoted(os.pread(log.fileno(), 4000, 0))
        return ""

    return RecordedStream(near, release, complaint)
