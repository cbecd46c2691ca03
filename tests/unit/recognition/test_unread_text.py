"""Unread parts of a source: no pass depends on them, and the answer names them."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from click.testing import CliRunner

from preflight.cli.app import main
from preflight.parsers import nccl_log
from tests.support.pasted_texts import outside

PREFIX = "gpu01:71:90 [0] NCCL INFO "
LINE = f"{PREFIX}Channel 00/0 : 0[0] -> 1[1] via P2P/IPC "
HEALTHY = f"{PREFIX}NCCL version 2.21.5+cuda12.4\n" + f"{LINE}\n" * 40


def read(path: Path, content: bytes | str) -> tuple[int, str]:
    """Return exit status and output of `preflight read` for a file of this content."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    done = CliRunner().invoke(main, ["read", str(path)])
    return done.exit_code, " ".join(done.output.split())


@pytest.mark.parametrize("repeats", [300, 5_000, 40_000], ids=["20 KB", "350 KB", "2.7 MB"])
def test_a_log_without_line_ends_is_unknown(repeats: int, tmp_path: Path) -> None:
    status, output = read(tmp_path / "job.log", LINE * repeats)
    assert status == 3
    assert "was not read completely" in output
    assert "passed: nccl.failures" not in output


def test_a_failure_behind_the_longest_line_is_not_passed_over(tmp_path: Path) -> None:
    end = f"{PREFIX[:-5]}WARN NET/IB : Got completion from peer with error 12"
    status, output = read(tmp_path / "job.log", f"{HEALTHY}{'x' * 3_000_000} {end}\n")
    assert (status, "is longer than 256 KiB" in output) == (3, True)


@pytest.mark.parametrize("length", [20_000, 900_000, 3_000_000])
def test_a_long_line_of_another_program_hides_nothing(length: int, tmp_path: Path) -> None:
    """A job prints its settings as one line of JSON without NCCL lines."""
    settings = '{"layers": [' + '"attention.dense.weight", ' * (length // 26) + "]}"
    status, output = read(tmp_path / "job.log", f"{HEALTHY}{settings}\n")
    assert (status, "passed: nccl.failures" in output) == (0, True)


def test_a_mark_over_two_pieces_is_seen() -> None:
    scanner = nccl_log.fast_scanner.Scanner()
    for piece in (b"x" * 300 + b"NC", b"CL WARN", b"y" * 300):
        scanner.left_out(piece)
    assert list(scanner.tally.unread) == [nccl_log.fast_scanner.LONG_LINE_NOTE]


@pytest.mark.parametrize("text", [HEALTHY * 2000, outside("ibstat_mt4125.txt") + "\n" * 100_000], ids=["log", "tool"])
def test_damaged_compressed_data_is_no_pass(text: str, tmp_path: Path) -> None:
    packed = gzip.compress(text.encode())
    assert read(tmp_path / "complete.gz", packed)[0] == 0
    status, output = read(tmp_path / "cut.gz", packed[: len(packed) - 12])
    assert (status, "damaged" in output) == (3, True)


def test_the_middle_of_a_long_text_that_is_left_out_is_no_pass(tmp_path: Path) -> None:
    text = outside("ibstat_mt4125.txt")
    status, output = read(tmp_path / "long.txt", text + "\n".join(map(str, range(200_000))) + "\n" + text)
    assert (status, "lines between the beginning and the end were left out" in output) == (3, True)


@pytest.mark.parametrize("name", ["pasted/nt-78.txt", "pasted/nvlink-gb200-cut.txt", "pasted/xid-old-form.txt",
                                  "pasted/topo-13855-glued.txt"])  # fmt: skip
def test_a_cut_output_without_a_fault_ends_with_3(name: str, tmp_path: Path) -> None:
    status, output = read(tmp_path / "pasted.txt", outside(name))
    assert (status, "truncated: the missing lines may show a fault" in output) == (3, True)


def test_an_excerpt_that_is_complete_in_itself_passes(tmp_path: Path) -> None:
    """The legend below a matrix is often left out; only the matrix is judged."""
    assert read(tmp_path / "topo.txt", outside("topo_h100_4gpu_nv6.txt"))[0] == 0


@pytest.mark.parametrize(("leap", "passes"), [("Normal", True), ("Normally", False), ("Not synch", False)])
def test_a_leap_status_that_is_not_known_is_no_pass(leap: str, passes: bool, tmp_path: Path) -> None:
    """The parser of pasted text accepted every word but one as synchronised; that of nodes rejected it."""
    text = outside("chronyc_stratum1.txt")
    assert text.count(": Normal") == 1
    status, output = read(tmp_path / "clock.txt", text.replace(": Normal", f": {leap}"))
    assert (status == 0, "passed" in output) == (passes, passes)


def test_an_empty_text_has_a_short_answer(tmp_path: Path) -> None:
    status, text = read(tmp_path / "empty", " \n")
    assert status == 3
    assert "empty: name a file" in text
    assert "known formats" not in text


@pytest.mark.parametrize(("content", "status"), [("# Notes\nNode n7 is slow — again.\n", 2), ('{"schema": 1', 3)])
def test_judge_names_what_it_takes(content: str, status: int, tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text(content, encoding="utf-8")
    ran = CliRunner().invoke(main, ["judge", str(path)])
    assert (ran.exit_code, "preflight read" in ran.output) == (status, status == 2), ran.output


@pytest.mark.parametrize(("name", "status"), [("FP-BW-1", 0), ("FP-BW-99", 2)])
def test_explain_takes_an_item_of_a_checklist(name: str, status: int) -> None:
    ran = CliRunner().invoke(main, ["explain", name])
    assert (ran.exit_code, "rdma.bandwidth-per-gpu" in ran.output) == (status, status == 0), ran.output
