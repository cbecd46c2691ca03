"""``ncclras``: the processes and communicators of a running job, from NCCL RAS.

Source: NCCL user guide, section RAS (NCCL 2.24 and later); the output differs between releases. RAS counts the
operations that ranks have launched, not those that have completed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.textprep.lines import Lines, lines_of
from preflight.textprep.numbered_text import NumberedText

HINTS = ("Job summary", "Communicators... ")

_HEAD = re.compile(r"\s{0,8}(?:Job summary|Communicators\.\.\. \(\d{1,6}\.\d{1,3}s\))\s*")
_SECTION = re.compile(r"\s{0,8}(Job summary|Communicators\.\.\.|Errors|Warnings)(?: \(\d{1,6}\.\d{1,3}s\))?\s*")
_RULE = re.compile(r"\s{0,8}={4,40}\s*")
_COLUMNS = re.compile(r"\s{0,8}(?:Group|#|Nodes|\(total\))(?:\s+[\w#()]{1,12}){3,20}\s*")
_NUMBER = r"\d{1,9}(?:-\d{1,9})?"
_TOTALS = re.compile(rf"\s+({_NUMBER})\s+{_NUMBER}\s+{_NUMBER}\s+({_NUMBER})\s+({_NUMBER})\s*")
_GROUP = re.compile(rf"\s+(\d{{1,9}})((?:\s+{_NUMBER}){{5}})\s+([A-Z,]{{2,40}})\s+([A-Z,]{{2,60}})\s*")
_PROBLEM = re.compile(r"\s{0,8}(?:#(\d{1,9})-(\d{1,9}) \(([0-9a-f]{1,32})\) )?([A-Z]{4,20})\s*")
_PROCESS = re.compile(r"\s+Process (\d{1,9}) on node (\S{1,255}) managing GPUs? ([\d, -]{1,80})\s*")
_MISSING = re.compile(r"\s+The missing ranks?: ([\d, -]{1,4000})\s*")
_OF_MANY = re.compile(
    r"\s+(\d{1,9}) ranks? ((?:have|has) (?:launched up to operation|not launched any|status) ?[^:]{0,40})"
    r"(?:: ([\d, -]{0,4000}))?"
)
#: Maximum number of ranks in a list; longer lists are not read.
_MOST_RANKS = 64
_OF_ONE = re.compile(
    r"\s+Rank (\d{1,9}) (has (?:launched up to operation|not launched any|status) ?.{0,40}?) -- (.{1,400})"
)
_RANK = re.compile(r"\s+Rank (\d{1,9}) -- (.{1,400})")
_PLACE = re.compile(r"GPU ([\d, -]{1,80}) managed by process (\d{1,9}) on node (\S{1,255})\s*")
_DETAIL = re.compile(r"\s+\S.{0,300}")
_OPERATION = re.compile(r"(?:have|has) launched up to operation (\d{1,18})")
_NONE_LAUNCHED = re.compile(r"(?:have|has) not launched any")
#: Problem words of RAS: unreachable processes, missing answers, and a communicator's ranks that differ.
DEAD, INCOMPLETE, MISMATCH = "DEAD", "INCOMPLETE", "MISMATCH"


@dataclass(frozen=True)
class RankPlace:
    """A rank (-1 for a process without its ranks) and its place, if shown."""

    rank: int
    node: str
    process: int
    gpu: str


@dataclass(frozen=True)
class RankSet:
    """Ranks of a communicator that have the same value of the compared property."""

    count: int
    state: str  # "launched up to operation 6649", "status INIT"
    operations: int | None  # number launched; None if another property is compared
    ranks: tuple[RankPlace, ...]  # empty if RAS does not list them


@dataclass(frozen=True)
class RasProblem:
    """One problem, listed below Errors or Warnings."""

    line: int
    communicator: str  # such as "#0-0 (27a079b828ff1a75)"; empty for a problem of the job's processes
    word: str
    compared: str  # what differs between ranks, as printed
    sets: tuple[RankSet, ...]
    processes: tuple[RankPlace, ...]  # rank -1
    missing: str  # missing ranks, as printed
    is_error: bool

    @property
    def counts(self) -> tuple[int, ...]:
        """The operation counts of all sets, largest first; empty if one is unknown."""
        counts = [each.operations for each in self.sets]
        return tuple(sorted((each for each in counts if each is not None), reverse=True)) if None not in counts else ()

    @property
    def behind(self) -> tuple[RankSet, ...]:
        """The sets of ranks that have launched fewer operations than the largest count."""
        most = max(self.counts, default=0)
        return tuple(each for each in self.sets if each.operations is not None and each.operations < most)


@dataclass(frozen=True)
class CommunicatorGroup:
    """One row of the table of communicators."""

    number: int
    communicators: int
    status: str
    errors: str


@dataclass(frozen=True)
class RasStatus:
    """The output of one ``ncclras`` query."""

    processes: str  # their number, as printed; empty if the text lacks it
    groups: tuple[CommunicatorGroup, ...]
    problems: tuple[RasProblem, ...]
    complete: bool


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``ncclras`` output begins at a line."""
    if _HEAD.fullmatch(lines[at].text) is None or at + 1 >= len(lines):
        return False
    return _RULE.fullmatch(lines[at + 1].text) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[RasStatus]:
    """Read one query's tables, and the problems below Errors and Warnings."""
    processes, section, end, last = "", "", at, at
    groups: list[CommunicatorGroup] = []
    blocks: list[tuple[int, re.Match[str], bool, list[str]]] = []
    while end < len(lines):
        text = lines[end].text
        if (match := _SECTION.fullmatch(text)) is not None:
            if match[1] == "Job summary" and section:
                break  # the next query
            section = match[1]
        elif section in ("Errors", "Warnings") and (match := _PROBLEM.fullmatch(text)):
            blocks.append((lines[end].number, match, section == "Errors", []))
        elif section.startswith("Comm") and (match := _GROUP.fullmatch(text)):
            groups.append(
                CommunicatorGroup(int(match[1]), int(match[2].split()[0].partition("-")[0]), match[3], match[4])
            )
        elif section == "Job summary" and (match := _TOTALS.fullmatch(text)):
            processes = match[2]
        elif blocks and section in ("Errors", "Warnings") and _DETAIL.fullmatch(text):
            blocks[-1][3].append(text)
        elif text.strip() and not (_RULE.fullmatch(text) or _COLUMNS.fullmatch(text)):
            break
        if text.strip():
            last = end
        end += 1
    problems = tuple(_problem(*block) for block in blocks)
    troubled = any(group.errors != "OK" for group in groups)
    gaps = []
    if not groups:
        gaps.append(ParseGap(lines[last].number, "the table of communicators is not in the text"))
    elif troubled and not problems:
        gaps.append(ParseGap(lines[last].number, "the errors and warnings are not in the text", beside=True))
    return Parsed(RasStatus(processes, tuple(groups), problems, not gaps), tuple(gaps), last + 1)


def parse(text: NumberedText) -> tuple[Parsed[RasStatus], ...]:
    """Read the output of all queries in a log, in order."""
    queries, lines, at = [], lines_of(text), 0
    while at < len(lines):
        if begins(lines, at):
            queries.append(parse_lines(lines, at))
            at = queries[-1].end
        else:
            at += 1
    return tuple(queries)


def _problem(line: int, head: re.Match[str], is_error: bool, details: list[str]) -> RasProblem:
    """Read one problem from its heading and its detail lines."""
    sets: list[tuple[int, str, list[RankPlace]]] = []
    processes: list[RankPlace] = []
    compared = missing = ""
    for text in details:
        if match := _PROCESS.fullmatch(text):
            processes.append(RankPlace(-1, match[2], int(match[1]), match[3].strip()))
        elif match := _MISSING.fullmatch(text):
            missing = match[1].strip()
        elif match := _OF_ONE.fullmatch(text):
            sets.append((1, match[2], list(_place(int(match[1]), match[3]))))
        elif match := _OF_MANY.fullmatch(text):
            sets.append((int(match[1]), match[2], [RankPlace(rank, "", 0, "") for rank in _listed(match[3] or "")]))
        elif (match := _RANK.fullmatch(text)) and sets:
            sets[-1][2].extend(_place(int(match[1]), match[2]))
        else:
            compared = compared or text.strip()
    communicator = f"#{head[1]}-{head[2]} ({head[3]})" if head[1] else ""
    rank_sets = tuple(
        RankSet(count, re.sub(r"^(?:have|has) ", "", state).strip(), _operations(state), tuple(ranks))
        for count, state, ranks in sets
    )
    return RasProblem(line, communicator, head[4], compared, rank_sets, tuple(processes), missing, is_error)


def _listed(text: str) -> list[int]:
    """Return the ranks in a list; empty if it has ranges, or is too long."""
    words = [word.strip() for word in text.split(",")]
    return [int(word) for word in words] if all(map(str.isdecimal, words)) and len(words) <= _MOST_RANKS else []


def _operations(state: str) -> int | None:
    if match := _OPERATION.match(state):
        return int(match[1])
    return 0 if _NONE_LAUNCHED.match(state) else None


def _place(rank: int, text: str) -> Iterator[RankPlace]:
    if match := _PLACE.fullmatch(text):
        yield RankPlace(rank, match[3], int(match[2]), match[1].strip())


def facts(status: RasStatus) -> dict[str, Any]:
    """Return the status as `preflight read --json` prints it."""
    return {
        "processes": status.processes or None,
        "groups": [{"group": group.number, "communicators": group.communicators, "status": group.status,
                    "errors": group.errors} for group in status.groups],
        "problems": [
            {"communicator": problem.communicator or None, "word": problem.word, "compared": problem.compared,
             "ranks": [{"count": each.count, "state": each.state,
                        "ranks": [{"rank": place.rank, "node": place.node or None, "pid": place.process or None,
                                   "gpu": place.gpu or None} for place in each.ranks]} for each in problem.sets],
             "processes": [{"node": place.node, "pid": place.process, "gpu": place.gpu} for place in problem.processes],
             "missing_ranks": problem.missing or None, "line": problem.line}
            for problem in status.problems
        ],
    }  # fmt: skip


def summary(status: RasStatus) -> str:
    """Return a one-line summary of the status."""
    count = sum(group.communicators for group in status.groups)
    words = sorted({problem.word for problem in status.problems}) or ["no error"]
    return f"{count} communicators of {status.processes or 'an unknown number of'} processes: {', '.join(words)}"
