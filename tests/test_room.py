"""Answers of many nodes at once take a bounded amount of memory together."""

from __future__ import annotations

import gc
import json
import threading

import pytest

from preflight.archive import lazy
from preflight.collector import frame
from preflight.evidence import json_limits
from preflight.evidence.document import Evidence, from_document
from preflight.transport.answer_memory import Room
from tests.test_decoding import MIB, evidence, framed, shaped


def test_an_answer_waits_until_another_is_put_aside() -> None:
    text = evidence(shaped("texts", 2 * MIB))
    size = json_limits.memory(text.encode(), json_limits.ANSWER)
    room = Room(most=size + size // 2, wait_s=20)
    held = [from_document(room.answer(text), "a")]
    second: list[Evidence] = []
    waiting = threading.Thread(target=lambda: second.append(from_document(room.answer(text), "b")))
    waiting.start()
    waiting.join(0.3)
    assert not second, "there is no room for two"
    held.clear()
    gc.collect()
    waiting.join(20)
    assert second


def test_without_room_in_time_the_node_has_no_answer_and_the_next_has_one() -> None:
    text = evidence(shaped("texts", 2 * MIB))
    room = Room(most=json_limits.memory(text.encode(), json_limits.ANSWER), wait_s=0.2)
    held = framed(text).document(room.answer)
    with pytest.raises(frame.DamagedFrame, match="are left"):
        framed(text).document(room.answer)
    del held
    assert framed(text).document(room.answer)["node"] == "a"


def test_a_damaged_answer_gives_its_room_back() -> None:
    room = Room(most=MIB, wait_s=0.1)
    for _ in range(40):
        with pytest.raises(ValueError, match=r"\w"):
            room.answer('{"records": {' + '"a": 1,' * 2000)
    assert room.answer(evidence("1"))["records"] == {"x": 1}


def test_large_documents_are_put_aside_though_they_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy, "HELD_BYTES", 4 * MIB)
    spool = lazy.Spool()
    for number in range(5):
        spool.add(Evidence(f"n{number}", "", {"x": {"status": "ok", "value": [f"a{n}" for n in range(30_000)]}}))
    documents = spool.documents()
    assert isinstance(documents, lazy.Saved)
    assert [one.node for one in documents] == [f"n{number}" for number in range(5)]
    assert all(len(one.records["x"]["value"]) == 30_000 for one in documents)


def test_a_large_sweep_is_taken_beside_many_ordinary_answers() -> None:
    """The limits that are in force: 63 nodes answer at once while a sweep of 90 MB is read."""
    ordinary = evidence(json.dumps({"out": "a line of a log\n" * (5 * MIB // 17)}))
    sweep = evidence(json.dumps({"out": "Switch 36 port 1 LID 17\n" * (90 * MIB // 25)}))
    room, spool, one = Room(), lazy.Spool(), threading.Lock()
    refused: list[Exception] = []

    def taken(name: str, text: str) -> None:
        try:
            with room.one:
                document = from_document(room.answer(text), name)
            with one:
                spool.add(document)
        except ValueError as error:
            refused.append(error)

    threads = [
        threading.Thread(target=taken, args=(f"n{number:02}", sweep if number == 30 else ordinary))
        for number in range(64)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not refused
    assert sum(1 for _ in spool.documents()) == 64
