"""``ping -M do`` (iputils) with packets of one size, which are not fragmented."""

from __future__ import annotations

import re

from preflight._startup.lightclass import dataclass
from preflight.textprep.plain_text import normalize_text

#: IP version -> bytes of the IP and ICMP headers around ping's payload.
HEADERS = {4: 28, 6: 48}

_SUMMARY = re.compile(r"(?m)^([0-9]{1,9}) packets transmitted, ([0-9]{1,9}) (?:packets )?received\b")
_LOCAL = re.compile(r"local error: message too long,? mtu[=:] ?([0-9]{1,9})", re.IGNORECASE)
_REPORTED = re.compile(r"(?:Frag needed and DF set \(mtu ?= ?|Packet too big: mtu ?= ?)([0-9]{1,9})")
_OBJECTION = re.compile(r"(?m)^From \S{1,64} icmp_seq=[0-9]{1,6} (Destination [A-Za-z ]{1,40}|Time to live exceeded)")


@dataclass(frozen=True)
class Ping:
    """The results for packets of one size."""

    sent: int
    received: int
    local_mtu: int | None  # bytes; set if this host rejects the size, because of its interface or a router
    reported_mtu: int | None  # bytes; set if a router on the path rejects the size and reports its MTU
    objection: str  # another error, such as "Destination Host Unreachable"; empty if there is none

    @property
    def passes(self) -> bool:
        """Whether at least one packet was answered."""
        return self.received > 0

    @property
    def silent(self) -> bool:
        """Whether neither an answer nor an error was received."""
        return not self.received and not self.local_mtu and not self.reported_mtu and not self.objection


def parse(text: str) -> Ping:
    """Read the stdout and stderr of ``ping``; raises ValueError without a summary."""
    printed = normalize_text(text)
    summary = _SUMMARY.search(printed)
    if not summary:
        first = next((line.strip() for line in printed.split("\n") if line.strip()), "")
        raise ValueError(f"the output contains no summary; it begins with {first[:80]!r}")
    objection = _OBJECTION.search(printed)
    words = objection[1] if objection else ""
    if not words and "No buffer space available" in printed:
        words = "No buffer space available"
    return Ping(int(summary[1]), int(summary[2]), _number(_LOCAL, printed), _number(_REPORTED, printed), words.strip())


def _number(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.search(text)
    return int(found[1]) if found else None
