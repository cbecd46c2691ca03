"""``ethtool -S``: the counters of a network interface."""

from __future__ import annotations

import re

from preflight.parsers.counter_list import CounterList, facts, summary
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import block, broken_off, queried_device
from preflight.textprep.lines import Lines

__all__ = ["HINTS", "begins", "facts", "parse_lines", "summary"]

HINTS = (":",)

#: A remark after a counter.
_REMARK = r"(?:\s{2,}\([^()]{1,80}\))?\s*"
_NIC_STATISTICS = re.compile(r"\s*(?:(?:NIC|PHY) statistics|Standard stats for ([\w.@-]{1,64})):\s*")
_STATISTIC = re.compile(r"\s*([A-Za-z\[][\w .,:+/()\[\]-]{0,80}?)\s*:\s*(-?\d{1,30}|\d{1,3}(?:,\d{3}){1,8})" + _REMARK)


#: Names that identify a list without its header, as after `| grep pause`: they contain a direction. ``rx-usecs`` and
#: ``rx-frames`` are excluded, because they are settings in ``ethtool -c``.
_NIC_NAME = re.compile(
    r"\s*(?:(?:[\w.\[\]-]{1,20}(?:[._\]-]|: ?))?(?:rx|tx)\d{0,4}(?!-usecs|-frames?\b"
    r"|_(?:read|write|atomic)_requests|_icrc_|_dct_)"
    r"(?:[._-]|: ?)[\w.-]{2,60}"
    r"|[a-z]\w{2,60}_(?:phy|allowance_exceeded)"  # or mlx5's physical counters, and AWS's counters of exceeded limits
    r"):\s*\d{1,30}" + _REMARK
)
_SNAKE = re.compile(r"\s*[a-z][a-z0-9]*_[\w.-]{1,60}:\s*\d{1,30}" + _REMARK)
#: The second line of an explanation next to a counter, far to the right.
_EXPLAINED = re.compile(r"\s{20,}[^\s:][^:]{0,120}")
#: Maximum lines between a command and its output.
_NEAR = 8
#: A command that identifies the output after it, even a single line.
_NIC_COMMAND = re.compile(r"\bethtool[ _](?:-S|--statistics)[ _].*")


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``ethtool -S`` output begins at a line."""
    text = lines[at].text
    if _NIC_STATISTICS.fullmatch(text):
        return True
    if ":" not in text or not _STATISTIC.fullmatch(text):
        return False
    if at and _NIC_COMMAND.search(lines[at - 1].text):
        return True
    two = [line for line in lines[at : at + 3] if not _EXPLAINED.fullmatch(line.text)][:2]
    if len(two) == 2 and all(_NIC_NAME.fullmatch(line.text) for line in two):
        return True
    if len(two) < 2 or not all(_SNAKE.fullmatch(line.text) for line in two):
        return False
    return any(_NIC_COMMAND.search(line.text) for line in lines[max(0, at - _NEAR) : at])


#: Maximum number of counters. Interfaces with hundreds of queues have ten thousand; a longer list is implausible.
MOST_COUNTERS = 50_000


#: An indented line that belongs to the list, but has text instead of a number.
_NO_NUMBER = re.compile(r"[ \t]{2,12}([a-z][\w .\[\]-]{1,60}): ([^\d\s-].{0,200})")


def parse_lines(lines: Lines, at: int) -> Parsed[CounterList]:
    """Read the counters starting at a line; if a name is repeated, the first is used."""
    counters: dict[str, int] = {}
    end = at if _STATISTIC.fullmatch(lines[at].text) else at + 1
    while end < len(lines) and (match := _STATISTIC.fullmatch(lines[end].text)):
        counters.setdefault(match[1].strip(), int(match[2].replace(",", "")))
        end += 1
    end, taken = block(
        lines, end - 1, lambda text: bool(_STATISTIC.fullmatch(text) or _EXPLAINED.fullmatch(text)), blanks=0,
        again=lambda text: bool(_NIC_STATISTICS.fullmatch(text)),
    )  # fmt: skip
    for line in taken:
        if match := _STATISTIC.fullmatch(line.text):
            counters.setdefault(match[1].strip(), int(match[2].replace(",", "")))
    wrong = _NO_NUMBER.fullmatch(lines[end].text) if end < len(lines) else None
    cut = (
        [ParseGap(lines[end].number, f"{wrong[1].strip()} is {wrong[2].strip()[:60]!r}, not a number")] if wrong else []
    )
    if not counters and not cut:
        cut.append(ParseGap(taken[-1].number, "no counter follows"))
    if len(counters) > MOST_COUNTERS:
        cut.append(ParseGap(taken[-1].number, f"more than {MOST_COUNTERS} counters"))
    head = _NIC_STATISTICS.fullmatch(lines[at].text)
    if head is None:
        cut.append(
            ParseGap(
                lines[at].number, "the header of the list is missing: preceding counters may be missing", beside=True
            )
        )
    if broken_off(lines, end):
        cut.append(ParseGap(lines[end].number, "the text stops within a counter"))
    interface = (head and head[1]) or queried_device(lines, at, r"ethtool[ _](?:-S|--statistics)")
    return Parsed(CounterList(counters, {interface: counters} if interface else None), tuple(cut), end)
