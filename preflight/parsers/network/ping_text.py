"""``ping`` and ``ibping`` in pasted text."""

from __future__ import annotations

import re
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.network import ping
from preflight.parsers.network.ping import Ping
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import is_prompt
from preflight.textprep.lines import Lines

HINTS = ("bytes of data", "ibping statistics", "Pong from", "packets transmitted")

_HEAD = re.compile(r"\s*PING (\S{1,80}).{0,120} bytes of data\.?\s*|\s*Pong from (\S{1,80}).*|\s*--- (\S{1,80}) .{0,40}"
                   r"(?:ib)?ping statistics ---\s*")  # fmt: skip
_SUMMARY = re.compile(r"\s*\d{1,9} packets transmitted, .*")
_MOST_LINES = 100_000


@dataclass(frozen=True)
class PingRun:
    """One run of ``ping``; ``result`` is None if its summary is missing."""

    peer: str
    line: int
    result: Ping | None


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``ping`` or ``ibping`` output begins at a line."""
    return _HEAD.fullmatch(lines[at].text) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[PingRun]:
    """Read one run, up to its summary."""
    head = _HEAD.fullmatch(lines[at].text)
    assert head is not None
    peer = next(filter(None, head.groups()), "")
    end = at + 1
    while end < min(len(lines), at + _MOST_LINES):
        text = lines[end].text
        if _SUMMARY.fullmatch(text):
            end += 1
            break
        if is_prompt(text) or text.lstrip().startswith("PING "):
            break
        end += 1
    try:
        result: Ping | None = ping.parse("\n".join(line.text.strip() for line in lines[at:end]))
    except ValueError:
        result = None
    gaps = () if result else (ParseGap(lines[end - 1].number, "the summary is missing"),)
    return Parsed(PingRun(peer, lines[at].number, result), gaps, end)


def facts(run: PingRun) -> dict[str, Any]:
    """Return the run as `preflight read --json` prints it."""
    result = run.result
    return {"peer": run.peer, "sent": result.sent if result else None, "received": result.received if result else None,
            "local_mtu": result.local_mtu if result else None, "path_mtu": result.reported_mtu if result else None,
            "error": result.objection or None if result else None}  # fmt: skip


def summary(run: PingRun) -> str:
    """Return a one-line summary of the run."""
    if run.result is None:
        return f"{run.peer}: no summary"
    return f"{run.peer}: {run.result.received} of {run.result.sent} packets were answered"
