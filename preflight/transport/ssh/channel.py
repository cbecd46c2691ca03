"""The channel on which the collector runs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Any

import paramiko

from preflight.transport import bootstrap_protocol
from preflight.transport.ssh.deadline_thread import DeadlineThread
from preflight.transport.ssh.plain_connection import Script
from preflight.transport.ssh.session import SshSession

#: Seconds of a node's time that are reserved for its answer to travel.
_TRAVEL_S = 1.0

#: Seconds to wait for the exit status of a command after its output has ended.
_STATUS_S = 1.0

#: Maximum bytes read from a stream at once.
_PIECE = 1 << 16

_LATE = "the node's deadline passed"


class CollectorChannel:
    """One exchange with a node over one channel of its connection."""

    def __init__(self, session: SshSession, plan: Mapping[str, Any], until: float, alarm: DeadlineThread) -> None:
        """Prepare; ``alarm`` closes the session at ``until``, on the monotonic clock."""
        self._session, self._plan, self._until, self._alarm = session, plan, until, alarm
        self._protocol = bootstrap_protocol.CollectorProtocol()
        self._ended, self._status = "", -1

    def document(self) -> dict[str, Any]:
        """Return the answer so far; raises NoAnswer."""
        return self._protocol.document(self._ended, self._status, late=self._ended == _LATE)

    def script(self) -> Script:
        """Carry out the plan."""
        protocol, session, gone = self._protocol, self._session, False
        try:
            channel = yield from session.start_command(bootstrap_protocol.COMMAND)
            yield from self._listen(channel)
            gone = bool(session.wire.ended) or not session.active
            if not protocol.over and not gone:
                with self._alarm.at(min(self._until, time.monotonic() + _STATUS_S), session.close):
                    while session.active and not channel.status_event.is_set():
                        yield
            self._status = channel.exit_status
        except (paramiko.SSHException, EOFError, OSError) as error:
            self._ended = _lost(session, error)
        if protocol.over:
            return
        if time.monotonic() >= self._until:
            self._ended = _LATE
        elif not self._ended and self._status < 0 and gone:
            self._ended = _lost(session, None)

    def _listen(self, channel: paramiko.Channel) -> Script:
        """Read both streams up to the end."""
        protocol, requested = self._protocol, False
        with contextlib.suppress(OSError):  # a shell that exits immediately prints the reason
            yield from _send(channel, bootstrap_protocol.OPENING)
        while not protocol.over:
            at_end = channel.eof_received or channel.closed or not self._session.active
            self._hear(channel)
            if protocol.announced and not requested:
                requested = True
                with contextlib.suppress(OSError):
                    yield from _send(channel, self._request())
            elif at_end or protocol.over:
                return
            else:
                yield

    def _request(self) -> bytes:
        left_s = self._until - time.monotonic()
        deadline_s = min(float(self._plan["deadline_s"]), max(_TRAVEL_S, left_s - _TRAVEL_S))
        return bootstrap_protocol.request({**self._plan, "deadline_s": deadline_s})

    def _hear(self, channel: paramiko.Channel) -> None:
        """Read all available output.

        The caller checks for the end first, so that the last bytes are not missed.
        """
        while channel.recv_stderr_ready() and not self._protocol.over:
            self._protocol.hear_error(channel.recv_stderr(_PIECE))
        while channel.recv_ready() and not self._protocol.over:
            self._protocol.hear(channel.recv(_PIECE))


def _send(channel: paramiko.Channel, data: bytes) -> Script:
    """Send as the host's window allows; raises OSError once the channel is closed."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[channel.send(bytes(rest[: channel.out_max_packet_size])) :]
        except TimeoutError:
            yield


def _lost(session: SshSession, error: BaseException | None) -> str:
    """Return how a connection was lost."""
    if isinstance(error, paramiko.ChannelException):
        return f"sshd refused a session: {session.refused_channel or error.text} (MaxSessions, or a full process table)"
    if error is not None and session.is_active() and not session.wire.ended:
        return f"sshd refused to start a command ({error})"
    how = {"reset": "was reset", "closed": "was closed by the node", "": "was lost"}.get(session.wire.ended, "was lost")
    return f"the connection {how}"
