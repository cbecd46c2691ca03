"""The one channel of a connection: starts the collector on it and hears what the node says.

A connection has two threads, paramiko's and the node's own; a switch between them costs as much as a packet.
So the node's own sleeps while an answer arrives, and paramiko's stops reading once it is whole.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import paramiko
from paramiko.buffered_pipe import BufferedPipe

from preflight.collector import frame
from preflight.transport import remote
from preflight.transport.ssh_session import Session

#: Seconds kept of a node's time for its answer to travel.
_TRAVEL_S = 1.0

#: Bytes after which a patient reader is woken: half of what paramiko lets a host send unacknowledged.
_CHUNK = 1 << 17

_LATE = "the node's deadline passed"


def converse(session: Session, plan: Mapping[str, Any], until: float) -> dict[str, Any]:
    """Have a plan carried out on an open connection and return the answer; raises NoAnswer.

    ``until`` is on the monotonic clock. The connection may be at its end afterwards.
    """
    exchange, ended, status = _Exchange(session), "", None
    try:
        channel = exchange.begin(until)
        ended = exchange.listen(channel, plan, until)
        if not ended and not exchange.over and channel.status_event.wait(max(0.0, min(1.0, until - time.monotonic()))):
            status = channel.exit_status
    except (paramiko.SSHException, EOFError, OSError) as error:
        ended = _lost(session, error)
    if time.monotonic() >= until and not exchange.over:
        ended = _LATE
    elif (
        not ended
        and not exchange.over
        and (status is None or status < 0)
        and (session.wire.ended or not session.is_active())
    ):
        ended = _lost(session, None)
    return exchange.document(ended, status)


class _Stream(BufferedPipe):  # type: ignore[type-arg]
    """What a channel has heard, as it came; paramiko's own copies each piece three times, and wakes for each.

    Sets ``wake`` for every piece; while ``patient`` only for much of it, and for the end mark of an answer,
    once ``marked`` was called, in paramiko's thread.
    """

    def __init__(self, wake: threading.Event, marked: Callable[[], object]) -> None:
        super().__init__()
        self.patient = False
        self._held = threading.Lock()
        self._wake, self._marked = wake, marked
        self._pieces: list[bytes] = []
        self._waiting = 0
        self._last = b""

    def feed(self, data: bytes) -> None:
        """Take a piece of the stream."""
        size = len(frame.END)
        with self._held:
            self._pieces.append(data)
            self._waiting += len(data)
            mark = self.patient and (frame.END in data or frame.END in self._last + data[:size])
            self._last = (self._last + data[-size:])[-size:]
        if mark:
            self._marked()
        if mark or not self.patient or self._waiting >= _CHUNK:
            self._wake.set()

    def read_ready(self) -> bool:
        """Tell whether something is there."""
        return bool(self._pieces)

    def read(self, nbytes: int, timeout: float | None = None) -> bytes:
        """Return all that is there, at once."""
        with self._held:
            pieces, self._pieces, self._waiting = self._pieces, [], 0
        return b"".join(pieces)

    def close(self) -> None:
        """End the stream."""
        super().close()
        self._wake.set()


class _Exchange:
    """One conversation with a node over one channel of its connection."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._talk = remote.Conversation()
        self._hearing = threading.Lock()  # guards the conversation: paramiko's thread hears its end
        self._wake = threading.Event()
        self._out, self._error = _Stream(self._wake, self._marked), _Stream(self._wake, lambda: None)

    @property
    def over(self) -> bool:
        """Whether nothing more need be read."""
        return self._talk.over

    def document(self, ended: str, status: int | None) -> dict[str, Any]:
        """Return the answer as far as it has come; raises NoAnswer."""
        with self._hearing:
            return self._talk.document(ended, status)

    def begin(self, until: float) -> paramiko.Channel:
        """Start the command and send what a foreign shell may read."""
        channel = self._session.open_session(timeout=max(0.1, until - time.monotonic()))
        channel.in_buffer, channel.in_stderr_buffer = self._out, self._error
        channel.settimeout(max(0.1, until - time.monotonic()))
        channel.exec_command(remote.COMMAND)
        with contextlib.suppress(OSError):  # a shell that leaves at once says why
            channel.sendall(remote.OPENING)
        return channel

    def listen(self, channel: paramiko.Channel, plan: Mapping[str, Any], until: float) -> str:
        """Read both streams up to the end; return how it ended, or nothing if the command ended."""
        asked = False
        while not self.over:
            self._wake.clear()
            at_end = channel.eof_received or channel.closed
            with self._hearing:
                self._hear(channel)
            left_s = until - time.monotonic()
            if self._talk.announced and not asked:
                asked = self._out.patient = True
                deadline_s = min(float(plan["deadline_s"]), max(_TRAVEL_S, left_s - _TRAVEL_S))
                with contextlib.suppress(OSError):
                    channel.sendall(remote.request({**plan, "deadline_s": deadline_s}))
            elif at_end or self.over:
                return ""
            elif left_s <= 0:
                return _LATE
            else:
                self._wake.wait(left_s)
        return ""

    def _hear(self, channel: paramiko.Channel) -> None:
        while channel.recv_stderr_ready() and not self.over:
            self._talk.hear_error(channel.recv_stderr(_CHUNK))
        while channel.recv_ready() and not self.over:
            self._talk.hear(channel.recv(_CHUNK))

    def _marked(self) -> None:
        """Hear what may be the end; what sshd says after that is read by nobody."""
        with self._hearing:
            self._talk.hear(self._out.read(_CHUNK))
            if self._talk.complete:
                self._session.leave()


def _lost(session: Session, error: BaseException | None) -> str:
    """Say how a connection was lost."""
    if isinstance(error, paramiko.ChannelException):
        return f"sshd refused a session: {session.refused_channel or error.text} (MaxSessions, or a full process table)"
    if error is not None and session.is_active() and not session.wire.ended:
        return f"sshd refused to start a command ({error})"
    how = {"reset": "was reset", "closed": "was closed by the node", "": "was lost"}.get(session.wire.ended, "was lost")
    return f"the connection {how}"
