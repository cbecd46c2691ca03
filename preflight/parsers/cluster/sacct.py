"""``sacct``: the states of jobs and job steps."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from preflight._startup.lightclass import dataclass, field
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import is_prompt
from preflight.textprep.lines import Lines

HINTS = ("JobID",)

_COLUMN = re.compile(r"[A-Z][A-Za-z]{1,30}")
_DASHES = re.compile(r"\s*-{2,80}(?:\s+-{2,80})*\s*")
_JOB = re.compile(r"\s*(\d{1,12}(?:_(?:\d{1,9}|\[[\d,%-]{1,80}\]))?(?:\+\d{1,6})?(?:\.[\w-]{1,40})?)(?:\s|\||$)")
_LONGEST = 4000


@dataclass(frozen=True)
class EndedJob:
    """One job or job step; a value that the text lacks is empty."""

    id: str
    name: str
    state: str  # as printed: NODE_FAIL, OUT_OF_ME+, CANCELLED by 1000
    exit_code: str
    nodes: str
    line: int
    reason: str = ""  # of a pending job, from squeue and scontrol; for seff, its memory efficiency
    fields: Mapping[str, str] = field(default_factory=dict)  # all columns or fields, by their printed names


def _header(text: str) -> list[str]:
    if len(text) > _LONGEST:
        return []
    names = [name for name in re.split(r"\||\s+", text.strip()) if name]
    has_both = "JobID" in names and "State" in names and all(_COLUMN.fullmatch(name) for name in names)
    return names if has_both and names[0].startswith("JobID") else []


def begins(lines: Lines, at: int) -> bool:
    """Return whether a table of ``sacct`` begins at a line."""
    return bool(_header(lines[at].text))


def parse_lines(lines: Lines, at: int) -> Parsed[tuple[EndedJob, ...]]:
    """Read the rows below the header."""
    names = _header(lines[at].text)
    piped = "|" in lines[at].text
    jobs: list[EndedJob] = []
    gaps: list[ParseGap] = []
    spans: list[tuple[int, int]] = []
    end = at + 1
    while end < len(lines):
        text = lines[end].text[:_LONGEST]
        if _DASHES.fullmatch(text):
            spans = [match.span() for match in re.finditer(r"-{2,80}", text)]
        elif is_prompt(text) or not _JOB.match(text):
            break
        elif (row := _cells(names, text, spans, piped)) is None:
            gaps.append(ParseGap(lines[end].number, "the row is truncated"))
        else:
            jobs.append(EndedJob(row.get("JobID", ""), row.get("JobName", ""), row["State"], row.get("ExitCode", ""),
                                 row.get("NodeList", ""), lines[end].number, fields=row))  # fmt: skip
        end += 1
    return Parsed(tuple(jobs), tuple(gaps), end)


#: A job state in a line whose columns have shifted.
_STATE = re.compile(
    r"(?<!\S)((?:CANCELLED(?: by \d{1,10})?|COMPLETED|FAILED|TIMEOUT|NODE_FAIL|PREEMPTED|OUT_OF_ME\w{0,4}|BOOT_FAIL"
    r"|DEADLINE|RUNNING|PENDING|REQUEUED|SUSPENDED|RESIZING|REVOKED)\+?)(?!\S)"
)


def _sliced(text: str, spans: list[tuple[int, int]]) -> Iterator[str]:
    """Yield the cells of a row; a word belongs to the column in which it begins."""
    at = 0
    for begin, stop in spans:
        begin = max(begin, at)
        while 0 < stop < len(text) and not text[stop - 1].isspace() and not text[stop].isspace():
            stop += 1
        yield text[begin:stop].strip()
        at = stop


def _cells(names: list[str], text: str, spans: list[tuple[int, int]], piped: bool) -> dict[str, str] | None:
    if piped:
        cells = text.strip().split("|")
        return dict(zip(names, cells, strict=False)) if len(cells) >= len(names) else None
    words = text.split()
    if len(words) == len(names):
        return dict(zip(names, words, strict=True))
    if len(spans) == len(names):
        sliced = dict(zip(names, _sliced(text, spans), strict=True))
        if _STATE.fullmatch(sliced.get("State", "")) and _JOB.match(sliced["JobID"]):
            return sliced
    if match := _STATE.search(text):
        return {"JobID": words[0], "State": match[1]}
    return None
