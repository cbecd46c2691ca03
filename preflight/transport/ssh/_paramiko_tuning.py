"""Use of paramiko's private names to run a connection in its caller's thread.

paramiko uses one thread for each connection and another for its caller; switching between them costs a third of a
client's CPU: 3.8 ms a host instead of 2.4, and 15% of the wall time (200 hosts, ``python -m benchmarks.ssh_fanout
--overrides``; docs/startup.md lists the gain of each override). Here paramiko's loop calls back before it waits for a
message, and the script, a generator that yields to wait, continues from there. ``PREFLIGHT_PLAIN_PARAMIKO=1`` disables
this module (``connection``).
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Generator
from typing import Any

import paramiko

from preflight.transport.ssh.plain_connection import BoundedPackets, Script
from preflight.transport.ssh.stream import RecordedStream

# RFC 4250
_DISCONNECT, _CHANNEL_OPEN, _CHANNEL_REQUEST = b"\x01", b"\x5a", b"\x62"
_BY_APPLICATION = 11


def _nothing() -> None:
    """Do nothing."""


class Packets(BoundedPackets):
    """A packetizer that calls back before each wait for a packet."""

    #: Called before each wait.
    before: Callable[[], None] = staticmethod(_nothing)

    def read_message(self) -> tuple[int, paramiko.Message]:
        """Wait for a message."""
        self.before()
        return super().read_message()


def _exchanges() -> dict[str, Any]:
    """Return the key exchanges, curve25519 by both of its names.

    Some hosts support only the name of RFC 8731; without it they would need the system's ``ssh``, which costs 75 ms of
    CPU.
    """
    exchanges: dict[str, Any] = dict(paramiko.Transport._kex_info)  # type: ignore[attr-defined]
    if "curve25519-sha256@libssh.org" in exchanges:
        exchanges.setdefault("curve25519-sha256", exchanges["curve25519-sha256@libssh.org"])
    return exchanges


class InlineConnection(paramiko.Transport):
    """A connection that runs a script in the thread of its caller."""

    _kex_info = _exchanges()

    def __init__(self, wire: RecordedStream, pubkeys: tuple[str, ...] = ()) -> None:
        """Prepare the connection; ``drive`` sends the first message.

        ``pubkeys`` are the algorithms to sign with; empty for all.
        """
        super().__init__(wire, packetizer_class=Packets)  # type: ignore[arg-type]
        if pubkeys:
            self._preferred_pubkeys = pubkeys
        self.wire = wire
        self.refused_channel = ""
        self.agreed = threading.Event()  # key exchange finished or failed
        self._script: Script | None = None
        self._failure: BaseException | None = None
        self._channel: paramiko.Channel | None = None  # referenced: a freed channel sends two messages

    def log_in(self, user: str, key: paramiko.PKey, done: threading.Event) -> None:
        """Authenticate with a key, and set ``done`` with the answer.

        Raises SSHException if it cannot sign.
        """
        self.auth_publickey(user, key, done)

    def drive(self, script: Script, alone: bool = True) -> None:
        """Connect, run a script, disconnect.

        Raises what the script raises, and ends when ``close`` is called. The script starts after the key exchange,
        successful or not. If the connection ends first, the script runs once more, with ``active`` false. ``alone`` is
        true if no other thread sends on this connection.
        """
        self._script, self.completion_event = script, self.agreed
        assert isinstance(self.packetizer, Packets)
        self.packetizer.before = self._go_on
        self.banner_timeout = math.inf  # the deadline thread limits it
        self.active = True
        self.wire.holds = alone
        self.run()
        del self.packetizer.before  # only the caller references the connection
        if self._script is not None:
            for _ in script:  # it no longer waits for anything
                continue
        if self._failure is not None:
            raise self._failure

    def keep(self, script: Script) -> None:
        """Connect and run a script; then stay open for channels of many threads.

        Raises what the script raises.
        """
        ready = threading.Event()
        failures: list[BaseException] = []

        def all_of_it() -> Script:
            yield from script
            ready.set()
            while self.active:
                yield

        def run() -> None:
            try:
                self.drive(all_of_it(), alone=False)
            except BaseException as error:
                failures.append(error)
            finally:
                ready.set()

        threading.Thread(target=run, daemon=True).start()
        ready.wait()
        if failures:
            raise failures[0]

    def _go_on(self) -> None:
        """Continue the script in paramiko's loop; end the loop with it."""
        if self._script is None or not self.clear_to_send.is_set():  # a key exchange is in progress
            return
        try:
            next(self._script)
            return
        except StopIteration:
            self._disconnect()
        except BaseException as error:
            self._failure = error
        self._script = None
        self.active = False
        raise EOFError

    def _disconnect(self) -> None:
        """Send a disconnect message, so that sshd ends at once.

        Otherwise it first frees its memory, which costs 1.3 ms of the node's CPU. This saves 6% of the wall time of
        200 hosts.
        """
        message = paramiko.Message()
        message.add_byte(_DISCONNECT)
        message.add_int(_BY_APPLICATION)
        message.add_string("done")
        message.add_string("")
        with contextlib.suppress(EOFError, OSError, paramiko.SSHException):
            self._send_message(message)  # type: ignore[attr-defined]
            self.wire.flush()

    def start_command(self, command: str) -> Generator[None, None, paramiko.Channel]:
        """Start a command on a new, non-blocking channel.

        Raises SSHException, EOFError, OSError.
        """
        opened = threading.Event()
        channel = self._channel = self._announced(opened)
        yield from self.wait(opened)
        if not self.active or self._channels.get(channel.get_id()) is None:  # type: ignore[attr-defined]
            raise self.get_exception() or paramiko.SSHException("Unable to open channel.")
        channel.settimeout(0.0)
        message = paramiko.Message()
        message.add_byte(_CHANNEL_REQUEST)
        message.add_int(channel.remote_chanid)
        message.add_string("exec")
        message.add_boolean(True)
        message.add_string(command)
        self._send_user_message(message)  # type: ignore[attr-defined]
        yield from self.wait(channel.event)
        if not channel.event_ready:
            raise self.get_exception() or paramiko.SSHException("Channel closed.")
        return channel

    @classmethod
    def algorithms(cls) -> dict[str, tuple[str, ...]]:
        """Return the supported algorithms: kex, cipher, mac, key."""
        return {name: tuple(getattr(cls, f"_{name}_info")) for name in ("kex", "cipher", "mac", "key")}

    def _parse_channel_open_failure(self, m: paramiko.Message) -> None:
        """Record the reason that the host sent, which paramiko only logs.

        The reason is included in the message to the user.
        """
        with contextlib.suppress(Exception):
            copy = paramiko.Message(m.asbytes())
            copy.get_int(), copy.get_int()
            self.refused_channel = copy.get_text()
        super()._parse_channel_open_failure(m)  # type: ignore[misc]

    def _announced(self, opened: threading.Event) -> paramiko.Channel:
        """Request a channel, as ``open_session`` does, without waiting for it."""
        with self.lock:
            number = self._next_channel()  # type: ignore[attr-defined]
            channel = paramiko.Channel(number)
            self._channels.put(number, channel)  # type: ignore[attr-defined]
            self.channel_events[number] = opened
            self.channels_seen[number] = True
            channel._set_transport(self)  # type: ignore[attr-defined]
            channel._set_window(self.default_window_size, self.default_max_packet_size)  # type: ignore[attr-defined]
        message = paramiko.Message()
        message.add_byte(_CHANNEL_OPEN)
        message.add_string("session")
        message.add_int(number)
        message.add_int(self.default_window_size)
        message.add_int(self.default_max_packet_size)
        self._send_user_message(message)  # type: ignore[attr-defined]
        return channel

    def wait(self, event: threading.Event) -> Script:
        """Wait for the effect of a message, or for the end of the connection."""
        while self.active and not event.is_set():
            yield
