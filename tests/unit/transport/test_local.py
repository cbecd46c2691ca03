"""From a plan to a document on this machine: the frame, the payload, and all ways to have no answer."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shlex
import subprocess
import sys
import zlib
from pathlib import Path
from typing import IO, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.collector import frame
from preflight.evidence import document as evidence
from preflight.transport import payload as ship
from tests.support.local_transport import collect, interpreter, make_plan, phase_and_reason
from tests.support.stopwatch import Stopwatch

DOCUMENT = {
    "schema": "preflight.evidence/1",
    "text": "é\udcff" + "".join(hashlib.sha256(b"%d" % n).hexdigest() for n in range(8)),
}
FRAME = frame.pack(DOCUMENT)


def read_frame(source: bytes | IO[bytes]) -> dict[str, Any]:
    """Return the document framed in some bytes, or in a stream that is read up to the end mark."""
    reader = frame.FrameReader()
    if isinstance(source, bytes):
        reader.feed(source)
        return reader.document()
    while (data := source.read(65536)) and not reader.feed(data):
        pass
    return reader.document()


# The frame


@given(noise=st.binary(max_size=300), cut=st.integers(1, len(FRAME)))
def test_a_frame_is_found_after_any_noise_and_a_cut_one_is_refused(noise: bytes, cut: int) -> None:
    assert read_frame(noise + FRAME) == DOCUMENT
    assert read_frame(noise + FRAME + noise) == DOCUMENT
    with pytest.raises(frame.FrameError):
        read_frame(noise + FRAME[:-cut])


@given(st.integers(0, len(FRAME) - 1), st.integers(1, 255))
def test_no_damage_goes_unseen(position: int, change: int) -> None:
    damaged = bytearray(FRAME)
    damaged[position] ^= change
    with pytest.raises(frame.FrameError):
        read_frame(bytes(damaged))


@given(st.text(alphabet='\\n\n\r\0"u0'))
def test_text_with_backslashes_and_line_ends_comes_back_as_it_was(text: str) -> None:
    assert read_frame(frame.pack({"text": text, text: 1})) == {"text": text, text: 1}


@given(st.lists(st.integers(1, 50), min_size=1))
def test_a_frame_may_come_in_pieces(sizes: list[int]) -> None:
    stream, reader, complete = io.BytesIO(b"motd\n" + FRAME + b"goodbye"), frame.FrameReader(), False
    for size in sizes * (len(FRAME) + 5):
        complete = reader.feed(stream.read(size))
        if complete:
            break
    assert complete
    assert reader.document() == DOCUMENT
    assert reader.noise == b"motd\n"


def test_a_stream_is_read_to_the_end_mark_and_no_further(tmp_path: Path) -> None:
    read, write = os.pipe()
    with os.fdopen(read, "rb", buffering=0) as source, os.fdopen(write, "wb") as sink:
        frame.write_frame(sink, DOCUMENT)
        assert read_frame(source) == DOCUMENT


def framed(payload: bytes) -> bytes:
    digest = hashlib.sha256(payload).hexdigest().encode()
    return frame.MAGIC + b"%d %s\n" % (len(payload), digest) + payload + frame.END


@pytest.mark.parametrize(
    ("data", "kind", "message"),
    [
        (b"", frame.NoFrame, "there is no answer"),
        (b"bash: python3: command not found\n", frame.NoFrame, "there is no answer"),
        (frame.MAGIC + b"12", frame.CutFrame, "truncated in its first line"),
        (FRAME[:200], frame.CutFrame, f"of {FRAME.split()[1].decode()} bytes"),
        (FRAME[:-1], frame.CutFrame, "the answer was truncated at "),
        (FRAME[:-1] + b"x", frame.DamagedFrame, "end mark"),
        (FRAME.replace(b"\x9c", b"\x9d", 1), frame.DamagedFrame, "checksum"),
        (framed(b"not zlib"), frame.DamagedFrame, "damaged"),
        (framed(zlib.compress(b"[1]")), frame.DamagedFrame, "not a JSON object"),
        (framed(zlib.compress(b"{")), frame.DamagedFrame, "damaged"),
        (framed(zlib.compress(b"[" * 100_000)), frame.DamagedFrame, "damaged"),
        (framed(zlib.compress(b"{}")[:-1]), frame.DamagedFrame, "damaged"),
    ],
)
def test_what_is_wrong_with_an_answer_is_reported(data: bytes, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        read_frame(data)


def test_an_answer_that_inflates_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame, "LIMIT", 1000)
    with pytest.raises(frame.DamagedFrame, match="more than 1000 bytes"):
        read_frame(framed(zlib.compress(b" " * 2000)))


# The payload


def test_the_archive_is_the_same_for_the_same_source_and_holds_source_only() -> None:
    assert ship.archive() == ship.archive()
    sources = json.loads(zlib.decompress(ship.archive({"pynvml.py": b"x = 1\n"})))
    assert sources["pynvml.py"] == "x = 1\n"
    assert "collector/__init__.py" in sources
    assert all(name.endswith(".py") for name in sources)
    assert len(ship.archive()) < 52_000
    assert len(ship.BOOT) < 4_000


def test_a_library_that_travelled_is_used_where_the_node_has_none(tmp_path: Path) -> None:
    source = b"""
AF_LINK = 17
class _Memory:
    def _asdict(self): return {"total": 42}
def virtual_memory(): return _Memory()
"""
    bare = getattr(sys, "_base_executable", sys.executable)
    if subprocess.run([bare, "-I", "-c", "import psutil"], stderr=subprocess.DEVNULL).returncode == 0:
        pytest.skip("every interpreter here has psutil")
    plan = make_plan()
    plan["probes"] = [{"key": "psutil:m", "kind": "psutil", "target": "virtual_memory", "timeout_s": 5}]
    argv = [bare, *ship.OPTIONS, ship.BOOT]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(ship.frames_for(plan, {"psutil.py": source}))
        found = read_frame(process.stdout)
    assert found["records"]["psutil:m"]["value"] == {"total": 42}


@pytest.mark.parametrize("sent", [b"", b"preflight 10 10\nshort", b"GET / HTTP/1.0\r\n", b"preflight 0 0\n"])
def test_an_incomplete_collector_is_not_run(sent: bytes) -> None:
    argv = [sys.executable, *ship.OPTIONS, ship.BOOT]
    done = subprocess.run(argv, input=sent, capture_output=True, timeout=60)
    assert done.returncode != 0
    assert done.stdout == b""
    assert done.stderr


def test_nothing_is_written_where_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert "no_answer" not in collect(make_plan())
    assert not list(tmp_path.iterdir())


# The local transport


def test_a_plan_is_answered() -> None:
    read = evidence.from_document(collect(make_plan()), "test")
    assert read.answered
    assert read.record("cmd:true").rc == 0


def test_talk_before_the_answer_does_no_harm(tmp_path: Path) -> None:
    python = interpreter(tmp_path, 'echo welcome; echo oops >&2; exec $PYTHON "$@"')
    assert "no_answer" not in collect(make_plan(), python)


def test_a_process_that_keeps_the_output_open_is_not_waited_for(tmp_path: Path) -> None:
    python = interpreter(tmp_path, f'sleep 60.{os.getpid()}1 & exec $PYTHON "$@"')
    watch = Stopwatch()
    assert "no_answer" not in collect(make_plan(), python)
    assert watch.seconds < 3
    sleeping = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not [line for line in sleeping if f"60.{os.getpid()}1".encode() in line]


def test_an_interpreter_that_is_not_there() -> None:
    phase, reason = phase_and_reason(collect(make_plan(), "/no/such/python"))
    assert (phase, reason) == ("start", "/no/such/python could not be executed: No such file or directory")


def test_an_interpreter_that_fails_is_quoted(tmp_path: Path) -> None:
    python = interpreter(tmp_path, "echo from its output; echo Fatal Python error: no module >&2; exit 4")
    phase, reason = phase_and_reason(collect(make_plan(), python))
    assert phase == "collect"
    assert reason == "exit status 4: Fatal Python error: no module from its output"


def test_a_flood_on_its_error_stream_is_read_and_bounded(tmp_path: Path) -> None:
    python = interpreter(tmp_path, 'head -c 3000000 /dev/zero | tr "\\0" x >&2; exit 1')
    phase, reason = phase_and_reason(collect(make_plan(), python))
    assert phase == "collect"
    assert len(reason) < 5000


def test_an_answer_that_is_cut_or_damaged(tmp_path: Path) -> None:
    phase, reason = phase_and_reason(collect(make_plan(), interpreter(tmp_path, '$PYTHON "$@" | head -c 200')))
    assert phase == "read"
    assert reason.startswith("the answer was truncated at ")
    python = interpreter(tmp_path, f"printf '%s' {shlex.quote(frame.MAGIC.decode())}; echo 2 {'0' * 64}; cat; echo")
    assert phase_and_reason(collect(make_plan(deadline_s=1), python))[0] == "read"


def test_an_unreadable_plan_is_reported() -> None:
    plan = make_plan()
    del plan["parallel"]
    phase, reason = phase_and_reason(collect(plan))
    assert phase == "collect"
    assert reason == "exit status 1: the collector failed: KeyError: 'parallel'"
