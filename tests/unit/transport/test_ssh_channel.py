"""What a connection's script may rely on: sending waits without blocking, a stream keeps what came."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from preflight.transport.ssh import channel as ssh_channel


class Narrow:
    """A channel that has room for so many bytes; made by hand after paramiko's ``Channel.send``."""

    out_max_packet_size = 10

    def __init__(self, room: int) -> None:
        self.room, self.closed = room, False
        self.sent = b""

    def send(self, data: bytes) -> int:
        """Take what there is room for."""
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
