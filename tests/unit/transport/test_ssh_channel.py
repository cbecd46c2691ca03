"""Assumptions of a connection's script: sending does not block, and all received data is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from preflight.transport import bootstrap_protocol
from preflight.transport.ssh import channel as ssh_channel


class Narrow:
    """A channel with room for this many bytes; made by hand after paramiko's ``Channel.send``."""

    out_max_packet_size = 10

    def __init__(self, room: int) -> None:
        self.room, self.closed = room, False
        self.sent = b""

    def send(self, data: bytes) -> int:
        """Take as many bytes as there is room for."""
        if self.closed:
            raise OSError("Socket is closed")
        if not self.room:
            raise TimeoutError
        taken = data[: self.room]
        self.sent, self.room = self.sent + taken, self.room - len(taken)
        return len(taken)


def sending(channel: Narrow, data: bytes) -> Iterator[None]:
    return ssh_channel._send(channel, data)  # type: ignore[arg-type]


def test_sending_waits_for_room() -> None:
    channel = Narrow(room=25)
    script = sending(channel, b"x" * 40)
    next(script)
    assert channel.sent == b"x" * 25
    next(script)  # some other message came
    channel.room = 100
    assert next(script, "sent") == "sent"
    assert channel.sent == b"x" * 40


def test_sending_ends_with_the_channel() -> None:
    channel = Narrow(room=5)
    script = sending(channel, b"x" * 40)
    next(script)
    channel.closed = True
    with pytest.raises(OSError, match="closed"):
        next(script)


class Ended:
    """A channel after the end of its output, with more data than one call reads."""

    closed = eof_received = True
    out_max_packet_size = 1 << 15

    def __init__(self, out: bytes, err: bytes) -> None:
        self.out, self.err = out, err

    def send(self, data: bytes) -> int:
        """Refuse, like a closed channel."""
        raise OSError("Socket is closed")

    def recv_ready(self) -> bool:
        return bool(self.out)

    def recv_stderr_ready(self) -> bool:
        return bool(self.err)

    def recv(self, size: int) -> bytes:
        data, self.out = self.out[:size], self.out[size:]
        return data

    def recv_stderr(self, size: int) -> bytes:
        data, self.err = self.err[:size], self.err[size:]
        return data


def test_all_that_came_before_the_end_is_read() -> None:
    channel = Ended(b"x" * 300_000, b"y" * 200_000)
    exchange = ssh_channel.CollectorChannel(cast(Any, None), {}, 0.0, cast(Any, None))
    assert list(exchange._listen(cast(Any, channel))) == []
    assert (channel.out, channel.err) == (b"", b"")
    assert (exchange._protocol.stdout_bytes, exchange._protocol.stderr_bytes) == (300_000, 200_000)


def test_a_node_that_prints_without_end_is_left() -> None:
    channel = Ended(b"", b"y" * (bootstrap_protocol.NOISE_LIMIT * 2))
    exchange = ssh_channel.CollectorChannel(cast(Any, None), {}, 0.0, cast(Any, None))
    assert list(exchange._listen(cast(Any, channel))) == []
    assert exchange._protocol.over
    assert channel.err
