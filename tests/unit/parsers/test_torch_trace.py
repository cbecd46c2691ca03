"""PyTorch: profiler traces, flight-recorder dumps, the watchdog; complete, cut, huge and hostile."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import pickle
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from preflight.archive.directory import logs
from preflight.facts.job import RunFacts
from preflight.facts.streamed_log import LogFile
from preflight.parsers import torch
from preflight.parsers.torch import hang, json_stream, watchdog
from preflight.parsers.torch.intervals import Coverage, Stretches, clipped, in_order, total, without
from preflight.parsers.torch.samples import percentile
from preflight.recognition import open_sources, read, read_text
from tests.support import paths
from tests.support.kineto_trace import trace

RECORDED = paths.DATA / "outside" / "torch"
TRACE = (RECORDED / "trace_rank0_gloo.json").read_text(encoding="utf-8")
DUMP = (RECORDED / "behind_rank_2.json").read_text(encoding="utf-8")
WAYS = ("plain", "quoted", "CRLF", "fenced", "coloured", "tagged")


def facts_of(text: str) -> dict[str, Any]:
    seen = torch.parse(text)
    assert seen.trace is not None
    return seen.trace.document


def test_a_recorded_trace() -> None:
    facts = facts_of(TRACE)
    assert (facts["rank"], facts["world_size"], facts["backend"]) == (0, 2, "gloo")
    assert facts["steps"]["count"] == 2
    assert facts["collective_backends"] == {"gloo": 2}
    assert facts["data_loader"]["count"] == 2
    assert {one["name"]: one["per_step"] for one in facts["synchronisations"]} == {"aten::_local_scalar_dense": 1.0}
    assert facts["gpu"] is None
    assert len(json.loads(TRACE)["traceEvents"]) == facts["events"]


def test_a_recorded_dump_in_both_forms() -> None:
    parsed = torch.parse(DUMP).recording
    pickled = torch.from_pickle((RECORDED / "behind_rank_2.pickle").read_bytes())
    assert parsed is not None
    for recording in (parsed, pickled):
        facts = recording.document("nccl_trace_rank_2")
        assert (facts["rank"], facts["entries"], facts["unfinished_count"], facts["version"]) == (2, 4, 1, "2.10")
        assert [(one["seq"], one["op"], one["input_sizes"]) for one in facts["unfinished"]] == [
            (4, "gloo:all_reduce", [[4096]])
        ]
        assert facts["process_groups"][0]["ranks"] == [0, 1, 2, 3]


def unpickled() -> None:
    pytest.fail("unpickled")


class _Command:
    def __reduce__(self) -> Any:
        return unpickled, ()


def test_no_pickle_is_ever_unpickled(tmp_path: Path) -> None:
    for protocol in range(2, 6):
        with pytest.raises(torch.UnsafePickle, match="was not unpickled; on a machine where you trust it, convert"):
            torch.from_pickle(pickle.dumps({"entries": [_Command()]}, protocol))
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(pickle.dumps({"pg_config": {}, "entries": [_Command()]}))
    (part,) = read(next(open_sources((str(path),))))
    assert part.kind == "flight recorder"
    assert not part.taken.complete
    assert "was not unpickled" in part.taken.cut[0].what
    path.write_bytes(pickle.dumps({"weights": [1, 2, 3]}))
    assert not read(next(open_sources((str(path),))))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 1500))
@example(noise=b"\x00\x00\x00\x00\x00c\\", at=544)  # an escape sequence that Python warns about
def test_damaged_pickles_are_refused_with_words(noise: bytes, at: int) -> None:
    data = (RECORDED / "behind_rank_2.pickle").read_bytes()
    for damaged in (b"\x80\x02" + noise, data[:at], data[:at] + noise + data[at:]):
        with contextlib.suppress(torch.UnsafePickle):
            torch.from_pickle(damaged)


def test_facts_of_a_trace_of_a_gpu() -> None:
    facts = facts_of(trace(steps=6, compute_ms=50, talk_at_ms=40, talk_ms=40, items=2, loader_ms=5))
    gpu = facts["gpu"]
    assert (gpu["compute_ms"], gpu["communication_ms"], gpu["overlapped_ms"], gpu["exposed_ms"]) == (300, 240, 60, 180)
    assert gpu["overlap"] == 0.25
    assert gpu["tail"]["p50_ms"] == 30
    assert gpu["idle_ms"] == 5 * 20
    assert facts["devices"] == ["NVIDIA H100 80GB HBM3"]
    (collective,) = facts["collectives"]
    assert (collective["name"], collective["bytes"], collective["count"]) == ("all_reduce", 50_000_000, 6)
    assert collective["p99_ms"] is None, "six samples have no 99th percentile"
    assert facts["data_loader"]["share_of_steps"] == 0.05
    assert {one["name"]: one["count"] for one in facts["synchronisations"]} == {
        "aten::_local_scalar_dense": 12, "cudaStreamSynchronize": 12, "cudaDeviceSynchronize": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kernel", "collective"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)", "all_reduce"),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)", "all_reduce"),
        ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", "all_reduce"),
        ("ncclKernel_ReduceScatter_RING_LL_Sum_half", "reduce_scatter"),
        ("ncclDevKernel_AllGather_RING_SIMPLE(ncclDevComm*)", "all_gather"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "sendrecv"),
        ("ncclKernel_Broadcast_RING_LL_Sum_int8_t", "broadcast"),
        ("ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", "generic"),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)", "other"),
        ("void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<8>(Params)", "other"),
        ("void tensorrt_llm::kernels::oneShotAllReduceKernel<half, 8>(AllReduceParams)", "other"),
        ("userbuffers_fp16_sum_inplace_gpu_rr_rs_oop(int, int, int, int, int)", "other"),
    ],
)
def test_kernels_that_communicate(kernel: str, collective: str) -> None:
    raw = {"traceEvents": [{"ph": "X", "cat": "kernel", "name": kernel, "ts": 1, "dur": 2, "pid": 0, "tid": 7}]}
    facts = facts_of(json.dumps(raw))
    assert [one["name"] for one in facts["collectives"]] == [collective]
    assert facts["gpu"]["compute_ms"] == 0


def test_a_trace_cut_at_either_end_is_read_as_far_as_it_goes() -> None:
    all_events = facts_of(TRACE)["events"]
    for text in (TRACE[: len(TRACE) // 2], TRACE[len(TRACE) // 2 :], TRACE[20_000:90_000]):
        seen = torch.parse(text)
        assert seen.trace is not None
        assert 0 < seen.trace.document["events"] < all_events
        assert seen.cut
    middle = len(TRACE) // 2
    seen = torch.parse(TRACE[:middle] + "\x00 somebody's line \x00" + TRACE[middle:])
    assert seen.trace is not None
    assert all_events - 2 <= seen.trace.document["events"] < all_events
    assert len(seen.cut) == 1


def test_a_long_trace_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    complete = facts_of(TRACE)
    for size in (1, 7, 1000):
        monkeypatch.setattr(json_stream, "CHUNK", size)
        seen = torch.read(io.BytesIO(TRACE.encode()).read)
        assert seen.trace is not None
        assert not seen.cut
        assert seen.trace.document == complete


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 10**6), st.text(max_size=40))
def test_damage_does_no_harm(begin: int, end: int, noise: str) -> None:
    for text in (trace(steps=2), DUMP):
        first, last = sorted((begin % len(text), end % len(text)))
        for damaged in (text[:first] + noise + text[last:], text[first:last], noise + text[first:]):
            seen = torch.parse(damaged)
            if seen.trace:
                json.dumps(seen.trace.document)
            if seen.recording:
                json.dumps(seen.recording.document("x"))


def test_ranks_that_hang_are_found_in_the_recorded_dumps() -> None:
    recordings = {}
    for rank in range(4):
        recording = torch.parse((RECORDED / f"behind_rank_{rank}.json").read_text(encoding="utf-8")).recording
        assert recording is not None
        recordings[rank] = recording
    (one,) = hang.of_recordings(recordings)
    assert (one.seq, one.waiting, one.behind, one.silent, one.differ) == (4, (0, 2, 3), (1,), (), ())
    del recordings[1]
    (one,) = hang.of_recordings(recordings)
    assert (one.waiting, one.behind, one.silent) == ((0, 2, 3), (), (1,))
    recording = torch.parse((RECORDED / "mismatch_rank_1.json").read_text(encoding="utf-8")).recording
    assert recording is not None
    (one,) = hang.of_recordings({**recordings, 1: recording})
    assert one.differ == ((1, "gloo:all_gather(8 Float into 32)"),)


#: Messages of the watchdog by version, in forms seen in public: rank, seq, op, ran_ms; progress: rank, group, at, …
WATCHDOG_LINES = {
    "1.12": (
        "[E ProcessGroupNCCL.cpp:737] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=531274, "
        "OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1803467 milliseconds before timing out.",
        (1, 531274, "ALLREDUCE", 1803467), None,
    ),
    "2.4": (
        "[rank3]:[E817 14:21:09.482905137 ProcessGroupNCCL.cpp:1709] [PG 0 (default_pg) Rank 3] Timeout at NCCL work: "
        "3148, last enqueued NCCL work: 3160, last completed NCCL work: 3147.",
        None, (3, "0", 3148, 3160, 3147),
    ),
    "2.5": (
        "[rank4]:[E1123 06:37:58.209417365 ProcessGroupNCCL.cpp:1664] [PG 1 Rank 4] Exception (either an error or "
        "timeout) detected by watchdog at work: 6418, last enqueued NCCL work: 6420, last completed NCCL work: 6417.",
        None, (4, "1", 6418, 6420, 6417),
    ),
    "2.7": (
        "[rank118]:[E714 05:12:33.617204985 ProcessGroupNCCL.cpp:2268] [PG ID 0 PG GUID 0(default_pg) Rank 118]  "
        "failure detected by watchdog at work sequence id: 1874236 PG status: last enqueued work: 1874355, last "
        "completed work: 1874235",
        None, (118, "0(default_pg)", 1874236, 1874355, 1874235),
    ),
    "a rank within its group": (
        "[rank13]:[E306 02:17:41.339120866 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=225, OpType=ALLTOALL_BASE, NumelIn=1313792, NumelOut=1507328, Timeout(ms)=600000) "
        "ran for 600056 milliseconds before timing out.",
        (13, 225, "ALLTOALL_BASE", 600056), None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("version", WATCHDOG_LINES)
def test_the_watchdog_of_each_version(version: str) -> None:
    line, timed_out, progress = WATCHDOG_LINES[version]
    parsed = watchdog.parse(line)
    assert [(one.rank, one.seq, one.op, one.ran_ms) for one in parsed.timed_out] == ([timed_out] if timed_out else [])
    assert [(p.rank, p.group, p.at, p.enqueued, p.completed) for p in parsed.progress] == (
        [progress] if progress else []
    )
    parts = read_text(line, "pasted")
    assert not parts, "the log's own reader tells of it"


def test_stretches_of_time() -> None:
    some = Stretches()
    for begin, length in ((5, 5), (0, 3), (2, 2), (9, 4)):
        some.add(begin, length)
    assert list(some.joined()) == [(0, 4), (5, 13)]
    assert list(without(some.joined(), [(1, 2), (3, 6), (12, 20)])) == [(0, 1), (2, 3), (6, 12)]
    assert total(some.joined()) == 12
    assert list(without([(0, 1)], [])) == [(0, 1)]
    assert percentile([1.0] * 99, 0.99) is None
    assert percentile(sorted(map(float, range(100))), 0.99) == 98
    assert percentile([1.0, 2.0, 3.0], 0.5) == 2


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=9),
       st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=9))  # fmt: skip
def test_inside_and_outside_add_up(these: list[tuple[int, int]], those: list[tuple[int, int]]) -> None:
    one, other = Stretches(), Stretches()
    for source, stretches in ((these, one), (those, other)):
        for begin, length in source:
            stretches.add(begin, length)
    a, b = one.joined(), other.joined()
    assert total(clipped(a, b)) + total(without(a, b)) == total(a)
    assert total(clipped(a, b)) == total(clipped(b, a))
    for other_span in b:
        assert a.within(*other_span) == Coverage(a).within(*other_span) == total(clipped(a, [other_span]))


@pytest.mark.parametrize("most", [1, 500, 30_000])
def test_a_long_unsorted_sequence_is_sorted_part_by_part(most: int) -> None:
    chance = random.Random(most)
    values = [float(chance.randrange(most)) for _ in range(30_000)]
    assert list(in_order(values)) == sorted(range(len(values)), key=values.__getitem__)


#: Other CPU activity in a step of 100 ms, and the milliseconds in six steps that it waits for the GPU.
WAITS: dict[str, tuple[dict[str, Any], float]] = {
    "nothing": ({}, 0),
    ".item() on the GPU": ({"items": 2, "item_ms": 1}, 12),
    ".item() on the CPU": ({"items": 900, "item_ms": 0}, 0),
    "a copy of pageable memory": ({"pageable_ms": 5}, 30),
    "both at once": ({"pageable_ms": 95, "items": 1, "item_ms": 4}, 6 * 97),
}


@pytest.mark.parametrize("case", WAITS)
def test_the_time_that_the_cpu_waits(case: str) -> None:
    described, lost = WAITS[case]
    facts = facts_of(trace(**described))
    assert facts["synchronised_ms"] == pytest.approx(lost)


def test_a_thread_that_starts_no_kernel_holds_nothing_up() -> None:
    events = json.loads(trace())["traceEvents"]
    events.append({**next(e for e in events if e["name"] == "cudaLaunchKernel"), "tid": 99, "dur": 50_000,
                   "name": "cudaEventSynchronize"})  # fmt: skip
    assert facts_of(json.dumps({"traceEvents": events}))["synchronised_ms"] == 0


@pytest.mark.parametrize(("described", "tail"), [
    ({"compute_ms": 70, "talk_at_ms": 70.003, "talk_ms": 24, "collectives": 8, "gap_ms": 0.003}, 24),
    ({"compute_ms": 70, "talk_at_ms": 60, "talk_ms": 20}, 10),
    ({"compute_ms": 70, "talk_at_ms": 60, "talk_ms": 20, "optimizer_at_ms": 75}, 5),
    ({"compute_ms": 70, "talk_at_ms": 20, "talk_ms": 20}, 0),
])  # fmt: skip
def test_the_tail_after_the_backward_pass_is_added_up(described: dict[str, Any], tail: float) -> None:
    facts = facts_of(trace(**described))
    assert facts["gpu"]["tail"]["p50_ms"] == pytest.approx(tail, abs=0.001)
    assert facts_of(trace(backward=False, **described))["gpu"]["tail"] is None, "nothing is known, which is not zero"


def test_a_log_that_no_document_holds_is_read_where_it_lies(tmp_path: Path) -> None:
    """Compressed, too long, a pickle; and a document that claims to be such a log opens no file."""
    packed, long = tmp_path / "trace_rank0.json.gz", tmp_path / "job.log"
    packed.write_bytes(gzip.compress(TRACE.encode()))
    info = "gpu01:11:111 [0] NCCL INFO Using network IB\n"
    line = WATCHDOG_LINES["2.5"][0] + "\n"
    long.write_text(info * 500 + line, encoding="utf-8")
    (tmp_path / "nccl_trace_rank_2").write_bytes((RECORDED / "behind_rank_2.pickle").read_bytes())
    run = logs([packed, long, tmp_path / "nccl_trace_rank_2"], 1000)
    assert run is not None
    facts = RunFacts(run)
    assert facts.kinds == {"trace", "recording", "watchdog"}
    assert facts.nccl_logs["log:job.log"].lines == 500
    assert facts.watchdogs["log:job.log"].progress[0].line == 501
    assert line.strip() in facts.log("log:job.log").text.text
    for record in run.records.values():
        assert isinstance(record, LogFile)
        saved = json.loads(json.dumps(record))
        assert saved.keys() == {"status", "why"}
        assert saved["status"] == "cut"


@pytest.mark.parametrize(("text", "kind", "way"), [
    *((TRACE, "pytorch trace", way) for way in WAYS),
    *((DUMP, "flight recorder", way) for way in WAYS if way != "tagged"),  # no launcher prefixes only one line
])  # fmt: skip
def test_pasted_pieces_are_recognised(text: str, kind: str, way: str) -> None:
    lines = text.strip().split("\n")
    pasted = {
        "plain": "\n".join(lines), "quoted": "\n".join(f"> {line}" for line in lines), "CRLF": "\r\n".join(lines),
        "fenced": "Look:\n```json\n" + "\n".join(lines) + "\n```\n",
        "coloured": "\n".join(f"\x1b[32m{line}\x1b[0m" for line in lines),
        "tagged": "\n".join(f"[1,0]<stdout>:{line}" for line in lines),
    }[way]  # fmt: skip
    (part,) = read_text(pasted, "pasted")
    plain = torch.parse(text)
    expected = plain.trace.document if plain.trace else plain.recording.document("") if plain.recording else None
    assert (part.kind, part.taken.complete, part.taken.facts) == (kind, True, expected)
