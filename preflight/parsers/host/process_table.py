"""``ps`` with a state column, which shows uninterruptible sleep and zombies.

Source: ps(1), PROCESS STATE CODES.
"""

from __future__ import annotations

import re
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import is_prompt
from preflight.textprep.agreement import counted
from preflight.textprep.lines import Lines

HINTS = ("PID",)

_HEAD = re.compile(r"\s*(?=.*\bPID\b)(?=.*\b(?:STAT|S)\b)(?=.*\b(?:CMD|COMMAND|COMM)\b)[A-Z%][A-Z% +-]{4,200}")
_STATE = re.compile(r"[DIRSTtWXZ][<NLsl+]{0,4}")
_LONGEST = 2000


@dataclass(frozen=True)
class ListedProcess:
    """One process in the table."""

    pid: int
    state: str
    waits_in: str  # kernel function; empty if not shown
    command: str
    line: int


def begins(lines: Lines, at: int) -> bool:
    """Return whether a table of ``ps`` begins at a line."""
    return _HEAD.fullmatch(lines[at].text) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[tuple[ListedProcess, ...]]:
    """Read the rows below the header."""
    names = lines[at].text.split()
    pid, command = names.index("PID"), len(names) - 1
    state = names.index("STAT") if "STAT" in names else names.index("S")
    waits = names.index("WCHAN") if "WCHAN" in names else None
    processes, gaps, end = list[ListedProcess](), list[ParseGap](), at + 1
    while end < len(lines) and not is_prompt(lines[end].text):
        words = lines[end].text[:_LONGEST].split(None, command)
        if len(words) <= command or not words[pid].isdecimal() or not _STATE.fullmatch(words[state]):
            break
        processes.append(ListedProcess(int(words[pid]), words[state], words[waits] if waits is not None else "",
                                       words[command], lines[end].number))  # fmt: skip
        end += 1
    if end < len(lines) and lines[end].text.strip() and end == len(lines) - 1:
        gaps.append(ParseGap(lines[end].number, "a truncated row"))
    if not processes:
        gaps.append(ParseGap(lines[at].number, "no row follows the header"))
    return Parsed(tuple(processes), tuple(gaps), end)


def facts(processes: tuple[ListedProcess, ...]) -> dict[str, Any]:
    """Return the processes as `preflight read --json` prints them."""
    return {
        "processes": [
            {"pid": process.pid, "state": process.state, "wchan": process.waits_in or None,
             "command": process.command[:200], "line": process.line}
            for process in processes
        ]
    }  # fmt: skip


def summary(processes: tuple[ListedProcess, ...]) -> str:
    """Return a one-line summary of the processes."""
    waiting = sum(process.state[0] == "D" for process in processes)
    return f"{counted(len(processes), 'process')}, {waiting} of them in uninterruptible sleep"
