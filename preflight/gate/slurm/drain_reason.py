"""Drain reasons set by preflight.

A drain is ours if its reason is exactly the one that preflight wrote for this node: it begins with ``preflight: `` and
ends with a checksum. Once an administrator edits the reason, the drain is no longer ours; neither is a reason that was
copied to another node.
"""

from __future__ import annotations

import re
import zlib
from datetime import datetime, timezone

from preflight._startup.lightclass import dataclass
from preflight.gate.verdict import PREFIX, ascii_reason

_OURS = re.compile(
    rf"(?P<text>{PREFIX}(?:not drained (?P<at>\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\dZ): )?"
    r"(?P<cause>[\w.-]+): .*) #(?P<seal>[0-9a-f]{6})"
)
_BRACKETS = str.maketrans("[]", "()")


@dataclass(frozen=True)
class DrainMark:
    """Content of preflight's reason or comment: the failed check and a time.

    ``at`` is when the node was held in service, in seconds since 1970; 0 for a drain.
    """

    cause: str
    at: int = 0


def drained(node: str, reason: str, owner: str) -> str:
    """Return the reason of a drain: the finding, ``[owner]``, and the checksum.

    Brackets in the text are replaced by parentheses, because scontrol appends ``[user@time]``.
    """
    return _sealed(node, f"{ascii_reason(reason).translate(_BRACKETS)} [{owner}]")


def held(node: str, reason: str, owner: str, now: int) -> str:
    """Return the comment of a failed node that was not drained, with the time."""
    when = datetime.fromtimestamp(now, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    summary = ascii_reason(reason).removeprefix(PREFIX).translate(_BRACKETS)
    return _sealed(node, f"{PREFIX}not drained {when}: {summary} [{owner}]")


def ours(node: str, text: str) -> DrainMark | None:
    """Parse a node's text from ``drained`` or ``held``; return None for any other."""
    found = _OURS.fullmatch(text)
    if found is None or found["seal"] != _seal(node, found["text"]):
        return None
    at = datetime.fromisoformat(found["at"].replace("Z", "+00:00")).timestamp() if found["at"] else 0
    return DrainMark(found["cause"], int(at))


def _sealed(node: str, text: str) -> str:
    return f"{text} #{_seal(node, text)}"


def _seal(node: str, text: str) -> str:
    return f"{zlib.crc32(f'{node} {text}'.encode()) & 0xFFFFFF:06x}"
