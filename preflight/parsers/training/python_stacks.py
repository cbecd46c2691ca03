"""Stacks of Python processes: ``py-spy dump`` and ``faulthandler``.

Both tools print the newest frame first. Sources: py-spy 0.3 and 0.4 (README, ``dump``); docs.python.org, faulthandler.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from preflight._startup.lightclass import dataclass, replace
from preflight.parsers.parsed import Parsed
from preflight.textprep.line_prefixes import split_by_writer
from preflight.textprep.lines import Lines, lines_of
from preflight.textprep.numbered_text import NumberedText

HINTS = ("Process ", "(most recent call first):")

_PROCESS = re.compile(r"Process (\d{1,9}): (.{0,4000})")
_VERSION = re.compile(r"Python v(\d\S{0,40})(?: \(.{0,1000}\))?\s*")
_THREAD = re.compile(r"Thread (?:0x[0-9A-Fa-f]{1,16}|\d{1,20})(?: \(([\w+]{1,20})\))?(?:: \"(.{0,200})\")?\s*")
_PLACE = re.compile(r"(.{1,1000}?)(?::(\d{1,9}))?\)\s{0,9}")
_LOCALS = re.compile(r"\s{6,20}\S.{0,4000}")
_FAULT = re.compile(
    r"(Current thread|Thread|Stack)(?: 0x[0-9A-Fa-f]{1,16})?(?: \[(.{0,200})\])? \(most recent call first\):\s*"
)
_FAULT_FRAME = re.compile(r"  File \"(.{1,1000}?)\", line (\d{1,9}|\?\?\?) in (.{1,400})")
_MORE = re.compile(r"  \.\.\.\s*|  <no Python frame>\s*")
#: Maximum number of processes, of threads per process, and of stored frames per thread.
_MOST, _MOST_THREADS, _MOST_FRAMES = 20_000, 2000, 256
#: Maximum number of other lines between two processes of one output.
_GAP = 6
#: Maximum length of a frame's line.
_LONGEST = 2000
MAIN = "MainThread"


@dataclass(frozen=True)
class StackFrame:
    """One frame of a Python stack."""

    function: str
    file: str
    line: int | None

    def __str__(self) -> str:
        """Return the frame as py-spy prints it."""
        return f"{self.function} ({self.file}{f':{self.line}' if self.line is not None else ''})"


@dataclass(frozen=True)
class StackThread:
    """The Python stack of a thread, newest frame first."""

    name: str  # empty if not printed
    state: str  # "idle", "active+gil"; empty if not printed
    frames: tuple[StackFrame, ...]


@dataclass(frozen=True)
class ProcessStacks:
    """The threads of one process."""

    pid: int | None  # None: faulthandler does not print it
    command: str
    threads: tuple[StackThread, ...]
    line: int  # of its first line
    writer: str = ""  # the rank's name in the launcher's line prefix; empty without one

    @property
    def main(self) -> StackThread | None:
        """The main thread; None if unknown. Faulthandler prints it last, often unnamed."""
        named = next((thread for thread in self.threads if thread.name == MAIN), None)
        last = [thread for thread in self.threads if self.pid is None or not thread.name]
        return named or (last[-1] if last else None)


def begins(lines: Lines, at: int) -> bool:
    """Return whether the stacks of a process begin at a line."""
    text = lines[at].text
    following = lines[at + 1].text if at + 1 < len(lines) else ""
    if _PROCESS.fullmatch(text):
        return _VERSION.fullmatch(following) is not None
    return _FAULT.fullmatch(text) is not None and _FAULT_FRAME.fullmatch(following) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[tuple[ProcessStacks, ...]]:
    """Read the stacks of a process, and of others that follow within a few lines."""
    stacks: list[ProcessStacks] = []
    end = last = at
    while end < len(lines) and end - last <= _GAP and len(stacks) < _MOST:
        if begins(lines, end):
            process, end = _process(lines, end)
            stacks.append(process)
            last = end
        else:
            end += 1
    return Parsed(tuple(stacks), (), last)


def _process(lines: Lines, at: int) -> tuple[ProcessStacks, int]:
    """Read the threads of one process."""
    start = lines[at]
    process = _PROCESS.fullmatch(start.text)
    if process is not None:
        threads, end = _of_py_spy(lines, at + 2)
        return ProcessStacks(int(process[1]), process[2].strip(), threads, start.number), end
    threads, end = _of_faulthandler(lines, at)
    return ProcessStacks(None, "", threads, start.number), end


def _of_py_spy(lines: Lines, at: int) -> tuple[tuple[StackThread, ...], int]:
    threads: list[tuple[str, str, list[StackFrame]]] = []
    end = last = at
    while end < len(lines):
        text = lines[end].text
        if match := _THREAD.fullmatch(text):
            threads.append((match[2] or "", match[1] or "", []))
        elif threads and (frame := _frame(text)) is not None:
            _add(threads[-1][2], frame)
        elif text.strip() and not (threads and _LOCALS.fullmatch(text)):
            break
        if text.strip():
            last = end + 1
        end += 1
    return _stored(threads), max(last, at)


def _frame(text: str) -> StackFrame | None:
    """Read a py-spy frame: ``function (file:line)``; return None for any other line."""
    if not text.startswith("  ") or len(text) > _LONGEST:
        return None
    function, bracket, rest = text.rpartition(" (")
    place = _PLACE.fullmatch(rest) if bracket and function.strip() else None
    return StackFrame(function.strip(), place[1], int(place[2]) if place[2] else None) if place else None


def _of_faulthandler(lines: Lines, at: int) -> tuple[tuple[StackThread, ...], int]:
    threads: list[tuple[str, str, list[StackFrame]]] = []
    end = last = at
    while end < len(lines):
        text = lines[end].text
        if match := _FAULT.fullmatch(text):
            threads.append((match[2] or "", "", []))
        elif match := _FAULT_FRAME.fullmatch(text):
            number = int(match[2]) if match[2].isdigit() else None
            _add(threads[-1][2], StackFrame(match[3].strip(), match[1], number))
        elif text.strip() and not _MORE.fullmatch(text):
            break
        if text.strip():
            last = end + 1
        end += 1
    return _stored(threads), max(last, at + 1)


def _add(frames: list[StackFrame], frame: StackFrame) -> None:
    if len(frames) < _MOST_FRAMES:
        frames.append(frame)


def _stored(threads: Sequence[tuple[str, str, list[StackFrame]]]) -> tuple[StackThread, ...]:
    stored = [*threads[: _MOST_THREADS - 1], *threads[max(_MOST_THREADS - 1, len(threads) - 1) :]]
    return tuple(StackThread(name, state, tuple(frames)) for name, state, frames in stored)


def parse(text: NumberedText) -> tuple[ProcessStacks, ...]:
    """Read the stacks of all processes in a log, even if the lines of ranks alternate."""
    return tuple(islice(_all(text), _MOST))


def _all(text: NumberedText) -> Iterator[ProcessStacks]:
    for writer, lines in split_by_writer(lines_of(text)):
        at = 0
        while at < len(lines):
            if begins(lines, at):
                process, at = _process(lines, at)
                yield replace(process, writer=writer)
            else:
                at += 1


def facts(stacks: Sequence[ProcessStacks]) -> dict[str, Any]:
    """Return the stacks as `preflight read --json` prints them."""
    return {
        "processes": [
            {"pid": process.pid, "command": process.command or None, "line": process.line,
             "threads": [{"name": thread.name or None, "state": thread.state or None,
                          "frames": list(map(str, thread.frames))} for thread in process.threads]}
            for process in stacks
        ],
    }  # fmt: skip


def summary(stacks: Sequence[ProcessStacks]) -> str:
    """Return a one-line summary of the stacks."""
    main = stacks[0].main
    where = str(main.frames[0]) if main is not None and main.frames else "nowhere in Python"
    lead = f"{len(stacks)} processes; the first" if len(stacks) > 1 else "the main thread"
    return f"{lead} is in {where}"
