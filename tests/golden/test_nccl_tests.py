"""Outputs of nccl-tests in public forms, with their certain facts stated by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import paths
from tests.support.job_texts import benchmark_parts
from tests.support.nccl_tests_grammar import Run, printed

DATA = paths.DATA / "outside" / "nccl_tests"


def read(name: str) -> list[dict[str, Any]]:
    return [part.taken.facts for part in benchmark_parts((DATA / f"{name}.txt").read_text())]


#: file -> of each part: collective, ranks, nodes, rows, printed average, best busbw, status
CERTAIN: dict[str, list[tuple[Any, ...]]] = {
    "all-gather-tail-then-broadcast": [
        (None, None, None, 4, 6.2958, 20.63, "ok"), ("broadcast", None, None, 0, None, None, None),
    ],
    "alltoall-blank-redop-tags": [("alltoall", None, None, 7, None, 2.09, None)],
    "alltoall-one-rank": [("alltoall", 1, 1, 1, 0, 0, "ok")],
    "copies-into-each-other": [("all_reduce", 1, 1, 0, None, None, None)],
    "elided-tags": [("all_reduce", None, None, 2, None, 1.73, None)],
    "flush-left-after-its-error": [("all_reduce", 3, 1, 3, None, 0, "failed")],
    "hydra-labels": [("all_reduce", None, None, 10, None, 27.56, None)],
    "placeholders": [(None, None, None, 0, None, None, "ok")],
    "rccl-mi300x-head": [("all_reduce", 8, 1, 1, None, 168.93, None)],
    "rccl-tail": [("all_reduce", None, None, 4, 136.035, 346.23, "ok")],
    "sendrecv-a40": [("sendrecv", 2, 2, 5, None, 0.14, None)],
    "side-by-side": [("all_reduce", None, None, 2, None, 109.91, None)],
    "six-nodes-fail-at-32g": [("all_reduce", None, None, 5, None, 347.11, "failed")],
    "two-servers-fail": [(None, 4, 2, 0, None, None, "failed")],
    "uint8-two-runs": [("sendrecv", None, None, 1, None, 3.11, None), ("sendrecv", 2, 1, 1, None, 5.61, None)],
    "version-1-fails": [("all_reduce", 8, 1, 0, None, None, "failed")],
}  # fmt: skip


def test_every_text_is_read_and_has_its_origin() -> None:
    files = {path.stem for path in DATA.glob("*.txt")}
    assert files == set(CERTAIN)
    index = (DATA / "README.md").read_text()
    assert all(f"| `{name}.txt` | " in index for name in files)


@pytest.mark.parametrize("name", CERTAIN)
def test_what_is_certain(name: str) -> None:
    found = [
        (f["collective"], f["nranks"], f["nnodes"], len(f["rows"]), f["avg_busbw"], f["max_busbw"], f["status"])
        for f in read(name)
    ]
    assert found == CERTAIN[name]


def test_errors() -> None:
    assert {
        name: read(name)[0]["error"] for name in ("two-servers-fail", "version-1-fails", "six-nodes-fail-at-32g")
    } == {
        "two-servers-fail": "Test NCCL failure common.cu:959 'internal error - please report this issue to the NCCL "
        "developers / '",
        "version-1-fails": "NCCL failure all_reduce.cu:95 'unhandled cuda error'",
        "six-nodes-fail-at-32g": "Test NCCL failure common.cu:1204 'unhandled cuda error (run with NCCL_DEBUG=INFO for "
        "details) / '",
    }
    assert read("flush-left-after-its-error")[0]["error"] == "Test NCCL failure common.cu:1005 'unhandled CUDA error'"


def test_error_columns_are_no_wrong_values() -> None:
    (facts,) = read("alltoall-blank-redop-tags")
    assert {half["wrong"] for row in facts["rows"] for half in (row["out_of_place"], row["in_place"])} == {None}
    assert facts["rows"][0]["in_place"]["max_error"] == 1
    assert [row["redop"] for row in facts["rows"]] == [None] * 7


def test_columns_that_were_not_checked() -> None:
    (facts,) = read("sendrecv-a40")
    assert [(row["out_of_place"]["wrong"], row["in_place"]["wrong"]) for row in facts["rows"]] == [(0, None)] * 5


def test_what_is_cut_is_listed() -> None:
    cut = {name: [c.line for part in benchmark_parts((DATA / f"{name}.txt").read_text()) for c in part.taken.cut]
           for name in ("placeholders", "elided-tags", "uint8-two-runs", "rccl-tail")}  # fmt: skip
    assert cut == {"placeholders": [1, 2, 4, 4], "elided-tags": [3, 5], "uint8-two-runs": [4, 15, 15], "rccl-tail": []}


def test_copies_of_a_binary_without_mpi() -> None:
    (facts,) = read("copies-into-each-other")
    assert facts["copies"] == 2
    assert facts["hosts"] == ["ip-172-29-18-253", "ip-172-29-17-198"]


@pytest.mark.parametrize("name", CERTAIN)
def test_nothing_contradicts_itself(name: str) -> None:
    assert [facts["contradictions"] for facts in read(name)] == [[]] * len(CERTAIN[name])


#: Texts that look like nccl-tests but are not its output.
NONE = (
    "I used nccl-tests version 2.13.9 with NCCL 2.18.",
    "#define NCCLCHECK(cmd) printf(\"%s: Test NCCL failure %s:%d '%s'\\n\", host, __FILE__, __LINE__, text)",
    'if grep -qE "Test NCCL failure|Cuda failure" out.log; then',
    "    size(B)    count(elems)     type    time(us)    algbw(GB/s)    busbw(GB/s)\n"
    "   33554432        33554432    uint8         768          40.69          40.69\n"
    "Avg bus bandwidth:      40.6901GB/s",
    "The busbw column matters, not algbw; run all_reduce_perf -b 8 -e 8G -f 2 -g 8.",
    "| `time` | microseconds |\n| `busbw` | algbw x 2(n-1)/n |",
    "n1:1:2 [0] NCCL WARN Cuda failure 1 'invalid argument'",
)


@pytest.mark.parametrize("text", NONE, ids=range(len(NONE)))
def test_what_is_no_output_of_nccl_tests(text: str) -> None:
    assert benchmark_parts(text) == []


DIED = {
    "mpirun noticed that process rank 3 with PID 0 on node gpu002 exited on signal 9 (Killed).": "mpirun noticed",
    "srun: error: gpu002: task 9: Segmentation fault (core dumped)": "srun: error: gpu002: task 9: Segmentation fault",
    "slurmstepd: error: *** STEP 12.0 ON gpu001 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***": "slurmstepd",
    "[gpu001:4001:0:4001] Caught signal 11 (Segmentation fault: address not mapped to object at address)": "Caught",
    "Segmentation fault (core dumped)": "Segmentation fault",
    "./run.sh: line 4: 20837 Killed                  ./build/all_reduce_perf -g 8": None,
    "Primary job  terminated normally, but 1 process returned": "Primary job",
}


@pytest.mark.parametrize("ending", DIED)
def test_a_process_that_died(ending: str) -> None:
    head = "# Collective test starting: all_reduce_perf\n# nThread 1 nGpus 8 minBytes 8 maxBytes 8 x validation: 1\n"
    (part,) = benchmark_parts(f"{head}{ending}\n")
    if DIED[ending] is None:
        return
    assert part.taken.facts["status"] == "failed"
    assert part.taken.facts["error"].startswith(DIED[ending])
    completed = f"{head}# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 1.5 \n{ending}\n"
    assert [part.taken.facts["status"] for part in benchmark_parts(completed)] == ["ok"], (
        "the launcher speaks of another"
    )


def test_a_binary_that_does_not_start() -> None:
    text = (
        "./build/all_reduce_perf: error while loading shared libraries: libnccl.so.2: cannot open shared object file\n"
    )
    (part,) = benchmark_parts(text)
    facts = part.taken.facts
    assert (facts["status"], facts["collective"]) == ("failed", "all_reduce")
    assert "libnccl.so.2" in facts["error"]


def test_json_among_text_and_json_that_ends_early() -> None:
    document = (DATA.parents[1] / "nccl-tests" / "json_2gpu.json").read_text()
    (alone,) = benchmark_parts(document)
    (quoted,) = benchmark_parts(f"Here is the file:\n```json\n{document.rstrip()}\n```\n")
    assert quoted.taken.facts == alone.taken.facts
    assert (quoted.first, quoted.last) == (alone.first + 2, alone.last + 2)
    (cut,) = benchmark_parts(document[: document.index('"out_of_bounds"')])
    assert (len(cut.taken.facts["rows"]), cut.taken.facts["status"]) == (2, None)
    assert not cut.taken.complete
    assert len(benchmark_parts(document + "\n" + document)) == 2


def test_versions() -> None:
    table = (DATA / "rccl-tail.txt").read_text()
    for line, version in (
        ("NCCL version 2.21.5+cuda12.4", "2.21.5"),
        ("gpu001:1:2 [0] NCCL INFO NCCL version 2.27.5+cuda12.9", "2.27.5"),
        ("RCCL version 2.20.5-develop:0123abc+hip6.2 HEAD:x", "2.20.5"),
        ("I use NCCL version 2.18.3 on this machine", None),
    ):
        assert [part.taken.facts["nccl_version"] for part in benchmark_parts(f"{line}\n{table}")] == [version], line


def test_copies_of_several_ranks_each() -> None:
    """Made by hand, after https://github.com/NVIDIA/nccl-tests/issues/306: two interleaved runs of two ranks."""
    head = "# nThread 1 nGpus 2 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20 validation: 1\n#\n"
    ranks = "".join(f"#  Rank  {r} Group  0 Pid {p} on {h} device  {r} [0x0{r}] X\n" for h, p in (("n2", 7), ("n3", 9))
                    for r in (0, 1))  # fmt: skip
    table = "#   size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong\n"
    row = "  268435456   67108864   float   sum   -1   55270   4.86   4.86   0   55213   4.86   4.86   0\n"
    foot = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : {}\n#\n"
    text = head + "# Using devices\n" + head + "# Using devices\n" + ranks + table + table + row + row
    (part,) = benchmark_parts(text + foot.format("1.7535") + row + foot.format("1.6796"))
    facts = part.taken.facts
    assert (facts["copies"], facts["nranks"], facts["nnodes"], facts["hosts"]) == (2, 2, 1, ["n2", "n3"])
    assert (len(facts["rows"]), facts["status"]) == (3, "ok")


def test_comments_that_lost_their_mark_in_a_console() -> None:
    """Made by hand: the comment marks of all lines are removed."""
    output = printed(Run(hosts=("a1", "a2")))
    bare = "\n".join(line.lstrip("# ") if line.startswith("#") else line for line in output.text.split("\n"))
    (part,), (same,) = benchmark_parts(bare), benchmark_parts(output.text)
    assert part.taken.facts == same.taken.facts


def test_a_word_before_the_first_line() -> None:
    table = (DATA / "rccl-mi300x-head.txt").read_text()
    for word in ("Result: ", "Output:\n", "$ ./all_reduce_perf -g 8\n", "out: "):
        (part,) = benchmark_parts(word + table)
        assert (part.taken.facts["nranks"], len(part.taken.facts["rows"])) == (8, 1), word


def test_a_summary_that_was_grepped() -> None:
    text = "NCCL version 2.29.3+cuda13.1\n# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 331.959\n"
    (part,) = benchmark_parts(text + "# Collective test concluded: all_reduce_perf\n")
    facts = part.taken.facts
    assert (facts["collective"], facts["avg_busbw"], facts["status"]) == ("all_reduce", 331.959, "ok")
    assert facts["nccl_version"] == "2.29.3"


def test_rows_that_were_taken_out_in_words() -> None:
    for words in ("# Truncated  smaller message sizes", "...", "[...]", "(omitted)", "<snip>", ". . .", ":", "\u22ee"):
        table = (DATA / "rccl-tail.txt").read_text().split("\n")
        (part,) = benchmark_parts("\n".join([table[0], words, *table[1:]]))
        assert [cut.line for cut in part.taken.cut] == [2], words


def test_labels_within_a_row_that_a_line_of_nccl_splits() -> None:
    """Made by hand: mpiexec -l labels each flushed piece."""
    info = "n1:1:2 [0] NCCL INFO 2048 Bytes -> Algo 0 proto 0 time 25.495272"
    head = "[0] #  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong\n"
    text = f"{head}[0]   2048   512   float   sum   -1[0] {info}\n[0] {info}\n"
    text += f"[0]  73.09  0.03  0.05  0[0] {info}\n[0]  73.2  0.03  0.06  0\n"
    (part,) = benchmark_parts(text)
    (row,) = part.taken.facts["rows"]
    assert (row["bytes"], row["root"]) == (2048, -1)
    assert (row["out_of_place"]["time_us"], row["in_place"]["busbw"]) == (73.09, 0.06)


@pytest.mark.parametrize(
    ("name", "head", "row"),
    [
        ("nccl_tests/hydra-labels", None, 4), ("nccl_tests/rccl-tail", None, 0),
        ("nccl_tests/six-nodes-fail-at-32g", None, 4), ("pasted/nt-table-only", None, 10),
        ("pasted/nt-gcp-376", None, 0), ("pasted/nt-gist-cells", "busbw res", 4),
    ],
)  # fmt: skip
def test_a_row_that_a_screen_broke_counts_no_wrong_values(name: str, head: str | None, row: int) -> None:
    """A single row does not show the screen's width, so a number may be cut and its rest look like another number."""
    lines = (DATA.parent / f"{name}.txt").read_text().split("\n")
    text = [line for line in lines if not line.startswith("#") and " float " in line][row]
    above = next(line for line in lines if head in line) + "\n" if head else ""
    for width in range(20, len(text)):
        broken = "\n".join(text[at : at + width] for at in range(0, len(text), width))
        for part in benchmark_parts(f"{above}{broken}\n"):
            for half in (half for one in part.taken.facts["rows"] for half in (one["out_of_place"], one["in_place"])):
                assert half is None or not (half["wrong"] or half["max_error"]), (width, half)
