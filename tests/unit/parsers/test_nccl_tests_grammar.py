"""Reader of nccl-tests compared with its grammar: every version, collective and option, complete, noisy and cut."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.job_texts import benchmark_parts
from tests.support.nccl_tests_grammar import OLD_COLUMNS, VERSIONS, Printed, Run, printed

FIRST = {"1.0.0": {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"}}
RUNS = [
    Run(collective, version, hosts=hosts)
    for version, collective, hosts in product(VERSIONS, OLD_COLUMNS, (("gpu001",), ("a1.x.org", "a2.x.org")))
    if collective in FIRST.get(version, set(OLD_COLUMNS))
]

#: What cannot be recognised from a table alone, where no name is printed: gather from scatter; a ring of one host's…
UNRECOGNISABLE = {"gather", "scatter"}


def holds(facts: dict[str, Any], output: Printed, run: Run, *, rows: int | None = None) -> None:
    truth = output.truth
    for name in ("nranks", "nnodes", "hosts", "nccl_version"):
        assert facts[name] == truth[name], name
    assert facts["collective"] in (
        (run.collective,) if truth["collective"] or run.collective not in UNRECOGNISABLE else (None,)
    )
    for found, wanted in zip(facts["rows"], truth["rows"][:rows], strict=True):
        for name in ("bytes", "count", "dtype", "redop", "root"):
            assert found[name] == wanted[name], name
        for name in ("out_of_place", "in_place"):
            assert (found[name] is None) is (wanted[name] is None)
            for column, value in (wanted[name] or {}).items():
                assert found[name][column] == value, column


def complete(facts: dict[str, Any], output: Printed) -> None:
    for name in ("avg_busbw", "max_busbw", "wrong", "status"):
        assert facts[name] == output.truth[name], name
    assert facts["error"] is None
    assert facts["contradictions"] == []


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run.version}-{run.collective}-{len(run.hosts)}")
def test_every_version_and_collective(run: Run) -> None:
    output = printed(run)
    (part,) = benchmark_parts(output.text)
    holds(part.taken.facts, output, run)
    complete(part.taken.facts, output)
    assert part.taken.complete
    assert (part.first, part.kind) == (1, "nccl-tests")
    json.dumps(part.taken.facts, allow_nan=False)


OPTIONS = [
    frozenset(chosen)
    for chosen in (["timestamp"], ["iters"], ["per-iteration"], ["cputime"], ["tuning"], ["timestamp", "iters"],
                   ["per-iteration", "timestamp"])
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "+".join(sorted(options)))
@pytest.mark.parametrize("check", [True, False])
def test_columns_that_options_add(options: frozenset[str], check: bool) -> None:
    run = Run(options=options, check=check)
    output = printed(run)
    (part,) = benchmark_parts(output.text)
    holds(part.taken.facts, output, run)
    complete(part.taken.facts, output)


@pytest.mark.parametrize("dtype", ["half", "double", "int8", "bfloat16", "uint64", "f8e4m3"])
def test_types(dtype: str) -> None:
    run = Run("all_gather", dtype=dtype)
    output = printed(run)
    (part,) = benchmark_parts(output.text)
    holds(part.taken.facts, output, run)


def test_wrong_values_of_any_number() -> None:
    for wrong in (1, 999_999, 1_048_576):
        output = printed(Run(wrong=wrong))
        (part,) = benchmark_parts(output.text)
        facts = part.taken.facts
        assert (facts["status"], facts["wrong"]) == ("failed", 16)
        assert facts["rows"][-1]["out_of_place"]["wrong"] == int(float(f"{wrong:g}"))


MARKS = {
    "plain": "{}", "open mpi 4": "[1,0]<stdout>:{}", "open mpi 5": "[prterun-h-1@1,0]<stdout>: {}", "srun": "  0: {}",
    "pdsh": "gpu001: {}", "torchrun": "[rank0]:{}", "ray": "(Worker pid=3590, ip=10.0.0.1) {}",
    "ray, coloured": "\x1b[36m(Worker pid=3590)\x1b[0m {}", "without its escape": "[36m(Worker pid=3590)[0m {}",
    "kubectl": "[pod/nccl-launcher/main] {}", "compose": "launcher-1  | {}",
    "kubectl with times": "2026-01-01T00:00:00.123456789Z {}",
    "cri": "2026-01-01T00:00:00.123456789Z stdout F {}", "cloudwatch": " | 2026-01-01T00:00:00.000Z | {}",
    "quoted": "> {}", "indented": "    {}", "tab": "\t{}", "crlf": "{}\r", "comment": "// {}",
    "bracketed time": "[2026-01-01 00:00:00] {}", "logger": "2026-01-01 00:00:00,123 - INFO - {}",
}  # fmt: skip


@pytest.mark.parametrize("mark", MARKS.values(), ids=MARKS)
@pytest.mark.parametrize("version", ["2.0.0", "2.13.3", "2.19.6"])
def test_marks_of_launchers(mark: str, version: str) -> None:
    run = Run("all_gather", version, hosts=("a1", "a2"), gpus=4)
    output = printed(run)
    marked = "\n".join(mark.format(line) for line in output.text.split("\n"))
    (part,) = benchmark_parts(marked)
    holds(part.taken.facts, output, run)
    complete(part.taken.facts, output)


def test_a_table_drawn_with_bars() -> None:
    output = printed(Run())
    lines = ["| " + " | ".join(line.strip("# ").split()) + " |" if "float" in line or "algbw" in line else line
             for line in output.text.split("\n")]  # fmt: skip
    (part,) = benchmark_parts("\n".join(lines))
    complete(part.taken.facts, output)
    assert len(part.taken.facts["rows"]) == 4


NOISE = (
    "gpu001:4001:4101 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [send] via NET/IB/0/GDRDMA", "",
    "Warning: Permanently added 'n1' (ED25519) to the list of known hosts.",
    "Authorization required, but no authorization protocol specified", "[W socket.cpp:426] [c10d] x",
    "gpu001:4001:4101 [0] nccl_net_ofi_domain_get_ep:969 NCCL WARN x", "--------------------------------------------",
    "libibverbs: Warning: couldn't load driver 'libvmw_pvrdma-rdmav34.so'",
    "[1733299200.12] [gpu001:41] ucp_context.c:1 UCX WARN x",
    "No OpenFabrics connection schemes reported that they were able to be",
    "node1:1:2 [0] NCCL INFO Launch mode Parallel",
)  # fmt: skip


@given(st.sampled_from(RUNS), st.lists(st.tuples(st.integers(0, 40), st.sampled_from(NOISE)), max_size=10))
@settings(max_examples=150, deadline=None)
def test_noise_changes_nothing(run: Run, noise: list[tuple[int, str]]) -> None:
    output = printed(run)
    lines = output.text.split("\n")
    for position, text in noise:
        lines.insert(position, text)
    (part,) = benchmark_parts("\n".join(lines))
    holds(part.taken.facts, output, run)
    complete(part.taken.facts, output)


@given(st.sampled_from(RUNS), st.data())
@settings(max_examples=200, deadline=None)
def test_a_cut_makes_nothing_up(run: Run, data: st.DataObject) -> None:
    output = printed(run)
    text = output.text[: data.draw(st.integers(0, len(output.text)))]
    parts = benchmark_parts(text)
    assert len(parts) <= 1
    for part in parts:
        facts, truth = part.taken.facts, output.truth
        assert facts["avg_busbw"] is None or facts["avg_busbw"] == pytest.approx(truth["avg_busbw"], abs=0.011)
        assert facts["status"] in (None, truth["status"])
        assert facts["wrong"] in (None, truth["wrong"])
        assert (facts["max_busbw"] or 0) <= truth["max_busbw"]
        assert facts["collective"] in (None, run.collective, "all_reduce")
        if facts["status"] is None:
            assert not part.taken.complete
        cut_last = text.rpartition("\n")[2]
        for found, wanted in zip(facts["rows"], truth["rows"], strict=False):
            assert found["bytes"] == wanted["bytes"]
            if found is not facts["rows"][-1] or not cut_last.strip():
                assert found["in_place"] is None or found["in_place"]["busbw"] == wanted["in_place"]["busbw"]


@given(
    st.lists(st.sampled_from(RUNS), min_size=2, max_size=4),
    st.sampled_from(["", "\n", "$ ./build/x\n", "And then:\n\n"]),
)
@settings(max_examples=100, deadline=None)
def test_several_runs_in_one_file(runs: list[Run], between: str) -> None:
    every = [printed(run) for run in runs]
    parts = benchmark_parts(between.join(output.text for output in every))
    assert len(parts) == len(runs)
    for part, output, run in zip(parts, every, runs, strict=True):
        holds(part.taken.facts, output, run)
        complete(part.taken.facts, output)


def test_two_runs_written_into_each_other() -> None:
    """Copies under different tags are separated line by line."""
    first, second = printed(Run("all_reduce")), printed(Run("all_gather", hosts=("b1", "b2")))
    lines = []
    left, right = first.text.split("\n"), second.text.split("\n")
    for place in range(max(len(left), len(right))):
        lines += [f"[1,0]<stdout>:{left[place]}"] if place < len(left) else []
        lines += [f"[2,0]<stdout>:{right[place]}"] if place < len(right) else []
    parts = benchmark_parts("\n".join(lines))
    assert [part.taken.facts["collective"] for part in parts] == ["all_reduce", "all_gather"]
    for part, output in zip(parts, (first, second), strict=True):
        complete(part.taken.facts, output)


@given(
    st.sampled_from(RUNS), st.lists(st.tuples(st.integers(0, 4000), st.text(max_size=6)), max_size=12), st.booleans()
)
@settings(max_examples=150, deadline=None)
def test_any_damage_is_read(run: Run, damage: list[tuple[int, str]], crlf: bool) -> None:
    text = printed(run).text
    for place, words in damage:
        at = place % (len(text) + 1)
        text = text[:at] + words + text[at + len(words) // 2 :]
    for part in benchmark_parts(text.replace("\n", "\r\n") if crlf else text):
        json.dumps(part.document(), allow_nan=False)
        assert 1 <= part.first <= part.last
