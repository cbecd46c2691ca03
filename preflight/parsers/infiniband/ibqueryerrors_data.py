"""``ibqueryerrors --counters``: traffic of a subnet's ports since the last reset.

Data is counted in words of four bytes (IBA 16.1.3.5 and 16.1.4.11). The counters of a port without extended counters
saturate at 32 bits. Source: infiniband-diags, ibqueryerrors(8).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from preflight._startup.lightclass import dataclass
from preflight.textprep.plain_text import normalize_text

#: Number of bytes for each count of PortXmitData and PortRcvData.
WORD = 4

#: Maximum value of a 32-bit counter.
FULL = 0xFFFFFFFF

_OF = re.compile(r'Data Counters for (?:0x[0-9a-fA-F]{1,16} )?".*"')
_PORT = re.compile(r"\s+GUID 0x([0-9a-fA-F]{1,16}) port ([0-9]{1,3}):((?: \[[A-Za-z0-9]+ == [^\]\n]{1,60}\])*)\s*")
_VALUE = re.compile(r"\[(PortXmitData|PortRcvData) == ([0-9]{1,20})(?: \([^)\n]*\))?\]")

Port = tuple[str, int]  # GUID, port number


@dataclass(frozen=True)
class Data:
    """The traffic of a port, in words of four bytes."""

    sent: int
    received: int


@dataclass(frozen=True)
class Rate:
    """The average rate of a port between two readings, in Gb/s."""

    sent: float
    received: float


def parse(text: str) -> Mapping[Port, Data]:
    """Parse a report; raise ValueError for a missing summary or an invalid line."""
    found: dict[Port, Data] = {}
    has_summary = False
    for line in normalize_text(text).split("\n"):
        if not line.strip() or _OF.fullmatch(line) or line.lstrip().startswith("Link info:"):
            continue
        if match := _PORT.fullmatch(line):
            values = {name: int(number) for name, number in _VALUE.findall(match[3])}
            if values.keys() == {"PortXmitData", "PortRcvData"}:
                end = match[1].lower().zfill(16), int(match[2])
                found[end] = Data(values["PortXmitData"], values["PortRcvData"])
        elif line.startswith("##"):
            has_summary = has_summary or line.startswith("## Summary:")
        else:
            raise ValueError(f"there is no counter in the line {line.strip()[:120]!r}")
    if not has_summary:
        raise ValueError("it ends without a summary" if text.strip() else "it is empty: no subnet manager answered")
    return found


def rates(before: Mapping[Port, Data], after: Mapping[Port, Data], seconds: float) -> Mapping[Port, Rate]:
    """Return the rates of the ports, from two reports that are ``seconds`` apart.

    Ports with counters that are saturated, or were reset in between, are left out.
    """
    found = {}
    for port, now in after.items():
        then = before.get(port)
        if then is None or FULL in (now.sent, now.received) or now.sent < then.sent or now.received < then.received:
            continue
        factor = WORD * 8 / 1e9 / seconds
        found[port] = Rate((now.sent - then.sent) * factor, (now.received - then.received) * factor)
    return found
