"""What the watchdog of PyTorch's ProcessGroupNCCL writes: which collective ran out of time, and how far each rank was.

Formats of PyTorch 1.7 … 2.13. A rank in the text counts within its process group; the mark before the line
(``[rank13]:``) counts within the job.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from preflight._startup.lightclass import dataclass

MARKS = ("WorkNCCL(", "ast enqueued")

_MARK = r"(?:^|[\s\]])\[(?:default)?(?:rank)?(\d{1,7})\]:"
_TIMEOUT = re.compile(
    r"(?:\[[Rr]ank ?(\d{1,7})\]\s+)?(?:Watchdog caught collective operation timeout:\s+"
    r"|(?=WorkNCCL\([^)]{0,400}\)?[^)]{0,400}\) ran for \d))"
    r"WorkNCCL\(([^)]{0,400}\)?[^)]{0,400})\)(?:\s+ran for (\d{1,15}) (?:milliseconds|ms)\b)?"
)
_STATUS = re.compile(
    r"\[PG (?:ID )?(\S{1,40})(?: PG GUID (\S{1,60}))?(?: \((\w{1,60})\))? Rank (\d{1,7})\].{0,300}?"
    r"[Ll]ast enqueued(?: NCCL)? work: (-?\d{1,15}), last completed(?: NCCL)? work: (-?\d{1,15})(?!\d)"
)
_AT_WORK = re.compile(r"(?:watchdog at work|Timeout at NCCL work|work sequence id)\D{0,20}(\d{1,15})(?!\d)")
_RANK_MARK = re.compile(_MARK)

MOST = 100_000

#: How a message begins that a terminal or a person may have broken, and over how many more lines.
_HEADS = ("Watchdog caught", "Exception (either an error or timeout)", "Timeout at NCCL work", "detected by watchdog",
          "thread terminated with exception")  # fmt: skip
_HEAD_CUT = re.compile(r"\] \[Rank \d{1,7}\] Wat[a-z ]{0,42}\s*$")
_MOST_BROKEN = 6
#: Characters of a line that are looked at.
_LONGEST = 20_000


@dataclass(frozen=True)
class TimedOut:
    """A collective that a rank waited for in vain; None: that version does not say."""

    line: int
    rank: int | None  # None: neither the text nor a mark tells
    seq: int | None
    op: str | None
    numel_in: int | None
    numel_out: int | None
    timeout_ms: int | None
    ran_ms: int | None


@dataclass(frozen=True)
class Progress:
    """How far a rank was in a process group when its watchdog spoke."""

    line: int
    rank: int
    group: str
    at: int | None  # the work that ran out of time
    enqueued: int
    completed: int


@dataclass(frozen=True)
class Watchdog:
    """All that was said, in the order of the lines."""

    timed_out: tuple[TimedOut, ...]
    progress: tuple[Progress, ...]

    def __bool__(self) -> bool:
        return bool(self.timed_out or self.progress)


def parse(lines: Iterable[str]) -> Watchdog:
    """Read a log's lines; never raises."""
    timed_out: list[TimedOut] = []
    progress: dict[tuple[int, str], Progress] = {}
    for number, line in enumerate(_joined(lines), 1):
        if MARKS[0] in line and len(timed_out) < MOST:
            timed_out += (_timed_out(number, line, match) for match in _TIMEOUT.finditer(line[:_LONGEST]))
        if MARKS[1] in line and len(progress) < MOST:
            for match in _STATUS.finditer(line[:_LONGEST]):
                at = _AT_WORK.search(match[0])
                rank = _rank(line, match.start(), match[4])
                told = Progress(
                    number, int(match[4]) if rank is None else rank, match[2] or match[1], int(at[1]) if at else None,
                    int(match[5]), int(match[6]),
                )  # fmt: skip
                known = progress.get((told.rank, told.group), told)
                progress[told.rank, told.group] = max(known, told, key=_how_far)
    return Watchdog(_said(timed_out), tuple(progress.values()))


def _how_far(one: Progress) -> tuple[int, int, bool, int]:
    """Order what one rank reports of one group, whatever the order of its lines: the last word counts."""
    return one.enqueued, one.completed, one.at is not None, -(one.at or 0)


def _said(timed_out: list[TimedOut]) -> tuple[TimedOut, ...]:
    """Drop what only repeats: a title or a sentence that names a timeout, of which a rank itself tells elsewhere."""
    by_ranks = {one.seq for one in timed_out if one.rank is not None}
    return tuple(one for one in timed_out if one.rank is not None or not by_ranks
                 or (one.seq is not None and one.seq not in by_ranks))  # fmt: skip


def _joined(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines, each message that was broken over several at its first; as many lines as there were."""
    kept = list(lines)
    for at, line in enumerate(kept):
        if _begins(line) and not _whole(line) and (end := _end(kept, at)) > at + 1:
            kept[at:end] = [_glued(kept, at, end), *[""] * (end - at - 1)]
        yield kept[at]


def is_silent(text: str) -> bool:
    """Return whether a text holds no word of the watchdog."""
    return not any(mark in text for mark in (*_HEADS, *MARKS, "] [Rank "))


def _begins(line: str) -> bool:
    return any(head in line for head in _HEADS) or _HEAD_CUT.search(line[-200:]) is not None


def _end(kept: Sequence[str], at: int) -> int:
    """Return where a broken message ends: where it is whole, else where it says at least what it waited for."""
    ends = []
    for end in range(at + 2, min(at + 2 + _MOST_BROKEN, len(kept) + 1)):
        # what a watchdog died of is itself such a message
        if _begins(kept[end - 1]) and not (end == at + 2 and _HEADS[-1] in kept[at]):
            break
        if _whole(_glued(kept, at, end)):
            return end
        ends += [end] if _TIMEOUT.search(_glued(kept, at, end)) else []
    return ends[0] if ends and not _TIMEOUT.search(kept[at]) else at + 1


def _glued(kept: Sequence[str], at: int, end: int) -> str:
    """Return lines as one: broken by a terminal in a word, or by a person between words."""
    pieces = [piece[:_LONGEST].strip("\r") for piece in kept[at:end]]
    text = "".join(pieces)
    return text if _whole(text) else " ".join(pieces)


def _whole(line: str) -> bool:
    timeout = _TIMEOUT.search(line[:_LONGEST])
    return (timeout is not None and timeout[3] is not None) or _STATUS.search(line[:_LONGEST]) is not None


def _rank(line: str, until: int, told: str | None) -> int | None:
    """Return the job's rank, as the mark before the text says; else the text's own."""
    marks = _RANK_MARK.findall(line[max(0, until - 400) : until])
    return int(marks[-1]) if marks else None if told is None else int(told)


def _timed_out(number: int, line: str, match: re.Match[str]) -> TimedOut:
    said = dict(re.findall(r"(\w+(?:\(ms\))?)=([^,)]{1,80})", match[2]))

    def whole(name: str) -> int | None:
        told = said.get(name, "")
        # of coalesced operations no size is known: -1, printed without its sign
        return int(told) if told.isascii() and told.isdigit() and int(told) < 1 << 63 else None

    return TimedOut(
        number, _rank(line, match.start(), match[1]), whole("SeqNum"), said.get("OpType"), whole("NumelIn"),
        whole("NumelOut"), whole("Timeout(ms)"), int(match[3]) if match[3] else None,
    )  # fmt: skip
