"""The time and memory of a complete command grow no faster than a hostile text."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from preflight.facts.kernel_log import DMESG
from preflight.recognition import detector, input_sources
from preflight.textprep.lines import Line
from preflight.textprep.numbered_text import LEFT_OUT, NumberedText
from tests.robustness import fuzz_commands
from tests.robustness.fuzz_commands import MOST_BYTES, MOST_GROWTH, NOISE_S, SIZES, repeated, started
from tests.support import commands

XID = "NVRM: Xid (PCI:0000:18:00): 79, "
TABLE = "#  size count type redop root time algbw busbw\n     8     2   float   sum  -1  29.1    0.00    0.00      0\n"

#: Each of these once took time quadratic in the text, or hundreds of bytes of memory per byte.
UNITS = {
    "one Xid line": XID, "Xid lines": f"[ 1000.000001] {XID}pid=7, name=python\n", "line ends": "\n",
    "a driver's name": "NVRM: GSP ", "a NIC's driver": "mlx5_core 0000:18:00.0 ", "AER": "pcieport AER: ",
    "EDAC": "EDAC MC0: ", "tables of nccl-tests": TABLE, "short lines": "a\n",
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _imported() -> None:
    import preflight.cli.app
    import preflight.judge
    import preflight.recognition  # noqa: F401


def seconds(text: str, path: Path) -> float:
    """Return the CPU time of `preflight read` for a text."""
    path.write_text(text, encoding="utf-8", newline="")
    run = started(("read", str(path)))
    assert run.status in (0, 1, 3)
    return run.seconds


@pytest.mark.parametrize("name", UNITS)
def test_time_grows_with_the_text(name: str, tmp_path: Path) -> None:
    for _ in range(3):
        times = [seconds(repeated(UNITS[name], size), tmp_path / "text.txt") for size in SIZES]
        if times[1] < MOST_GROWTH * max(times[0], NOISE_S / MOST_GROWTH):
            return
    pytest.fail(f"{SIZES} characters took {times} s, at the third attempt too")


def test_an_xid_flood_of_many_gpus_and_codes(tmp_path: Path) -> None:
    chosen = random.Random(7)
    lines = [
        f"[{1000 + 0.9 * n:.6f}] NVRM: Xid (PCI:0000:{chosen.choice('123456789ab')}8:00): "
        f"{chosen.choice((13, 31, 43, 45, 63, 74, 79, 94))}, pid={chosen.randrange(1000, 9000)}, name=python\n"
        for n in range(16_000)
    ]
    times = [seconds("".join(lines[:count]), tmp_path / "flood.txt") for count in (4_000, 16_000)]
    assert times[1] < MOST_GROWTH * times[0]


@pytest.mark.parametrize(
    "unit",
    ["CA 'mlx5_0'\n\tPort 1:\n", "\tGPU0\tGPU1\nGPU0\t X \tNV18\n", '{"log":"a"}\n',
     "mlx5_0 port 1 ==> eth0 (Up)\n"],
)  # fmt: skip
def test_short_lines_cost_no_more_memory_than_their_limit(unit: str, tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    path.write_text(unit * (3 * input_sources.HELD_LINES // unit.count("\n")))
    (done,) = commands.run([("read", "--json", str(path))], tmp_path, os.environ)
    assert done.mib <= 150


def test_lines_beyond_the_limit_are_left_out_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_sources, "HELD_LINES", 10)
    monkeypatch.setattr(input_sources, "CHUNK", 7)
    for count in (5, 10, 20, 21, 22, 50, 137):
        text = "".join(f"line {number}\n" for number in range(1, count + 1))
        notes: list[str] = []
        held = input_sources._held(io.BytesIO(text.encode()), notes.append)
        lines = dict(held.lines())
        gap = [number for number, line in lines.items() if line == LEFT_OUT]
        present = {number for number, line in lines.items() if line and number not in gap}
        assert all(lines[number] == f"line {number}" for number in present)
        assert held.complete == (present == set(range(1, count + 1))) == (not gap)
        if gap:
            assert len(present) >= 18
            assert {1, count, gap[0] - 1} <= present


def test_of_a_source_of_very_many_lines_the_beginning_is_held(tmp_path: Path) -> None:
    """Each line end was stored as an empty line: 942 MB for 20 million of them, compressed to 97 KB."""
    path = tmp_path / "ends.txt.gz"
    path.write_bytes(gzip.compress(b"first\n" + b"\n" * 12_000_000 + b"last\n"))
    (done,) = commands.run([("read", str(path))], tmp_path, os.environ)
    assert done.status == 3
    assert done.mib << 20 < MOST_BYTES


def test_a_line_that_is_cut_in_its_middle_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_sources, "HELD", 30)
    monkeypatch.setattr(input_sources, "CHUNK", 8)
    notes: list[str] = []
    held = input_sources._held(io.BytesIO(b"first\n" + b"x" * 200 + b"\nlast\n"), notes.append)
    assert len(notes) == 1
    assert list(held.lines()) == [(1, "first"), (2, LEFT_OUT), (3, "last"), (4, "")]


def test_commands_survive_damaged_files(tmp_path: Path) -> None:
    files = fuzz_commands.seeds(tmp_path)
    tally = fuzz_commands.CommandTally()
    fuzz_commands.mutations(0.08, random.Random(), files, tmp_path, tally)
    assert tally.runs
    assert not [fault for fault in tally.faults if not fault.startswith("slow: ")], "seconds are for a quiet machine"


@pytest.mark.parametrize(
    ("unit", "size", "status"),
    [
        ("\n", 8_000_000, 3),
        ("[ 1000.000001] NVRM: Xid (PCI:0000:18:00\n", 10_000_000, 3),
        ('{"log":"a"}\n', 5_000_000, 3),
        ("NCCL\n", 5_000_000, 3),
        ("NCCL WARN\n", 5_000_000, 3),
        ("GPU3 NV18 NV18 NV18 X NODE PXB 0-59 0 N/A\nGPU1 NV18 X NV18 NV18 NODE PXB 0-59 0 N/A\n", 5_000_000, 3),
    ],
)
def test_text_that_packs_to_nothing_is_read_in_seconds(unit: str, size: int, status: int, tmp_path: Path) -> None:
    """Each line was parsed for NCCL: 97 KB of compressed line ends took 18 s, 300 KB of cut Xid lines 15."""
    path = tmp_path / "text.log.gz"
    path.write_bytes(gzip.compress((unit * (size // len(unit))).encode()))
    run = started(("read", str(path)))
    assert run.status == status
    assert run.seconds < 10
    assert run.peak_bytes < MOST_BYTES


def test_a_log_of_many_benchmark_reports_is_refused_by_name(tmp_path: Path) -> None:
    """Each report had findings of its own: 94,608 of them in 110 KB took 57 s and 803 MB."""
    row = "  32768  8192  float  sum  -1  41.05  0.80  0.80  0  39.40  0.83  0.83  0"
    begin = "# nThread 1 nGpus 1 minBytes 8192 maxBytes 8589934592 step: 2(factor) warmup iters: 10 iters: 100"
    path = tmp_path / "text.log.gz"
    path.write_bytes(gzip.compress(f"{begin}\n{row}\n#\n".encode() * 30_000))
    node = str(fuzz_commands.seeds(tmp_path)["evidence"][0])
    (done,) = commands.run([("judge", "-v", "--log", str(path), node)], tmp_path, os.environ)
    assert done.status in (1, 3)
    assert "it has more than 2,048 nccl-tests reports; split it" in " ".join(done.output.split())
    assert done.cpu_s < 10
    assert done.mib << 20 < MOST_BYTES


def test_texts_of_many_reports_are_taken_out_of_a_log_in_one_pass() -> None:
    """The log was split into lines again for each report: 2,049 of them in 8 MB took most of 12 s."""
    log = NumberedText("a line\n" * 80_000)
    began = time.process_time()
    texts = list(log.between((first, first + 9) for first in range(1, 20_000, 10)))
    assert time.process_time() - began < 1
    assert len(texts) == 2000
    assert set(texts) == {"\n".join(["a line"] * 10)}


def test_a_record_of_line_feeds_is_judged_in_seconds(tmp_path: Path) -> None:
    """Each empty line was compared with five formats of time, half a second a megabyte."""
    files = fuzz_commands.seeds(tmp_path)
    document = json.loads(files["evidence"][0].read_text())
    document["records"][DMESG]["out"] = "\n" * 12_000_000
    path = tmp_path / "evidence.json"
    path.write_text(json.dumps(document))
    (done,) = commands.run([("judge", str(path))], tmp_path, os.environ)
    assert done.status in (1, 3)
    assert done.cpu_s < 3
    assert done.mib << 20 < MOST_BYTES


@pytest.mark.parametrize("period", [1, 3])
def test_lines_that_repeat_are_compared_with_each_format_a_few_thousand_times(period: int) -> None:
    """A million warnings in 61 KB took 10 s, mostly for these comparisons."""
    compared = []

    def matches(lines: Sequence[Line], at: int) -> bool:
        compared.append(at)
        return lines[at].text == "begins"

    lines = [Line(number, f"line {number % period}") for number in range(50_000)]
    lines += [Line(50_000, "begins"), *(Line(number, "line") for number in range(50_001, 60_000))]
    kind = detector.OutputFormat("x", matches, lambda lines, at: detector.ParsedPart(at + 1, {}, ""))
    (part,) = detector.parts(lines, "", [kind])
    assert (part.first, part.last) == (50_000, 50_000)
    assert len(compared) < 8_000


def test_a_log_of_line_feeds_is_judged_in_seconds(tmp_path: Path) -> None:
    """Each empty line was searched for NCCL's words, half a second a megabyte."""
    files = fuzz_commands.seeds(tmp_path)
    path = tmp_path / "job.log.gz"
    path.write_bytes(gzip.compress(b"\n" * 12_000_000))
    run = started(("judge", "--log", str(path), str(files["evidence"][0])))
    assert run.status in (1, 3)
    assert run.seconds < 3
