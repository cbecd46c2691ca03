"""When a channel's stream wakes its reader: often enough, and no more."""

from __future__ import annotations

import threading

import pytest

from preflight.collector import frame
from preflight.transport import ssh_channel


class Heard:
    """A stream, and what it has said to its reader."""

    def __init__(self) -> None:
        self.wake, self.marks = threading.Event(), 0
        self.stream = ssh_channel._Stream(self.wake, self._marked)

    def _marked(self) -> None:
        self.marks += 1

    def wakes(self, data: bytes) -> bool:
        """Feed a piece; tell whether the reader was woken for it."""
        self.wake.clear()
        self.stream.feed(data)
        return self.wake.is_set()


def test_every_piece_wakes_until_the_request_is_out() -> None:
    heard = Heard()
    assert heard.wakes(b"motd")
    assert heard.wakes(frame.END)
    assert (heard.marks, heard.stream.read(1)) == (0, b"motd" + frame.END)
    assert not heard.stream.read_ready()


@pytest.mark.parametrize("size", range(1, len(frame.END) + 1))
def test_the_end_mark_wakes_a_patient_reader_in_whatever_pieces_it_comes(size: int) -> None:
    heard = Heard()
    heard.stream.patient = True
    text = b"x" * 100 + frame.END
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert [heard.wakes(piece) for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert (heard.marks, heard.stream.read(1)) == (1, text)


def test_much_of_an_answer_and_its_end_wake_a_patient_reader() -> None:
    heard = Heard()
    heard.stream.patient = True
    assert not heard.wakes(b"x" * (ssh_channel._CHUNK - 1))
    assert heard.wakes(b"x")
    assert heard.marks == 0
    heard.wake.clear()
    heard.stream.close()
    assert heard.wake.is_set()
