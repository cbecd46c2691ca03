"""``ibcheckerrors``: counters above a threshold, by LID and port."""

from __future__ import annotations

import re
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed
from preflight.parsers.text_block import is_prompt
from preflight.textprep.agreement import counted
from preflight.textprep.lines import Lines

HINTS = ("#warn: counter", "Error check on lid", "ports checked", "nodes checked")

_COUNTER = re.compile(r"\s*#warn: counter (\w{3,40}) = (\d{1,20})\s+\(threshold (\d{1,10})\)(?: lid (\d{1,5}))?"
                      r"(?: port (\d{1,3}))?.{0,200}")  # fmt: skip
_CHECK = re.compile(
    r"\s*(?:Error|Port|State) check (?:on )?lid (\d{1,5})(?: \((.{0,80})\))? port (\w{1,3}):\s+(FAILED|OK).*"
)
_SUMMARY = re.compile(r"\s*##\s+(?:Summary: )?(\d{1,7}) (nodes|ports) checked, (\d{1,7}) .{0,80}")
_MORE = re.compile(r"\s*#.*")


@dataclass(frozen=True)
class ExceededCounter:
    """A counter above its threshold."""

    name: str
    value: int
    threshold: int
    lid: int | None
    port: int | None
    line: int


@dataclass(frozen=True)
class ErrorCheck:
    """The exceeded counters and failed ports, and the totals of the summary."""

    counters: tuple[ExceededCounter, ...]
    failed: tuple[str, ...]
    checked: int  # number of nodes and ports checked
    bad: int  # number of these with errors


def _belongs(text: str) -> bool:
    return any(pattern.fullmatch(text) for pattern in (_COUNTER, _CHECK, _SUMMARY))


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``ibcheckerrors`` output begins at a line."""
    return _belongs(lines[at].text)


def parse_lines(lines: Lines, at: int) -> Parsed[ErrorCheck]:
    """Read the counters, the failed ports and the summary."""
    counters: list[ExceededCounter] = []
    failed: list[str] = []
    checked = bad = 0
    end = last = at
    while end < len(lines) and not (end > at and is_prompt(lines[end].text)):
        text = lines[end].text
        if match := _COUNTER.fullmatch(text):
            counters.append(
                ExceededCounter(match[1], int(match[2]), int(match[3]), int(match[4]) if match[4] else None,
                                int(match[5]) if match[5] else None, lines[end].number)
            )  # fmt: skip
        elif match := _CHECK.fullmatch(text):
            if match[4] == "FAILED":
                failed.append(f"LID {match[1]} port {match[3]}")
        elif match := _SUMMARY.fullmatch(text):
            checked, bad = checked + int(match[1]), bad + int(match[3])
        elif text.strip() and not _MORE.fullmatch(text):
            break
        if text.strip():
            last = end
        end += 1
    return Parsed(ErrorCheck(tuple(counters), tuple(failed), checked, bad), (), last + 1)


def facts(result: ErrorCheck) -> dict[str, Any]:
    """Return the result as `preflight read --json` prints it."""
    return {
        "counters": [
            {"name": item.name, "value": item.value, "threshold": item.threshold, "lid": item.lid, "port": item.port}
            for item in result.counters
        ],
        "failed": list(result.failed), "checked": result.checked, "bad": result.bad,
    }  # fmt: skip


def summary(result: ErrorCheck) -> str:
    """Return a one-line summary of the result."""
    above = counted(len(result.counters), "counter")
    return f"{above} above the threshold, {counted(len(result.failed), 'port')} failed"
