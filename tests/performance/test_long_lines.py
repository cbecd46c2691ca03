"""Lines with runs of blanks, and words that repeat within one, are read in linear time."""

from __future__ import annotations

import pytest

from preflight.parsers.nvidia import topo_lines as topo_matrix_lines
from preflight.recognition import read_text
from preflight.reports.recognition_text import render
from preflight.textprep.encodings import opened
from preflight.textprep.plain_text import limit_blank_runs
from tests.robustness.test_parsers import ENOUGH_S, bounded

#: ``~`` is the run of blanks. Each line once took time quadratic or cubic in its length.
LINES = (
    "   node 7 cpus: ~x", "  GPU 777: a~x", "Xmit_data~x", "port_xmit_data~:~x", "a/ports/1/counters/port_xmit_data~x",
    "  ==> port_xmit_data~x", "  name := 'x'~x", "~''~x", "tc: 7 ratelimit:~x", "GPU0~X~NV18~x", "~| ~ |~x",
    "# Rank  0 Group  0 Pid 1 on n device~x", "gpu001:1:2 [0]~77.7~x.cc:7~NCCL~x",
)  # fmt: skip


@pytest.mark.parametrize("line", LINES)
def test_gaps_of_blanks_take_linear_time(line: str) -> None:
    text = line.replace("~", " " * 100_000) + "\n" + (line.replace("~", " " * 250) + "\n") * 200
    with bounded(ENOUGH_S):
        read_text(text, "a")
        opened(text)


@pytest.mark.parametrize("unit", ["dcb --", "dcb -w --", "mlx5_bond_7rdmap7s77", "rocep7s7", "=", "| ", ", ", "'x' "])
def test_words_that_repeat_take_linear_time(unit: str) -> None:
    text = unit * (60_000 // len(unit)) + "\x02\nx\n"
    with bounded(ENOUGH_S):
        read_text(text, "a")
        opened(text)


def test_only_gaps_that_no_tool_prints_are_narrowed() -> None:
    assert limit_blank_runs("a" + " " * 256 + "b\n\tc") == "a" + " " * 256 + "b\n\tc"
    assert limit_blank_runs("a" + " \t" * 300 + "b" + "\n" * 500) == "a" + " \t" * 128 + "b" + "\n" * 500


def test_a_field_behind_a_wide_gap_is_read() -> None:
    (part,) = read_text("CA 'mlx5_0'\n\tPort 1:\n\t\tState:" + " " * 5000 + "Active\n\t\tPhysical state: LinkUp\n", "a")
    assert [port["state"] for port in part.taken.facts["ports"]] == ["Active"]


def test_a_text_of_cut_lines_is_shown_in_short() -> None:
    """A line for each of 29,000 cut lines used to hide the findings."""
    document = {"sources": [{"name": "a.log", "parts": [{
        "lines": [1, 500], "kind": "kernel log", "writer": "", "summary": "", "judged": False, "findings": [],
        "cut": [{"line": number, "what": "the number of an Xid is incomplete"} for number in range(1, 501)],
    }]}]}  # fmt: skip
    text = render(document)
    assert (text.count("is incomplete"), "and 480 more" in text) == (20, True)


def test_repeated_headers_of_a_matrix_are_joined_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each format that looks like a matrix joined each header with the next seven lines: 240 KB took a minute."""
    header = "    ".join(["", *(f"GPU{n}" for n in range(8)), *(f"mlx5_{n}" for n in range(18)), "CPU Affinity"]) + "\n"
    calls = 0
    count = topo_matrix_lines._unknown

    def counted(text: str) -> int:
        nonlocal calls
        calls += 1
        return count(text)

    monkeypatch.setattr(topo_matrix_lines, "_unknown", counted)
    read_text(header * 200, "a")
    assert calls < 1000


def test_a_broken_header_is_still_joined() -> None:
    header = "        GPU0    GPU1    GPU2\n    GPU3    mlx5_0  CPU\n Affinity\n"
    (part,) = read_text(header + "GPU0     X      NV18    NV18    NV18    PIX     0-47\n", "a")
    assert part.taken.facts["gpus"] == [f"GPU{n}" for n in range(4)]
    assert part.taken.facts["nics"] == ["mlx5_0"]
