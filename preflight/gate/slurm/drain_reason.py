"""Our reasons, told from everybody else's.

A drain is ours if its reason is, letter by letter, one that preflight wrote for this very node: it begins with
``preflight: `` and ends with a checksum. So whoever edits the reason, or adds a word to it, takes the drain over, and
one that was copied to another node is not ours there.
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
class Mark:
    """What a reason or comment of ours says: the check that failed, and since when the node is held (0: drained)."""

    cause: str
    at: int = 0


def drained(node: str, reason: str, whose: str) -> str:
    """Return the reason of a drain: what was found, ``[whose]`` problem it is, and the checksum.

    Brackets within are made round: scontrol appends ``[user@time]``, and nothing else may look like that.
    """
    return _sealed(node, f"{ascii_reason(reason).translate(_BRACKETS)} [{whose}]")


def held(node: str, reason: str, whose: str, now: int) -> str:
    """Return the comment of a node that failed and was not drained, with the time at which that was so."""
    when = datetime.fromtimestamp(now, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    told = ascii_reason(reason).removeprefix(PREFIX).translate(_BRACKETS)
    return _sealed(node, f"{PREFIX}not drained {when}: {told} [{whose}]")


def ours(node: str, text: str) -> Mark | None:
    """Read back what ``drained`` and ``held`` wrote for a node; None for any other text."""
    found = _OURS.fullmatch(text)
    if found is None or found["seal"] != _seal(node, found["text"]):
        return None
    at = datetime.fromisoformat(found["at"].replace("Z", "+00:00")).timestamp() if found["at"] else 0
    return Mark(found["cause"], int(at))


def _sealed(node: str, text: str) -> str:
    return f"{text} #{_seal(node, text)}"


def _seal(node: str, text: str) -> str:
    return f"{zlib.crc32(f'{node} {text}'.encode()) & 0xFFFFFF:06x}"
