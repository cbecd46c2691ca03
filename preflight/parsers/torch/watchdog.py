"""Messages of PyTorch's watchdog: timed-out collectives, progress of ranks.

The watchdog is part of ProcessGroupNCCL; the formats are those of PyTorch 1.7 … 2.13. A rank in the text is its number
in the process group; the prefix of the line (``[rank13]:``) has the rank in the job.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from preflight._startup.lightclass import dataclass
from preflight.textprep.numbered_text import NumberedText

MARKS = ("WorkNCCL(", "ast enqueued")

_MARK = r"(?:^|[\s\]])\[(?:default)?(?:rank)?(\d{1,7})\]:"
#: Text within the parentheses of ``WorkNCCL(…)``, which may contain ``Timeout(ms)``, but not the start of a message.
_PIECE = r"(?:[^)W]|W(?!orkNCCL\()){0,400}"
_INSIDE = rf"{_PIECE}(?:\){_PIECE})?"
_TIMEOUT = re.compile(
    r"(?:\[[Rr]ank ?(\d{1,7})\]\s+)?(?:Watchdog caught collective operation timeout:\s+"
    rf"|(?=WorkNCCL\({_INSIDE}\) ran for \d))"
    rf"WorkNCCL\(({_INSIDE})\)(?:\s+ran for (\d{{1,15}}) (?:milliseconds|ms)\b)?"
)
_STATUS = re.compile(
    r"\[PG (?:ID )?(\S{1,40})(?: PG GUID (\S{1,60}))?(?: \((\w{1,60})\))? Rank (\d{1,7})\].{0,300}?"
    r"[Ll]ast enqueued(?: NCCL)? work: (-?\d{1,15})(?:, last started[^,]{1,120})?"
    r", last completed(?: NCCL)? work: (-?\d{1,15})(?!\d)"
)
_AT_WORK = re.compile(r"(?:watchdog at work|Timeout at NCCL work|work sequence id)\D{0,20}(\d{1,15})(?!\d)")
_RANK_MARK = re.compile(_MARK)

MOST = 100_000

#: Parts of messages that a terminal or a user may have wrapped, and maximum number of further lines.
_HEADS = ("Watchdog caught", "Exception (either an error or timeout)", "Timeout at NCCL work", "detected by watchdog",
          "thread terminated with exception")  # fmt: skip
_HEAD_CUT = re.compile(r"\] \[Rank \d{1,7}\] Wat[a-z ]{0,42}\s*$")
_MOST_BROKEN = 6
#: Maximum number of characters that are examined of a line.
_LONGEST = 20_000


@dataclass(frozen=True)
class TimedOut:
    """A collective that timed out; a value that is not printed is None."""

    line: int
    rank: int | None  # None: neither in the text nor in a prefix
    seq: int | None
    op: str | None
    numel_in: int | None
    numel_out: int | None
    timeout_ms: int | None
    ran_ms: int | None


@dataclass(frozen=True)
class RankProgress:
    """The progress of a rank in a process group, as its watchdog reported it."""

    line: int
    rank: int
    group: str
    at: int | None  # number of the work that timed out
    enqueued: int  # number of the last enqueued work
    completed: int  # number of the last completed work


@dataclass(frozen=True)
class Watchdog:
    """The timeouts in line order, without repeats, and each rank's furthest progress."""

    timed_out: tuple[TimedOut, ...]
    progress: tuple[RankProgress, ...]

    def __bool__(self) -> bool:
        return bool(self.timed_out or self.progress)


def parse(source: str | NumberedText) -> Watchdog:
    """Read the watchdog messages of a log. Never raises."""
    source = source if isinstance(source, NumberedText) else NumberedText(source)
    if is_silent(source.text):
        return Watchdog((), ())
    lines = list(source.lines())
    timed_out: list[TimedOut] = []
    progress: dict[tuple[int, str], RankProgress] = {}
    for (number, _), line in zip(lines, _joined([line for _, line in lines]), strict=True):
        if MARKS[0] in line and len(timed_out) < MOST:
            timed_out += (_timed_out(number, line, match) for match in _TIMEOUT.finditer(line[:_LONGEST]))
        if MARKS[1] in line and len(progress) < MOST:
            for match in _STATUS.finditer(line[:_LONGEST]):
                at = _AT_WORK.search(match[0])
                rank = _rank(line, match.start(), match[4])
                report = RankProgress(
                    number, int(match[4]) if rank is None else rank, match[2] or match[1], int(at[1]) if at else None,
                    int(match[5]), int(match[6]),
                )  # fmt: skip
                known = progress.get((report.rank, report.group), report)
                progress[report.rank, report.group] = max(known, report, key=_how_far)
    return Watchdog(_drop_repeats(timed_out), tuple(progress.values()))


def _how_far(one: RankProgress) -> tuple[int, int, bool, int]:
    """Return a sort key that orders a rank's reports by progress."""
    return one.enqueued, one.completed, one.at is not None, -(one.at or 0)


def _drop_repeats(timed_out: list[TimedOut]) -> tuple[TimedOut, ...]:
    """Drop timeouts without a rank, such as headings, that repeat a rank's own."""
    by_ranks = {one.seq for one in timed_out if one.rank is not None}
    return tuple(one for one in timed_out if one.rank is not None or not by_ranks
                 or (one.seq is not None and one.seq not in by_ranks))  # fmt: skip


def _joined(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines, with a wrapped message joined on its first line.

    Its other lines become empty, so line numbers do not change.
    """
    pending = list(lines)
    for at, line in enumerate(pending):
        if _begins(line) and not _is_complete(line) and (end := _end(pending, at)) > at + 1:
            pending[at:end] = [_glued(pending, at, end), *[""] * (end - at - 1)]
        yield pending[at]


def is_silent(text: str) -> bool:
    """Return whether a text certainly has no watchdog message."""
    return not any(mark in text for mark in (*_HEADS, *MARKS, "] [Rank "))


def _begins(line: str) -> bool:
    return any(head in line for head in _HEADS) or _HEAD_CUT.search(line[-200:]) is not None


def _end(lines: Sequence[str], at: int) -> int:
    """Return the end of a wrapped message, or of its part that names the collective."""
    ends = []
    for end in range(at + 2, min(at + 2 + _MOST_BROKEN, len(lines) + 1)):
        # the message of the exception that ended a watchdog starts like a message itself
        if _begins(lines[end - 1]) and not (end == at + 2 and _HEADS[-1] in lines[at]):
            break
        if _is_complete(_glued(lines, at, end)):
            return end
        ends += [end] if _TIMEOUT.search(_glued(lines, at, end)) else []
    return ends[0] if ends and not _TIMEOUT.search(lines[at]) else at + 1


def _glued(lines: Sequence[str], at: int, end: int) -> str:
    """Join lines that a terminal wrapped within words, or a user between words."""
    pieces = [piece[:_LONGEST].strip("\r") for piece in lines[at:end]]
    text = "".join(pieces)
    return text if _is_complete(text) else " ".join(pieces)


def _is_complete(line: str) -> bool:
    timeout = _TIMEOUT.search(line[:_LONGEST])
    return (timeout is not None and timeout[3] is not None) or _STATUS.search(line[:_LONGEST]) is not None


def _rank(line: str, until: int, printed: str | None) -> int | None:
    """Return the rank in the job from the prefix, or else the printed rank."""
    marks = _RANK_MARK.findall(line[max(0, until - 400) : until])
    return int(marks[-1]) if marks else None if printed is None else int(printed)


def _timed_out(number: int, line: str, match: re.Match[str]) -> TimedOut:
    fields = dict(re.findall(r"(\w+(?:\(ms\))?)=([^,)]{1,80})", match[2]))

    def integer(name: str) -> int | None:
        value = fields.get(name, "")
        # the size of coalesced operations is unknown: -1, printed as an unsigned number
        return int(value) if value.isascii() and value.isdigit() and int(value) < 1 << 63 else None

    return TimedOut(
        number, _rank(line, match.start(), match[1]), integer("SeqNum"), fields.get("OpType"), integer("NumelIn"),
        integer("NumelOut"), integer("Timeout(ms)"), int(match[3]) if match[3] else None,
    )  # fmt: skip
