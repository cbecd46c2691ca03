"""Output of the point-to-point tests of perftest, and of ``ibv_rc_pingpong``.

perftest includes ``ib_write_bw`` and ``ib_write_lat``. Client and server print errors to stdout or stderr. As stdout
may be buffered, a hanging program has often printed nothing. Sources: linux-rdma/perftest; rdma-core
libibverbs/examples.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping

from preflight._startup.lightclass import dataclass
from preflight.textprep.plain_text import normalize_text

#: Gb/s per unit. perftest's MB is 2^20 bytes; later versions call it MiB.
UNITS = {"Gb/sec": 1.0, "MB/sec": 2**20 * 8e-9, "MiB/sec": 2**20 * 8e-9}

_COLUMN = re.compile(r"#[a-z]{1,20}|(?:BW |[0-9.]{1,6}% )?[A-Za-z_]{1,20}\[[A-Za-z/]{1,12}\]")
_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,9})?")


@dataclass(frozen=True)
class Bandwidth:
    """One row of a bandwidth test."""

    size: int  # message size in bytes
    messages: int
    average_gbps: float
    peak_gbps: float | None  # None if not measured, as in tests of a fixed duration


@dataclass(frozen=True)
class Latency:
    """One row of a latency test; for a write, half of the round trip."""

    size: int  # message size in bytes
    messages: int
    typical_us: float  # the median
    average_us: float
    p99_us: float | None  # 99th percentile; None if not printed


@dataclass(frozen=True)
class PingPong:
    """The rate and round-trip time that ``ibv_rc_pingpong`` printed."""

    bytes: int  # in all messages
    messages: int
    gbps: float
    round_trip_us: float


class PerftestError(str, enum.Enum):
    """The kind of error that a test reported."""

    CONNECT = "no TCP connection"
    PORT = "the TCP port is in use"
    DEVICE = "device not found"
    GID = "GID index"
    MEMORY = "memory could not be registered"
    CUDA = "built without CUDA"
    DMA_BUF = "built without CUDA DMA-BUF"
    PATH = "packets are not acknowledged"
    QUEUE = "queue pair not connected"


#: Patterns of error messages, the most specific ones first: after the first failure, general messages follow.
_WORDS = (
    (PerftestError.DMA_BUF, r"unrecognized option '--use_cuda_dmabuf"),
    (PerftestError.CUDA, r"unrecognized option '--use_cuda"),
    (PerftestError.GID, r"Incompatibility issue with GID types|can't read sgid of index|Gid index should be between"
                r"|(?m:^ *local address:.*, GID ::$)"),
    (PerftestError.PORT, r"Couldn't listen to port|Address already in use"),
    (PerftestError.MEMORY, r"Couldn't (?:allocate|register) MR|Couldn't allocate work buf|Cannot allocate memory"),
    (PerftestError.DEVICE, r"IB device \S{1,64} not found|find the Infiniband/RoCE device|No IB devices found"
                   r"|Couldn't get context|Failed to get IB devices"),
    (PerftestError.PATH, r"Failed status (?:\w{1,20} ){0,5}\(?(?:12|13)\b|Failed status 12\b|retry counter exceeded"),
    (PerftestError.QUEUE, r"Failed to modify QP|Connect the HCA's|Couldn't connect to remote QP"),
    (PerftestError.CONNECT, r"Couldn't connect to|init the socket connection|set up socket connection"),
)  # fmt: skip


def cause(text: str) -> PerftestError | None:
    """Return the kind of error in a test's output; None if no message is known."""
    printed = normalize_text(text)
    return next((cause for cause, words in _WORDS if re.search(words, printed)), None)


def connected(text: str) -> bool:
    """Return whether the output shows the peer's address, so TCP works."""
    return re.search(r"(?m)^ *remote address:", normalize_text(text)) is not None


def parse_bandwidth(text: str) -> Bandwidth:
    """Read the last row of ``ib_write_bw`` or ``ib_read_bw``; raises ValueError."""
    row, unit = _row(text, "BW average")
    peak = row.get("BW peak")
    factor = UNITS[unit]
    average = row["BW average"] * factor
    return Bandwidth(int(row["#bytes"]), int(row["#iterations"]), average, peak * factor if peak else None)


def parse_latency(text: str) -> Latency:
    """Read the last row of ``ib_write_lat``; raises ValueError.

    The test must have been limited by a number of messages, not by time.
    """
    row, unit = _row(text, "t_typical")
    if unit != "usec":
        raise ValueError(f"latency is in {unit}, not in usec")
    return Latency(int(row["#bytes"]), int(row["#iterations"]), row["t_typical"], row.get("t_avg", row["t_typical"]),
                   row.get("99% percentile"))  # fmt: skip


def table_rows(text: str) -> tuple[Mapping[str, str], list[Mapping[str, float]]]:
    """Return the last table: the unit of each column, and the rows by column."""
    columns: list[tuple[str, str]] = []
    rows: list[Mapping[str, float]] = []
    for line in normalize_text(text).split("\n"):
        words = line.split()
        if words and words[0] == "#bytes":
            heads = (name.partition("[") for name in _COLUMN.findall(line))
            columns, rows = [(name, unit.rstrip("]")) for name, _, unit in heads], []
        elif columns and len(words) == len(columns) and all(map(_NUMBER.fullmatch, words)):
            rows.append({name: float(word) for (name, _), word in zip(columns, words, strict=True)})
    has_table = {"#bytes", "#iterations"} <= dict(columns).keys()
    return dict(columns), rows if has_table else []


def _row(text: str, wanted: str) -> tuple[Mapping[str, float], str]:
    """Return the last row by column, and the unit of the wanted column."""
    columns, rows = table_rows(text)
    unit = columns.get(wanted)
    if not rows or unit is None:
        raise ValueError(f"the output has no table with a row of {wanted}")
    if unit not in UNITS and unit != "usec":
        raise ValueError(f"{wanted} is in {unit}, which is not a known unit")
    return rows[-1], unit


_RATE = re.compile(r"(?m)^([0-9]{1,15}) bytes in [0-9.]{1,20} seconds = ([0-9]{1,12}(?:\.[0-9]{1,6})?) Mbit/sec *$")
_TRIPS = re.compile(r"(?m)^([0-9]{1,12}) iters in [0-9.]{1,20} seconds = ([0-9]{1,12}(?:\.[0-9]{1,6})?) usec/iter *$")


def parse_pingpong(text: str) -> PingPong:
    """Read ``ibv_rc_pingpong``; raises ValueError."""
    printed = normalize_text(text)
    rate, trips = _RATE.search(printed), _TRIPS.search(printed)
    if not rate or not trips:
        raise ValueError("the output lacks the rate or the time per iteration")
    return PingPong(int(rate[1]), int(trips[1]), float(rate[2]) / 1000, float(trips[2]))
