"""The reader of NCCL's log: compared with a plain reader, in parts, with prefixes, compressed, cut, hostile."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import itertools
import json
import lzma
import re
import tracemalloc
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.parsers import nccl_log
from preflight.parsers.nccl_log import NcclLog, NoNcclOutput, counters, fast_scanner, reader, summarize
from preflight.textprep import line_source
from tests.support.nccl_log_generate import VERSIONS, Job, generate
from tests.unit.parsers.test_nccl import LAUNCHED


def made(job: Job, size: int = 60_000) -> bytes:
    out = io.BytesIO()
    generate(job, size, out)
    return out.getvalue()


def read(text: str) -> NcclLog:
    log = nccl_log.parse(text)
    assert log is not None
    return log


def essence(log: NcclLog) -> object:
    """Return the facts of a log, without their lines and order."""
    return (
        log.nccl_version, log.cuda_driver, log.nranks, log.nnodes, set(log.hosts), log.ranks,
        {(use.name, use.count) for use in log.networks}, {(p.state, p.name, p.count) for p in log.plugins},
        {(c.network, c.gpudirect, c.count) for c in log.channels}, set(log.by_host),
        {(use.name, use.count) for use in log.intra_node}, log.proxied, log.rails, set(log.rings), log.ring_channels,
        log.tree_channels, log.channel_counts, {(h.name, h.channels, h.hosts) for h in log.hcas},
        {(v.name, v.value, v.count) for v in log.environment}, log.affinity, log.communicators,
        {(f.id, f.count) for f in log.failures}, log.missing, log.warning_count, log.lines,
    )  # fmt: skip


# --- compared with a plain reader ------------------------------------------------------------------

_CHANNEL = re.compile(r"^(\w+):\d+:\d+ \[\d+\] NCCL INFO (?:Ring|Channel) \S+ : .* via (.+)$")


@pytest.mark.parametrize("version", VERSIONS)
def test_counts_equal_those_of_a_plain_reading(version: str) -> None:
    text = made(Job(version, 16)).decode()
    log = read(text)
    ways: Counter[tuple[str, str, bool]] = Counter()
    inside = 0
    for line in text.split("\n"):
        if match := _CHANNEL.match(line):
            if match[2].startswith("NET/"):
                ways[match[1], match[2].split("/")[1], "GDRDMA" in match[2]] += 1
            else:
                inside += 1
    assert {(h.host, h.network, h.gpudirect): h.count for h in log.by_host} == dict(ways)
    assert sum(channel.count for channel in log.channels) == sum(ways.values())
    assert sum(use.count for use in log.intra_node) == inside
    assert log.lines == text.count("\n")
    assert (log.nranks, log.nnodes, len(log.hosts)) == (16, 2, 2)
    assert log.ranks == tuple((rank, f"gpu00{rank // 8 + 1}") for rank in range(16))
    assert (log.ring_channels, log.tree_channels, len(log.rings)) == (16, 16, 16)
    assert log.rails is not None
    assert log.rails.crossing == 0
    assert [hca.channels for hca in log.hcas] == [sum(ways.values()) // 8] * 8
    assert len(log.affinity) == 16
    comms = log.communicators[0]
    assert (comms.nranks, comms.made, comms.complete) == (16, comms.most_by_one, comms.made)
    assert log.notes == ()


def test_first_lines_are_quoted_with_their_numbers() -> None:
    text = made(Job("2.27", 16)).decode()
    lines = text.split("\n")
    log = read(text)
    quoted = [*(c.first for c in log.channels), *(u.first for u in (*log.networks, *log.intra_node, *log.versions))]
    quoted += [*(d.first for d in log.ib_devices), *(v.first for v in log.environment), *(p.first for p in log.plugins)]
    assert len(quoted) > 10
    for line in quoted:
        assert lines[line.number - 1].strip() == line.text
    first = next(i for i, line in enumerate(lines, 1) if "via NET/" in line)
    assert log.channels[0].first.number == first


# --- in parts --------------------------------------------------------------------------------------

TEXT = made(Job("2.21", 16, dead=11), 40_000)
COMPLETE = read(TEXT.decode())


def tallied(data: bytes, before: int = 0) -> counters.LogCounters:
    scanner = fast_scanner.Scanner(before)
    scanner.feed(data.split(b"\n"))
    scanner.flush_counts()
    return scanner.tally


@given(st.lists(st.integers(0, TEXT.count(b"\n")), max_size=4))
@settings(max_examples=40, deadline=None)
def test_parts_add_up(cuts: list[int]) -> None:
    lines = TEXT.rstrip(b"\n").split(b"\n")
    edges = sorted({0, len(lines), *(min(cut, len(lines)) for cut in cuts)})
    total = counters.LogCounters()
    for a, b in itertools.pairwise(edges):
        total.merge(tallied(b"\n".join(lines[a:b]), a))
    found = summarize.summarize(total)
    assert found == COMPLETE


@pytest.mark.parametrize("processes", [1, 2, 3, 5])
def test_several_processes_read_the_same(processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_WORTH_A_PROCESS", 1000)
    path = tmp_path / "job.log"
    path.write_bytes(TEXT)
    assert len(reader._shares(reader._pieces([path], several=False), processes)) == processes
    assert nccl_log.read([path], processes) == COMPLETE


def test_a_helper_that_dies_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_WORTH_A_PROCESS", 1000)
    monkeypatch.setattr(reader, "_help", lambda share, answer: answer.close())
    path = tmp_path / "job.log"
    path.write_bytes(TEXT)
    assert nccl_log.read([path], 2) == COMPLETE


def test_one_file_for_each_rank(tmp_path: Path) -> None:
    files: dict[str, list[str]] = {}
    for line in TEXT.decode().splitlines():
        host, _, pid = line.partition(" ")[0].partition(":") if ":" in line else ("gpu001", "", "40000")
        files.setdefault(f"nccl.{host}.{pid.split(':')[0]}", []).append(line)
    for name, lines in files.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    log = nccl_log.read(sorted(tmp_path.iterdir()))
    assert essence(replace(log, rails=COMPLETE.rails)) == essence(COMPLETE)
    assert [f.id for f in log.failures] == ["ib_completion_retry_exceeded", "peer_closed"]
    assert log.failures[0].line.file.startswith("nccl.gpu002.")
    assert str(log.failures[0].line).startswith("nccl.gpu002.")


# --- with launcher prefixes ------------------------------------------------------------------------

FORMS = {
    **LAUNCHED,
    "containerd": "2024-01-01T00:00:00.123456789Z stdout F {}",
    "kubectl --timestamps": "2024-01-01T00:00:00.123456789Z {}",
    "stern": "train-0 pytorch {}",
    "journald": "Jan 01 00:00:00 gpu001 srun[4711]: {}",
    "syslog": "<13>1 2024-01-01T00:00:00Z gpu001 train 4711 - - {}",
    "Python's logging": "2024-01-01 00:00:00,123 INFO train: {}",
    "two Ray prefixes": "(EngineCore_DP0 pid=611) (RayWorkerWrapper pid=874) {}",
    "box of a terminal program": "│ {}      │",
    "tmux": "┃{}┃",
    "repr": "b'{}\\n'",
    "colour to the end": "\x1b[32m{}\x1b[0m",
    "docker's JSON": '{{"log":"{}\\n","stream":"stderr","time":"2024-01-01T00:00:00Z"}}',
    "Fluent Bit's JSON": '{{"kubernetes":{{"pod":"a-0"}},"message":"{}","stream":"stdout"}}',
    "srun, then torchrun": "3: [rank3]: {}",
    "Markdown list": "- {}",
    "table of Markdown": "| {} |",
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_behind_a_launcher(form: str) -> None:
    text = TEXT.decode()
    log = read("\n".join(form.format(line) for line in text.rstrip("\n").split("\n")))
    assert essence(log) == essence(COMPLETE)
    assert log.channels[0].first.number == COMPLETE.channels[0].first.number


def test_every_line_with_its_own_time() -> None:
    lines = [f"2024-01-01T00:00:{i % 60:02d}.{i:09d}Z {line}" for i, line in enumerate(TEXT.decode().splitlines())]
    assert essence(read("\n".join(lines))) == essence(COMPLETE)
    scanner = fast_scanner.Scanner()
    for start in range(0, len(lines), 300):
        scanner.feed([line.encode() for line in lines[start : start + 300]])
    assert scanner.stamps
    scanner.flush_counts()
    found = summarize.summarize(scanner.tally)
    assert found is not None
    assert essence(found) == essence(COMPLETE)


def test_times_and_marks_of_lines_that_differ_in_them_only() -> None:
    lines = [
        f"[rank{i % 2}]: 2024-01-01T00:00:{i % 60:02d}.{i:09d}Z gpu01:{i % 2 + 1}:9 [{i % 2}] NCCL INFO "
        + ("Channel 00/0 : 0[0] -> 1[1] via P2P/IPC" if i % 2 else f"NCCL_X{i // 50} set by environment to 1.")
        for i in range(300)
    ]
    lines[250] = lines[250].partition("NCCL")[0] + "NCCL WARN Call to bind failed: Address already in use"
    log = scanned(lines)
    assert [(use.name, use.count) for use in log.intra_node] == [("P2P/IPC", 150)]
    assert [(variable.name, variable.first.time, variable.first.tag) for variable in log.environment] == [
        (f"NCCL_X{i}", f"2024-01-01 00:00:{i * 50 % 60:02d}.{i * 50:09d}", "rank0") for i in range(6) if i != 5
    ] + [("NCCL_X5", "2024-01-01 00:00:12.000000252", "rank0")]
    assert [(w.number, w.time, w.tag) for w in log.warnings] == [(251, "2024-01-01 00:00:10.000000250", "rank0")]


def scanned(lines: list[str]) -> NcclLog:
    """Return the facts of a text too long to be a copy."""
    scanner = fast_scanner.Scanner()
    scanner.feed([line.encode() for line in lines])
    scanner.flush_counts()
    log = summarize.summarize(scanner.tally)
    assert log is not None
    return log


def test_a_failure_begins_at_its_first_line_of_any_level() -> None:
    head = "gpu01:7:8 [0] NCCL"
    log = scanned(
        [f"{head} WARN Call to bind failed: Address already in use"]
        + [f"{head} INFO RAS failed to establish a client listening socket at localhost:28028"] * 3
    )
    assert [failure.line.number for failure in (*log.failures, *log.hints)] == [1]


def test_what_a_process_repeats_is_counted() -> None:
    texts = ["Using network IB", "NCCL_DEBUG set by environment to INFO.", "Connected all rings", "a word"]
    lines = [f"gpu{i % 3}:7:8 [0] NCCL INFO {text}" for i in range(30) for text in texts]
    together, alone = scanned(lines), [scanned(lines[at : at + 1]) for at in range(len(lines))]
    assert [(use.name, use.count) for use in together.networks] == [("IB", 30)]
    assert [(variable.name, variable.count) for variable in together.environment] == [("NCCL_DEBUG", 30)]
    assert together.lines == sum(log.lines for log in alone) == 120


def test_repeated_messages_stay_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_scanner, "_MAX_PAIRS", 20)
    scanner = fast_scanner.Scanner()
    for i in range(100):
        scanner.feed([f"h{i}:1:2 [0] NCCL INFO {text}".encode() for text in ("Using network IB",) * 3])
        assert scanner.pairs <= 20
    scanner.flush_counts()
    log = summarize.summarize(scanner.tally)
    assert log is not None
    assert [(use.name, use.count) for use in log.networks] == [("IB", 300)]


@pytest.mark.parametrize("width", [80, 100, 132, 211])
def test_wrapped_at_the_width_of_a_terminal(width: int) -> None:
    lines = TEXT.decode().rstrip("\n").split("\n")
    wrapped = [line[i : i + width] for line in lines for i in range(0, max(1, len(line)), width)]
    assert len(wrapped) > len(lines)
    assert essence(read("\n".join(wrapped))) == essence(COMPLETE)


@pytest.mark.parametrize("width", [88, 116, 140])
def test_a_watchdog_s_lines_broken_by_a_terminal(width: int) -> None:
    """Lines of PyTorch alone, broken by a terminal: within words, and of equal width."""
    message = "[PG ID 0 PG GUID 0(default_pg) Rank 6] ProcessGroupNCCL's watchdog got stuck for 480 seconds without "
    lines = [
        f"[rank6]:[E429 13:55:49.384372190 ProcessGroupNCCL.cpp:{number}] {message}making progress in the collectives."
        for number in (1743, 1744, 1745, 1746)
    ]
    wrapped = [line[i : i + width] for line in lines for i in range(0, len(line), width)]
    expected = [(failure.id, failure.rank) for failure in read("\n".join(lines)).failures]
    assert expected == [("torch_heartbeat", 6)]
    assert [(failure.id, failure.rank) for failure in read("\n".join(wrapped)).failures] == expected


def test_messages_written_into_each_other() -> None:
    lines = [
        "gpu001:1:2 [0] NCCL INFO Using network IB",
        "gpu001:1:2 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [send] via NET/IB/0/GDRDMA",
    ]
    log = read("\n".join([*lines, "".join(lines), "".join(reversed(lines))]))
    assert [(use.name, use.count) for use in log.networks] == [("IB", 3)]
    assert [(c.network, c.gpudirect, c.count) for c in log.channels] == [("IB", True, 3)]
    assert log.hosts == ("gpu001",)
    assert log.lines == 6


def test_windows_wrote_it() -> None:
    text = TEXT.decode().replace("\n", "\r\n")
    assert essence(read(text)) == essence(COMPLETE)
    assert essence(nccl_log.read_stream(io.BytesIO(text.encode("utf-16")))) == essence(COMPLETE)


# --- compressed ------------------------------------------------------------------------------------

PACKERS: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}


@pytest.mark.parametrize("name", PACKERS)
def test_packed(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"job.log.{name}"
    path.write_bytes(PACKERS[name](TEXT))
    assert nccl_log.read([path]) == COMPLETE
    half = TEXT[: TEXT.index(b"\n", len(TEXT) // 2) + 1]
    path.write_bytes(PACKERS[name](half) + PACKERS[name](TEXT[len(half) :]))
    assert nccl_log.read([path]) == COMPLETE


@pytest.mark.parametrize("name", PACKERS)
def test_packed_and_cut(name: str) -> None:
    packed = PACKERS[name](TEXT)
    if name != "bz2":  # of which this little is one block
        log = nccl_log.read_stream(io.BytesIO(packed[: len(packed) * 2 // 3]))
        assert 0 < log.lines < COMPLETE.lines
        assert any("damaged" in note for note in log.unread)
    with pytest.raises(ValueError, match="cannot be unpacked"):
        nccl_log.read_stream(io.BytesIO(packed[:12]))


def test_zstd_error_names_the_command_to_run() -> None:
    try:
        import compression.zstd  # type: ignore[import-not-found,unused-ignore]  # noqa: F401
    except ImportError:
        with pytest.raises(ValueError, match="zstd -d"):
            nccl_log.read_stream(io.BytesIO(b"\x28\xb5\x2f\xfd" + bytes(100)))


def test_bomb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_source, "BOMB_BYTES", 1 << 20)
    with pytest.raises(NoNcclOutput, match="no NCCL line"):
        nccl_log.read_stream(io.BytesIO(gzip.compress(bytes(30 << 20))))
    text = TEXT + bytes(30 << 20)
    log = nccl_log.read_stream(io.BytesIO(gzip.compress(text)))
    assert any("times its size" in note for note in log.unread)
    assert log.lines == COMPLETE.lines


# --- no log, and hostile ones ----------------------------------------------------------------------


class EndlessStream:
    """A stream that repeats one text and is never stored in memory."""

    def __init__(self, piece: bytes, size: int) -> None:
        self.piece, self.left = piece, size

    def read(self, size: int, /) -> bytes:
        size = min(size, self.left)
        self.left -= size
        return (self.piece * (size // len(self.piece) + 1))[:size]


def test_nothing() -> None:
    with pytest.raises(NoNcclOutput, match="the input: no NCCL line in 0 lines"):
        nccl_log.read_stream(io.BytesIO(b""))


def test_empty_file(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(NoNcclOutput, match="a: no NCCL line in 0 lines"):
        nccl_log.read([tmp_path / "a"])
    assert nccl_log.parse("") is None


def test_one_line_of_thirty_megabytes() -> None:
    tracemalloc.start()
    with pytest.raises(NoNcclOutput, match="no NCCL line in 1 lines"):
        nccl_log.read_stream(EndlessStream(b"x" * 997 + b"NCC", 30 << 20))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20


def test_a_log_behind_a_long_line() -> None:
    log = read("x" * 1_000_000 + "\n" + TEXT.decode())
    assert essence(log) == essence(COMPLETE)
    assert log.channels[0].first.number == COMPLETE.channels[0].first.number + 1
    data = b"x" * (3 << 20) + b"\n" + TEXT
    streamed = nccl_log.read_stream(io.BytesIO(data))
    assert essence(streamed) == essence(COMPLETE)
    assert streamed.channels[0].first.number == COMPLETE.channels[0].first.number + 1
    assert streamed.unread == ()  # nothing in it is searched
    streamed = nccl_log.read_stream(io.BytesIO(b"x" * (3 << 20) + TEXT))
    assert any("longer than 256 KiB" in what for what in streamed.unread)


@given(st.binary(max_size=2000))
def test_any_bytes_can_be_read(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        nccl_log.read_stream(io.BytesIO(data))


MARKS = [
    "NCCL INFO ",
    "NCCL WARN ",
    "] via ",
    "gpu001:1:2 [0] ",
    "\r",
    "\x00",
    "\x1b[0m",
    "{",
    '"',
    "\n",
    "via NET/IB/0",
]


@given(
    st.lists(st.one_of(st.sampled_from([*MARKS, *TEXT.decode().split("\n")[:60]]), st.text(max_size=8)), max_size=12)
)
@settings(max_examples=300)
def test_any_pieces_of_logs_can_be_read(pieces: list[str]) -> None:
    nccl_log.parse("".join(pieces))


@pytest.mark.parametrize("end", ["|" * 4000 + "x|", "\\n" * 4000 + "x\\n", "`" * 4000 + "x`", " " * 4000 + "x |"])
def test_what_a_frame_left_behind_is_taken_off_once(end: str) -> None:
    log = read("gpu001:1:2 [0] NCCL INFO Using network IB\ngpu001:1:2 [0] NCCL INFO NCCL_X set to " + end)
    assert log.lines == 2
    assert len(log.environment) == 1


@given(st.integers(0, len(TEXT)))
@settings(max_examples=60, deadline=None)
def test_any_beginning_has_no_more_facts_than_the_full_log(length: int) -> None:
    log = nccl_log.parse(TEXT[:length].decode("utf-8", "replace"))
    if log is not None:
        assert log.lines <= COMPLETE.lines
        # in a line that ends within its last word, GPUDirect is unknown
        assert {(c.network, c.gpudirect) for c in log.channels} <= {("IB", True), ("IB", False), ("IB", None)}
        assert sum(c.count for c in log.channels if c.gpudirect is None) <= 1
        assert sum(c.count for c in log.channels) <= sum(c.count for c in COMPLETE.channels)


def test_tables_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "MAX_KEYS_PER_KIND", 3)
    log = read("\n".join(f"h{i}:1:2 [0] NCCL INFO NCCL_X set by environment to {i}." for i in range(10)))
    assert len(log.environment) == 3
    assert any("(env)" in note and "7 more" in note for note in log.notes)


def test_many_hosts_with_a_time_on_each_line_stay_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_scanner, "_MAX_HEADS", 10)
    scanner = fast_scanner.Scanner()
    for i in range(100):
        scanner.feed([f"h{i}:1:2 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [send] via NET/IB/0".encode()])
        assert len(scanner.origins) <= 11
    scanner.flush_counts()
    log = summarize.summarize(scanner.tally)
    assert log is not None
    assert [(c.network, c.count) for c in log.channels] == [("IB", 100)]


def test_a_sample_of_rails_is_the_same_however_read(monkeypatch: pytest.MonkeyPatch) -> None:
    from preflight.parsers.nccl_log import rails

    monkeypatch.setattr(rails, "MAX_ENDS", 100)
    lines = TEXT.rstrip(b"\n").split(b"\n")
    at_once = summarize.summarize(tallied(TEXT.rstrip(b"\n")))
    total = counters.LogCounters()
    for start in range(0, len(lines), 700):
        total.merge(tallied(b"\n".join(lines[start : start + 700]), start))
    parts = summarize.summarize(total)
    assert at_once is not None
    assert parts is not None
    assert at_once.rails is not None
    assert at_once.rails.sampled
    assert at_once.rails == parts.rails


# --- other content ---------------------------------------------------------------------------------


def start(rank: int, n: int, phase: str, comm: str = "0xabc", host: str | None = None) -> str:
    host = host or f"gpu{rank // 4 + 1:03d}"
    return (
        f"{host}:{100 + rank}:{200 + rank} [{rank % 4}] NCCL INFO ncclCommInitRank comm 0x{rank:x}5 rank {rank} "
        f"nranks {n} cudaDev {rank % 4} nvmlDev {rank % 4} busId 1000 commId {comm} - {phase}"
    )


def size(rank: int, n: int) -> str:
    return (
        f"gpu{rank // 4 + 1:03d}:{100 + rank}:{200 + rank} [{rank % 4}] NCCL INFO comm 0x{rank:x}5 rank {rank} "
        f"nRanks {n} nNodes {n // 4} localRanks 4 localRank {rank % 4} MNNVL 0"
    )


def test_the_rank_that_never_arrived() -> None:
    log = read("\n".join(start(rank, 16, "Init START") for rank in range(16) if rank != 5))
    assert [(missing.rank, missing.host) for missing in log.missing] == [(5, None)]
    assert "15 of 16" in log.missing[0].why
    lines = [size(rank, 16) for rank in range(16) if rank != 5]
    log = read("\n".join([*lines, *(start(rank, 16, "Init START") for rank in range(16) if rank != 5)]))
    assert [(missing.rank, missing.host) for missing in log.missing] == [(5, "gpu002")]
    (waiting,) = log.unfinished
    assert (waiting.id, waiting.nranks, waiting.started, waiting.completed) == ("0xabc", 16, 15, 0)


def test_the_rank_that_did_not_finish() -> None:
    lines = [start(rank, 8, "Init START") for rank in range(8)]
    log = read("\n".join([*lines, *(start(rank, 8, "Init COMPLETE") for rank in range(8) if rank != 3)]))
    assert [(missing.rank, missing.host) for missing in log.missing] == [(3, "gpu001")]
    assert "finished" in log.missing[0].why


def test_a_log_of_one_rank_reports_no_other_rank_missing() -> None:
    assert read(start(0, 16, "Init START")).missing == ()
    assert read("\n".join(start(rank, 16, "Init START") for rank in range(4))).missing == ()
    half = [start(rank, 16, "Init START", host="gpu002") for rank in range(8, 16) if rank != 12]
    assert [missing.rank for missing in read("\n".join([*half, half[0]])).missing] == []
    most = [start(rank, 12, "Init START", host="gpu002") for rank in range(4, 12) if rank != 9]
    assert [missing.rank for missing in read("\n".join(most)).missing] == [9]


def test_communicators_made_again_and_again() -> None:
    lines = []
    for number in range(50):
        for phase in ("Init START", "Init COMPLETE", "Destroy COMPLETE"):
            lines += [start(rank, 4, phase, f"0x{number:x}") for rank in range(4)]
    lines += [start(rank, 8, phase, "0xfff") for phase in ("Init START", "Init COMPLETE") for rank in range(8)]
    log = read("\n".join(lines))
    assert [(c.nranks, c.made, c.complete, c.destroyed, c.most_by_one) for c in log.communicators] == [
        (8, 1, 1, 0, 1),
        (4, 50, 50, 50, 50),
    ]


def test_communicators_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "MAX_COMMUNICATORS", 8)
    lines = [
        start(rank, 2, phase, f"0x{number:x}")
        for number in range(50)
        for phase in ("Init START", "Init COMPLETE")
        for rank in range(2)
    ]
    (found,) = read("\n".join(lines)).communicators
    assert (found.made, found.complete) == (50, 50)


def test_splits_have_no_id_of_their_own() -> None:
    lines = [
        f"gpu001:{rank}:1 [{rank}] NCCL INFO ncclCommSplit comm 0x{rank}1 rank {rank % 2} nranks 2 cudaDev {rank} "
        f"nvmlDev {rank} busId 1000 parent 0x{rank}0 splitCount 1 color {rank // 2} key {rank}- Init {phase}"
        for phase in ("START", "COMPLETE")
        for rank in range(4)
    ]
    (found,) = read("\n".join(lines)).communicators
    assert (found.nranks, found.made, found.complete) == (2, 2, 2)


def test_hcas_that_no_channel_uses() -> None:
    lines = [
        "gpu001:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:192.0.2.1<0>",
        "gpu001:1:2 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/0/GDRDMA",
        "gpu001:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0(3)/GDRDMA/Shared",
        "gpu002:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:192.0.2.2<0>",
    ]
    log = read("\n".join(lines))
    assert [(h.name, h.hosts, h.channels, h.unused_on) for h in log.hcas] == [
        ("mlx5_0", 2, 2, ()),
        ("mlx5_1", 2, 0, ("gpu001",)),
    ]
    assert log.proxied == 1
    assert [(h.host, h.count, h.proxied) for h in log.by_host] == [("gpu001", 2, 1)]


def test_nvls_sharp_mnnvl_and_counts() -> None:
    lines = [
        "NVLS multicast support is available on dev 0",
        "NVLS comm 0x55 headRank 0 nHeads 8 buffSize 4194304 memSize 2097152",
        "CollNet 00/0 : 0 [send] via COLLNET/SHARP/0/GDRDMA",
        "SHARP rank 0/2 initialized on mlx5_0:1",
        "MNNVL 1 cliqueId 7ffe cliqueSize 72 cliqueRank 0",
        "16 coll channels, 2 collnet channels, 16 nvls channels, 32 p2p channels, 2 p2p channels per peer",
        "Channel 00/0 : 0[0] -> 1[0] via P2P/MNNVL",
        "ncclTopoGetCpuAffinity: Affinity for GPU 0 is 0-19. (GPU affinity = 0-19 ; CPU affinity = 0-39).",
    ]
    log = read("\n".join(f"gpu001:1:2 [0] NCCL INFO {text}" for text in lines))
    assert log.nvls is not None
    assert log.nvls_support is True
    assert [use.name for use in log.collnet] == ["COLLNET", "mlx5_0:1"]
    assert log.mnnvl is not None
    assert log.mnnvl.name == "72"
    counts = log.channel_counts
    assert counts is not None
    assert (counts.coll, counts.collnet, counts.nvls, counts.p2p) == (16, 2, 16, 32)
    assert [use.name for use in log.intra_node] == ["P2P/MNNVL"]
    assert [(a.gpu, a.cpus) for a in log.affinity] == [(0, "0-19")]


def test_facts_are_a_document() -> None:
    from dataclasses import asdict

    assert len(json.dumps(asdict(COMPLETE))) > 1000


BROKEN = """\
  node1:5:6 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB
                                         [2]mlx5_2:1/IB [RO]; OOB eth0:192.0.2.1<0>
[2026-05-13 18:01:41] node1:5:6 [0] ofi_process_cq:196 NCCL WARN
    NET/OFI Request 0x400aa7dd3b98 completed with error.
    RC: 107. Error: Inappropriate ioctl for device.
node1:5:6 [0] NCCL INFO
Using network Socket is what a program says here
"""


def test_lines_that_were_broken_for_a_page() -> None:
    log = nccl_log.parse(BROKEN)
    assert log is not None
    assert [hca.name for hca in log.hcas] == ["mlx5_0", "mlx5_1", "mlx5_2"]
    assert [(line.number, line.message) for line in log.warnings] == [
        (3, "NET/OFI Request 0x400aa7dd3b98 completed with error. RC: 107. Error: Inappropriate ioctl for device.")
    ]
    assert [failure.line.number for failure in log.failures] == [3]
    assert log.networks == ()


#: Forms that people and programs give to a line, and its writer: host, process, device.
WRITTEN = {
    "[node-0][101:102][1][init.cc:25] NCCL INFO Using network IB": ("node-0", 101, 1),
    "**node-0:101:102 [1] NCCL INFO Using network IB**": ("node-0", 101, 1),
    "node-0:101:102 [ 1 ] NCCL INFO Using network IB [cite: 12, 14]": ("node-0", 101, 1),
    "node-0:101:102 [1] NCCL INFO Using network IB          # ← what data go over": ("node-0", 101, 1),
    "node-0:101:102 [1] NCCL INFO Using network IB    <-- good": ("node-0", 101, 1),
    '    "node-0:101:102 [1] NCCL INFO Using network IB\\n"': ("node-0", 101, 1),
    "node-0:XXXX:XXXX [1] NCCL INFO Using network IB": ("node-0", None, 1),
    "node-0:101 [1] NCCL INFO Using network IB": ("node-0", 101, 1),
}


@pytest.mark.parametrize("line", WRITTEN)
def test_forms_of_a_line(line: str) -> None:
    log = nccl_log.parse(line)
    assert log is not None
    assert [use.name for use in log.networks] == ["IB"]
    first = log.networks[0].first
    assert (first.host, first.pid, first.device) == WRITTEN[line]


def test_a_tuner_line_gives_the_size_of_the_job() -> None:
    log = nccl_log.parse("node1:5:6 [5] NCCL INFO NET/OFI Tuner init: comm with 16 ranks and 2 nodes.\n")
    assert log is not None
    assert (log.nranks, log.nnodes) == (16, 2)
