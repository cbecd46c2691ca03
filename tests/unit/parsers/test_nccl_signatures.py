"""Failure signatures: each matches its examples, and none matches its counter-examples or a healthy log."""

from __future__ import annotations

import io
import re

import pytest

from preflight.parsers import nccl_log
from preflight.parsers.nccl_log import signatures
from preflight.parsers.nccl_log.signatures import Signature, Where
from tests.support import paths
from tests.support.nccl_log_generate import VERSIONS, Job, generate

ALL = signatures.all_signatures()
DATA = paths.DATA


def split(example: str) -> tuple[str, str]:
    """Return NCCL's FILE:LINE, if an example contains it, and the message."""
    source, bar, message = example.rpartition(" | ")
    return (source, message) if bar else ("x.cc:1", example)


def line(where: Where, example: str) -> str:
    source, message = split(example)
    if where == "outside":
        return message
    return f"gpu001:4001:4101 [0] {source + ' ' if where == 'warn' else ''}NCCL {where.upper()} {message}"


def info(host: str, message: str) -> str:
    return f"{host}:4001:4101 [0] NCCL INFO {message}"


#: A log that satisfies each condition.
AROUND = {
    "": [info("gpu001", "cudaDriverVersion 12040")],
    "tcp": [
        info("gpu001", "Using network Socket"),
        info("gpu001", "comm 0x5 rank 0 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0"),
    ],
    "spread": [info("gpu001", "cudaDriverVersion 12040")],
    "staged": [info("gpu001", "Channel 00/0 : 8[0] -> 0[0] [send] via NET/IB/0")],
    "unexplained": ["gpu001: Test NCCL failure common.cu:961 'internal error - please report this issue to the NCCL'"],
    "silent": [info("gpu001", "cudaDriverVersion 12040")],
    "fatal": [line("warn", "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000")],
}


@pytest.mark.parametrize("signature", ALL, ids=lambda s: s.name)
def test_signature(signature: Signature) -> None:
    assert signature.examples
    assert signature.counter
    assert signature.cause
    assert signature.remedy
    assert signature.layer
    assert signature.severity in signatures.SEVERITIES
    assert signature.when in signatures.CONDITIONS
    assert set(signature.where) <= set(signatures.WHERE)
    known = {other.id for other in ALL}
    assert set(signature.explains) <= known
    for example in signature.examples:
        source, message = split(example)
        found = [signatures.matching(message, where, source) for where in signature.where]
        assert signature.id in {other.id for other in found if other}, example
        assert {other.id for other in found if other} == {signature.id}, example
    for example in signature.counter:
        source, message = split(example)
        assert not any(signature.fits(message, source) for _ in signature.where), example


@pytest.mark.parametrize("signature", ALL, ids=lambda s: s.name)
def test_signature_in_a_log(signature: Signature) -> None:
    for example in signature.examples:
        levels = [w for w in signature.where if signatures.matching(split(example)[1], w, split(example)[0])]
        for where in levels:
            text = "\n".join([*AROUND[signature.when], "", line(where, example)])
            log = nccl_log.parse(text)
            assert log is not None
            found = log.hints if signature.severity == "info" else log.failures
            assert signature.id in {failure.id for failure in found}, (where, example)


@pytest.mark.parametrize("signature", [s for s in ALL if s.when not in ("", "silent", "spread")], ids=lambda s: s.name)
def test_condition(signature: Signature) -> None:
    level = next(w for w in signature.where if w != "outside")
    log = nccl_log.parse("\n".join([*AROUND[""], line(level, signature.examples[0])]))
    assert log is not None
    assert not log.failures
    assert not log.hints


def test_a_failed_call_is_reported_where_no_other_failure_is() -> None:
    returned = line("info", "init.cc:904 -> 3")
    assert [failure.id for failure in nccl_log.parse(returned).failures] == ["call_failed"]  # type: ignore[union-attr]
    for warning, id in (
        ("Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000", "duplicate_gpu"),
        ("Net : Socket creation failed : Address family not supported by protocol", "unrecognised_warning"),
    ):
        log = nccl_log.parse("\n".join([line("warn", warning), returned]))
        assert log is not None
        assert [failure.id for failure in log.failures] == [id]


@pytest.mark.parametrize("signature", [s for s in ALL if s.when == "spread"], ids=lambda s: s.name)
def test_on_one_node_a_network_that_is_not_there_is_no_failure(signature: Signature) -> None:
    size = info("gpu001", "comm 0x5 rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0 MNNVL 0")
    log = nccl_log.parse("\n".join([size, line("warn", signature.examples[0])]))
    assert log is not None
    assert not log.failures


def test_marks_of_info_lines_have_no_digit() -> None:
    """The text of an INFO line is cached without its digits."""
    assert [mark for mark in signatures.info_marks() if re.search(r"\d", mark)] == []


def test_names_are_unique_but_for_one() -> None:
    ids = [signature.id for signature in ALL]
    assert sorted(name for name in set(ids) if ids.count(name) > 1) == ["nvls_bind_failed"]


@pytest.mark.parametrize("version", VERSIONS)
def test_none_in_a_healthy_log(version: str) -> None:
    out = io.BytesIO()
    generate(Job(version, 16), 100_000, out)
    log = nccl_log.parse(out.getvalue().decode())
    assert log is not None
    assert (log.failures, log.hints, log.warnings, log.missing, log.unfinished) == ((), (), (), (), ())


HEALTHY = [
    *["boxed-2.10", "gdr-by-distance-2.4", "mpirun-tags-2.4", "no-host-2.5", "pdsh-sharp-2.18"],
    *["one-node-in-a-container-2.20", "no-network-one-node-2.29", "crossing-rails-2.11", "glued-2.20"],
]


@pytest.mark.parametrize("name", HEALTHY)
def test_none_in_a_healthy_log_from_outside(name: str) -> None:
    log = nccl_log.read([DATA / "outside" / "nccl" / f"{name}.log"])
    assert log.failures == ()
    assert log.hints == ()


def test_none_in_a_healthy_report_of_nccl_tests() -> None:
    text = (DATA / "nccl-tests" / "ok_8gpu.txt").read_text() + "\n" + info("gpu001", "Using network IB")
    log = nccl_log.parse(text)
    assert log is not None
    assert log.failures == ()


# --- order -----------------------------------------------------------------------------------------

RETRY = "NET/IB : Got completion from peer 192.0.2.2<5000> with status=12 opcode=0 len=0 vendor err 129 (Recv)"
FLUSH = RETRY.replace("status=12", "status=5")
CLOSED = "socketProgress: Connection closed by remote peer gpu009<41234>"
PORT = "NET/IB : mlx5_0:1 Got async event : port error"


def ids(*warnings: str) -> list[str]:
    log = nccl_log.parse("\n".join(line("warn", text) if "]" not in text[:25] else text for text in warnings))
    assert log is not None
    return [failure.id for failure in log.failures]


def test_cause_before_its_echoes() -> None:
    assert ids(CLOSED, FLUSH, RETRY)[0] == "ib_completion_retry_exceeded"
    assert ids(PORT, RETRY, FLUSH) == ["ib_async_port_error", "ib_completion_retry_exceeded", "ib_completion_wr_flush"]
    assert ids(RETRY, PORT) == ["ib_completion_retry_exceeded", "ib_async_port_error"]
    assert ids(CLOSED) == ["peer_closed"]


def test_earliest_by_time_where_every_line_bears_one() -> None:
    late = f"[2026-01-02 10:00:09] gpu002:1:2 [0] x.cc:1 NCCL WARN {RETRY}"
    early = "[2026-01-02 10:00:01] gpu007:1:2 [0] x.cc:1 NCCL WARN Cuda failure 700 'an illegal memory access'"
    log = nccl_log.parse(f"{late}\n{early}\n")
    assert log is not None
    assert [(f.id, f.host) for f in log.failures] == [
        ("cuda_failure_generic", "gpu007"),
        ("ib_completion_retry_exceeded", "gpu002"),
    ]
    assert [w.number for w in log.warnings] == [2, 1]


def test_who_failed() -> None:
    text = "\n".join(
        [
            "[1,3]<stdout>:gpu002:11:12 [1] NCCL INFO comm 0x5 rank 3 nranks 4 cudaDev 1 busId 1000 - Init COMPLETE",
            f"[1,3]<stdout>:gpu002:11:12 [1] x.cc:1 NCCL WARN {RETRY}",
            "[rank2]:[E ProcessGroupNCCL.cpp:607] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(",
            "gpu001: Test NCCL failure common.cu:958 'remote process exited or there was a network error / '",
        ]
    )
    log = nccl_log.parse(text)
    assert log is not None
    assert [(f.id, f.rank, f.host, f.line.number) for f in log.failures] == [
        ("ib_completion_retry_exceeded", 3, "gpu002", 2),
        ("torch_watchdog_timeout", 2, None, 3),
        ("remote_error", None, "gpu001", 4),
    ]
