"""``tc -s qdisc``: the sent and dropped packets of queueing disciplines."""

from __future__ import annotations

import re
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed
from preflight.parsers.text_block import block, queried_device
from preflight.textprep.agreement import counted
from preflight.textprep.lines import Lines

HINTS = ("qdisc ",)

_HEAD = re.compile(r"\s*qdisc (\w{2,20}) ([0-9a-f]{0,4}:)(?: dev ([\w.@-]{1,40}))?(?: .{0,400})?")
_SENT = re.compile(r"\s*Sent (\d{1,20}) bytes (\d{1,20}) pkts? \(dropped (\d{1,20}), overlimits (\d{1,20}) .*")
_MORE = re.compile(
    r"\s+(?:Sent |backlog |rate |maxpacket |new_flow|flows |throttled |ecn_mark|memory_used|[a-z_]+ \d).*"
)


@dataclass(frozen=True)
class QueueDiscipline:
    """One queueing discipline; without statistics, its counts are None."""

    kind: str
    device: str
    line: int
    packets: int | None = None
    dropped: int | None = None


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``tc qdisc`` output begins at a line."""
    return _HEAD.fullmatch(lines[at].text) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[tuple[QueueDiscipline, ...]]:
    """Read the queueing disciplines starting at a line."""
    end, taken = block(lines, at, lambda text: bool(_HEAD.fullmatch(text) or _MORE.fullmatch(text)))
    device = queried_device(lines, at, r"qdisc (?:show|ls|list) dev") or ""
    queues: list[QueueDiscipline] = []
    for line in taken:
        if head := _HEAD.fullmatch(line.text):
            queues.append(QueueDiscipline(head[1], head[3] or device, line.number))
        elif sent := _SENT.fullmatch(line.text):
            last = queues[-1]
            queues[-1] = QueueDiscipline(last.kind, last.device, last.line, int(sent[2]), int(sent[3]))
    return Parsed(tuple(queues), (), end)


def facts(queues: tuple[QueueDiscipline, ...]) -> dict[str, Any]:
    """Return the queues as `preflight read --json` prints them."""
    return {
        "queues": [
            {"kind": item.kind, "dev": item.device or None, "packets": item.packets, "dropped": item.dropped}
            for item in queues
        ]
    }  # fmt: skip


def summary(queues: tuple[QueueDiscipline, ...]) -> str:
    """Return a one-line summary of the queues."""
    return counted(len(queues), "queue")
