"""Sources that are endless, or have one line or only zeros: an answer with bounded work, memory and disk."""

from __future__ import annotations

import os
import tempfile
import tracemalloc
from pathlib import Path

import pytest

from preflight.evidence import spool
from preflight.evidence.safe_read import UnreadableFile
from preflight.parsers import job_log, line_selection
from preflight.recognition import input_sources, open_sources, read
from preflight.recognition.input_sources import HELD, HELD_LINES


class Endless:
    """An endless pipe."""

    def __init__(self) -> None:
        self.read_bytes = 0

    def read(self, size: int) -> bytes:
        """Return this many bytes."""
        self.read_bytes += size
        return b"y\n" * (size // 2)


def test_a_pipe_without_an_end_is_left_and_its_copy_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "MOST_SPOOLED", 4 << 20)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    endless = Endless()
    with pytest.raises(UnreadableFile, match=r"the pipe has more than 4 MiB"):
        spool.spool(endless)
    assert endless.read_bytes <= 6 << 20
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [b"x" * 30_000_000, bytes(30_000_000)], ids=["one line", "zeros"])
def test_little_is_held_of_what_has_no_lines(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    path.write_bytes(content)
    (source,) = open_sources((str(path),))
    assert read(source) == []
    assert len(source.text.text) <= 3 * HELD
    assert len(source.log.text.text) <= 1 << 20


def test_of_many_short_lines_both_ends_are_held(tmp_path: Path) -> None:
    path = tmp_path / "short.txt"
    path.write_bytes(b"a b c\n" * 500_000)
    (source,) = open_sources((str(path),))
    assert source.text.text.count("\n") <= 2 * HELD_LINES + 2
    assert source.text.numbers is not None
    assert source.text.numbers[-1] >= 500_000


def test_a_part_on_both_sides_of_what_is_left_out_is_as_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_sources, "HELD_LINES", 100)
    path = tmp_path / "ports.txt"
    path.write_bytes(b"".join(b"CA 'mlx5_%d'\n\tPort 1:\n" % number for number in range(300_000)))
    (source,) = open_sources((str(path),))
    assert source.text.numbers is not None  # which parses the log, too
    tracemalloc.start()
    (part,) = read(source)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (part.first, part.last) == (1, 600_000)
    assert peak < 10 << 20


def test_lines_that_are_alike_are_selected_so_often(tmp_path: Path) -> None:
    """Lines of a job that differ only in digits are sampled, with a mark at gaps; each rank's report remains."""
    saved = "".join(f"batch {number} of 900000: {number * 7 % 1000} tokens\n" for number in range(60_000))
    info = "gpu001:10:20 [0] NCCL INFO Using network IB\n"
    hung = "".join(
        f"[rank{rank}]:[E] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] last enqueued work: 5, last completed work: 4\n"
        for rank in range(2 * line_selection.ALIKE)
    )
    path = tmp_path / "job.log"
    path.write_text(info + saved + hung + "the last line\n", encoding="utf-8")
    log = job_log.parse_file(path)
    assert log.nccl is not None
    assert log.line_count == 60_002 + 2 * line_selection.ALIKE
    assert log.text.text.count("batch ") < line_selection.ALIKE
    assert len(log.watchdog.progress) == 2 * line_selection.ALIKE
    assert log.watchdog.progress[-1].line == log.line_count - 1
    assert log.text.last == log.line_count


def test_a_pipe_without_a_writer_is_refused(tmp_path: Path) -> None:
    from preflight.recognition import SourceError

    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(SourceError, match="not a regular file"):
        next(open_sources((str(path),)))
