"""Connections to jump hosts, shared by the nodes behind them.

One connection to a jump host carries many nodes. Connections are opened on demand, one at a time to stay below sshd's
MaxStartups; a node waits at most until its own deadline.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

import paramiko

from preflight.transport.errors import NoAnswer, OpenSshRequired
from preflight.transport.ssh.config import HostConfig
from preflight.transport.ssh.session import SshSession
from preflight.transport.ssh.stream import RecordedStream

#: Maximum number of nodes per connection, so that a slow node delays few others.
NODES_PER_CONNECTION = 48

#: Seconds until an unreachable jump host is tried again.
_REST_S = 10.0


class Jump:
    """One jump host."""

    def __init__(self, name: str, open_session: Callable[[], SshSession]) -> None:
        """Set the function that opens a connection to the jump host.

        ``open_session`` has its own deadline and raises NoAnswer.
        """
        self._name, self._open = name, open_session
        self._changed = threading.Condition()
        self._load: dict[SshSession, int] = {}
        self._opening = False
        self._failure: NoAnswer | None = None
        self._failed_at = 0.0
        self._closed = False

    def through(self, config: HostConfig, timeout_s: float, until: float) -> RecordedStream:
        """Connect to a node from the jump host; raises NoAnswer.

        ``timeout_s`` runs from the moment when the jump host is reached.
        """
        session = self._session(until)
        try:
            left_s = max(0.1, min(timeout_s, until - time.monotonic()))
            channel = session.open_channel(
                "direct-tcpip", (config.hostname, config.port), ("127.0.0.1", 0), timeout=left_s
            )
        except (paramiko.SSHException, EOFError, OSError) as error:
            self._release(session)
            raise NoAnswer("connect", self._why(session, config, error)) from None
        except BaseException:
            self._release(session)
            raise
        return RecordedStream(channel, lambda: self._release(session))

    def close(self) -> None:
        """Close all connections to the jump host."""
        with self._changed:
            self._closed = True
            sessions = list(self._load)
            self._load.clear()
            self._changed.notify_all()
        for session in sessions:
            session.close()

    def _session(self, until: float) -> SshSession:
        """Return a connection with a free slot, and reserve it."""
        with self._changed:
            while True:
                for session in [session for session in self._load if not session.is_active()]:
                    del self._load[session]
                    session.close()
                session_or_none = min(self._load, key=self._load.__getitem__, default=None)
                if session_or_none is not None and self._load[session_or_none] < NODES_PER_CONNECTION:
                    self._load[session_or_none] += 1
                    return session_or_none
                if self._closed:
                    raise NoAnswer("connect", f"jump host {self._name}: the run is over")
                if self._failure is not None and time.monotonic() < self._failed_at + _REST_S:
                    if isinstance(self._failure, OpenSshRequired):
                        raise OpenSshRequired(self._failure.phase, f"jump host {self._name}: {self._failure.why}")
                    raise NoAnswer(self._failure.phase, f"jump host {self._name}: {self._failure.reason}")
                if not self._opening:
                    self._opening = True
                    threading.Thread(target=self._add, daemon=True).start()
                if not self._changed.wait(max(0.0, until - time.monotonic())):
                    raise NoAnswer("connect", f"jump host {self._name}: it could not be reached in time")

    def _add(self) -> None:
        session, failure = None, None
        try:
            session = self._open()
        except NoAnswer as error:
            failure = error
        except Exception as error:
            failure = NoAnswer("connect", f"{type(error).__name__}: {error}")
        with self._changed:
            self._opening = False
            self._failure, self._failed_at = failure, time.monotonic()
            if session is not None and not self._closed:
                self._load[session] = 0
                session = None
            self._changed.notify_all()
        if session is not None:
            session.close()

    def _release(self, session: SshSession) -> None:
        with self._changed, contextlib.suppress(KeyError):
            self._load[session] -= 1

    def _why(self, session: SshSession, config: HostConfig, error: Exception) -> str:
        if isinstance(error, paramiko.ChannelException):
            reason = session.refused_channel or error.text
            also = "; AllowTcpForwarding is off on the jump host" if error.code == 1 else ""
            return f"jump host {self._name} could not connect to {config.itself}: {reason}{also}"
        if not session.is_active():
            return f"jump host {self._name}: its connection was lost"
        return f"no reply from {config.itself} behind jump host {self._name}"
