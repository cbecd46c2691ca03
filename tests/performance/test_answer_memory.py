"""The answers of many simultaneous nodes take a bounded amount of memory."""

from __future__ import annotations

import base64
import gc
import hashlib
import json
import random
import tempfile
import threading
import tracemalloc
import zlib
from pathlib import Path

import pytest

from preflight.archive import lazy
from preflight.collect.scheduler import FANOUT
from preflight.collector import frame
from preflight.evidence import json_limits
from preflight.evidence.document import Evidence, dump, from_document, memory
from preflight.expectations import Cluster
from preflight.judge import _each, evidence_reload, judge
from preflight.transport import answer_memory
from preflight.transport.answer_memory import AnswerMemory, Reader
from tests.robustness.test_decoding import MIB, evidence, shaped
from tests.support.fixture import FIXTURES


def reader(text: str) -> Reader:
    made = Reader()
    payload = zlib.compress(text.encode("utf-8", "surrogatepass"), 1)
    digest = hashlib.sha256(payload).hexdigest().encode()
    assert made.feed(frame.MAGIC + b"%d %s\n" % (len(payload), digest) + payload + frame.END)
    return made


def share(text: str) -> int:
    """Return the bytes reserved for the decoded values of an answer."""
    return json_limits.memory(text.encode()) - json_limits.text_size(text.encode())


def test_an_answer_waits_until_another_is_put_aside() -> None:
    text = evidence(shaped("texts", 2 * MIB))
    size = share(text)
    free = AnswerMemory(most=size + size // 2, wait_s=20)
    held = [from_document(free.document(reader(text)), "a")]
    second: list[Evidence] = []
    waiting = threading.Thread(target=lambda: second.append(from_document(free.document(reader(text)), "b")))
    waiting.start()
    waiting.join(0.3)
    assert not second, "there is no free for two"
    assert free.document(reader(evidence("1")))["node"] == "a", "another answer does not wait behind it"
    held.clear()
    gc.collect()
    waiting.join(20)
    assert second


def test_answers_that_are_held_until_they_are_put_aside_fit() -> None:
    """The estimate for texts with many commas is thirty times their size."""
    text = evidence(json.dumps("a," * 100_000))
    assert lazy.HELD * json_limits.memory(text.encode(), json_limits.ANSWER) > 1.2 * answer_memory.MOST
    free = AnswerMemory(wait_s=0.1, reserved=answer_memory.RESERVED)
    held = [free.document(reader(text)) for _ in range(lazy.HELD)]
    assert len(held) == lazy.HELD
    assert free._left >= 0
    held.clear()
    assert free._left == answer_memory.MOST


def test_without_room_in_time_the_node_has_no_answer_and_the_next_has_one() -> None:
    text = evidence(shaped("texts", 2 * MIB))
    free = AnswerMemory(most=share(text), wait_s=0.2)
    held = free.document(reader(text))
    with pytest.raises(frame.DamagedFrame, match="are available"):
        free.document(reader(text))
    del held
    assert free.document(reader(text))["node"] == "a"


def test_small_answers_have_memory_that_large_ones_cannot_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_memory, "SMALL", MIB)
    large, small = evidence(shaped("texts", 2 * MIB)), evidence(shaped("texts", MIB // 40))
    free = AnswerMemory(most=share(large) + share(small) // 2, wait_s=0.1, reserved=share(small))
    with pytest.raises(frame.DamagedFrame, match="are available"):
        free.document(reader(large))
    assert free.document(reader(small))["node"] == "a"


def test_a_damaged_answer_gives_its_room_back() -> None:
    free = AnswerMemory(most=MIB, wait_s=0.1)
    for _ in range(40):
        with pytest.raises(ValueError, match=r"\w"):
            free.document(reader('{"records": {' + '"a": 1,' * 2000))
    assert free.document(reader(evidence("1")))["records"] == {"x": 1}


def test_a_large_answer_waits_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 nodes may send 16 MiB each of incompressible data at once."""
    monkeypatch.setattr(answer_memory, "IN_MEMORY", 10_000)
    text = evidence(json.dumps({"out": base64.b64encode(random.Random(1).randbytes(MIB)).decode()}))
    payload = zlib.compress(text.encode(), 1)
    answer = frame.MAGIC + b"%d %s\n" % (len(payload), hashlib.sha256(payload).hexdigest().encode()) + payload
    made = Reader()
    tracemalloc.start()
    try:
        for at in range(0, len(answer), 4096):
            assert not made.feed(answer[at : at + 4096])
        assert tracemalloc.get_traced_memory()[0] < MIB // 4
    finally:
        tracemalloc.stop()
    with pytest.raises(frame.CutFrame, match="truncated at"):
        AnswerMemory().document(made)
    assert made.feed(frame.END)
    assert AnswerMemory().document(made) == json.loads(text)


def test_an_answer_that_cannot_be_written_is_the_error_of_its_node(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(answer_memory, "IN_MEMORY", 10)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(frame.DamagedFrame, match="cannot be written"):
        AnswerMemory().document(reader(evidence("1")))


def test_large_documents_are_put_aside_though_they_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy, "HELD_BYTES", 4 * MIB)
    spool = lazy.Spool()
    for number in range(5):
        spool.add(Evidence(f"n{number}", "", {"x": {"status": "ok", "value": [f"a{n}" for n in range(30_000)]}}))
    documents = spool.documents()
    assert isinstance(documents, lazy.Saved)
    assert [one.node for one in documents] == [f"n{number}" for number in range(5)]
    assert all(len(one.records["x"]["value"]) == 30_000 for one in documents)


def test_what_a_document_takes_is_all_of_it() -> None:
    """A collector's notes and the names of records are counted as well."""
    notes = ["b" * 100] * 10_000
    names: dict[str, object] = {f"file:/{n:0200}": {} for n in range(10_000)}
    assert memory(Evidence("a", "", {}, {"notes": notes})) > MIB
    assert memory(Evidence("a", "", names)) > 2 * MIB


@pytest.mark.parametrize("come", ["as answers", "as files"])
def test_few_large_documents_are_judged_one_by_one(come: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With fewer than 64, all used to be in memory: 8 nodes took 0.9 GiB."""
    text = evidence(shaped("texts", MIB // 8)).replace('"x":', '"file:/x":{"status":"ok","value":')
    text = text.replace("}}", '}},"collected_at":"2026-01-01T00:00:00Z"}')
    documents = [from_document({**json.loads(text), "node": f"n{number}"}, "n") for number in range(5)]
    for name in ("HELD_BYTES", "JUDGED_BYTES"):
        monkeypatch.setattr(lazy, name, MIB // 4)
    monkeypatch.setattr(evidence_reload, "HELD_BYTES", MIB // 4)
    spool = lazy.Spool()
    for document in documents:
        spool.add(document)
        (tmp_path / f"{document.node}.json").write_text(dump(document))
    stored = spool.documents() if come == "as answers" else lazy.load([tmp_path])[0]
    assert isinstance(stored, lazy.Saved)
    assert stored.large
    fleet, _ = _each(stored.sources, [], Cluster(), 1, large=True)
    nodes = [node for node in fleet.nodes.values() if isinstance(node, evidence_reload.ReloadedNode)]
    assert len(nodes) == len(documents)
    assert [node.evidence.records for node in nodes] == [document.records for document in documents]
    assert len(nodes[0]._recall._held) == 1


def test_a_report_has_a_bounded_share_of_the_notes_of_a_node() -> None:
    noted = Evidence("a", "2026-01-01T00:00:00Z", {"file:/x": {"status": "ok"}}, {"notes": ["b" * MIB] * 300})
    (node,) = judge([noted], [])["nodes"]
    assert sum(map(len, node["notes"])) < MIB


def test_a_fleet_of_ordinary_nodes_is_taken_at_the_limits_in_force() -> None:
    """As many as are contacted at the same time."""
    for path in (FIXTURES / "nodes").glob("*.json"):
        raw = path.read_bytes()
        assert share(raw.decode()) < answer_memory.SMALL
        assert FANOUT * (json_limits.memory(raw) - json_limits.text_size(raw)) < answer_memory.MOST


def test_a_large_sweep_is_taken_beside_many_ordinary_answers() -> None:
    """63 nodes answer at once while a sweep of 62 MiB is read."""
    ordinary = evidence(json.dumps({"out": "a line of a log\n" * (5 * MIB // 17)}))
    sweep = evidence(json.dumps({"out": "Switch 36 port 1 LID 17\n" * (62 * MIB // 25)}))
    free, spool, one = AnswerMemory(reserved=answer_memory.RESERVED), lazy.Spool(), threading.Lock()
    refused: list[Exception] = []

    def taken(name: str, text: str) -> None:
        try:
            document = from_document(free.document(reader(text)), name)
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
