"""``ibqueryerrors``: error counters of a subnet's ports since their last reset.

The exit status is 1 if the tool found errors. Without a subnet manager, it prints nothing and exits with 0. The line
"port ALL" has sums that may be saturated, and is not read. Source: infiniband-diags, ibqueryerrors(8).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.record import lines_of_record
from preflight.textprep.agreement import counted
from preflight.textprep.lines import Lines

#: Maximum values of the counters in PortCounters (IBA 16.1.3.5); a saturated counter does not show further errors.
FULL = {
    "SymbolErrorCounter": 65535, "LinkErrorRecoveryCounter": 255, "LinkDownedCounter": 255, "PortRcvErrors": 65535,
    "PortRcvRemotePhysicalErrors": 65535, "PortRcvSwitchRelayErrors": 65535, "PortXmitDiscards": 65535,
    "PortXmitConstraintErrors": 255, "PortRcvConstraintErrors": 255, "LocalLinkIntegrityErrors": 15,
    "ExcessiveBufferOverrunErrors": 15, "VL15Dropped": 65535, "PortXmitWait": 4294967295,
}  # fmt: skip

_OF = re.compile(r'Errors for (?:0x([0-9a-fA-F]{1,16}) )?"(.*)"')
_PORT = re.compile(
    r"\s+GUID 0x([0-9a-fA-F]{1,16}) port (ALL|[0-9]{1,3}):"
    r"((?: \[[A-Za-z0-9]+ == [0-9]{1,20}(?: \([^)\n]*\))?\])*)\s*"
)
_VALUE = re.compile(r"\[([A-Za-z0-9]+) == ([0-9]{1,20})")
_SUMMARY = re.compile(r"## Summary: ([0-9]{1,9}) nodes checked, ([0-9]{1,9}) bad nodes found")
_THRESHOLD = re.compile(r"\[([A-Za-z0-9]+) = ([0-9]{1,20})\]")
_FAILURES = re.compile(r"##\s+([0-9]{1,9}) PMA query failures")


@dataclass(frozen=True)
class Errors:
    """The ports' counters that are not 0, or that exceed the site's thresholds."""

    counters: Mapping[tuple[str, int], Mapping[str, int]]  # (GUID of the port, its number) -> counter -> value
    names: Mapping[str, str]  # GUID of the port -> description of its device
    nodes: int  # number of queried devices
    unanswered: int  # number of failed counter queries
    thresholds: Mapping[str, int]  # counter -> maximum value that is not listed (/etc/infiniband-diags)


HINTS = ("Errors for ", "## Summary:")


def begins(lines: Lines, at: int) -> bool:
    """Return whether an ``ibqueryerrors`` report begins at a line."""
    return _OF.fullmatch(lines[at].text) is not None or _SUMMARY.match(lines[at].text) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[Errors]:
    """Read the report, with its summary."""
    counters: dict[tuple[str, int], dict[str, int]] = {}
    names: dict[str, str] = {}
    thresholds: dict[str, int] = {}
    name, nodes, unanswered, end = "", None, 0, at
    for index in range(at, len(lines)):
        line = lines[index].text
        if not line.strip() or line.lstrip().startswith("Link info:"):
            continue
        if match := _OF.fullmatch(line):
            name = match[2]
        elif match := _PORT.fullmatch(line):
            guid = match[1].lower().zfill(16)
            names[guid] = name
            if match[2] != "ALL":
                counters[guid, int(match[2])] = {pair[1]: int(pair[2]) for pair in _VALUE.finditer(match[3])}
        elif match := _SUMMARY.match(line):
            nodes = int(match[1])
        elif match := _FAILURES.match(line):
            unanswered = int(match[1])
        elif line.startswith("## Thresholds:"):
            thresholds = {one[1]: int(one[2]) for one in _THRESHOLD.finditer(line)}
        elif not line.startswith("##"):
            break
        end = index + 1
    gaps = (ParseGap(lines[max(at, end - 1)].number, "it ends without a summary"),) if nodes is None and lines else ()
    return Parsed(Errors(counters, names, nodes or 0, unanswered, thresholds), gaps, end)


def parse(text: str) -> Errors:
    """Read a node's record of one report.

    Raises ValueError for an invalid line, or without the summary, which ends a complete report.
    """
    if not text.strip():
        raise ValueError("it is empty: no subnet manager answered")
    lines = lines_of_record(text)
    parsed = parse_lines(lines, 0)
    odd = next((line.text.strip() for line in lines[parsed.end :] if line.text.strip()), None)
    if odd is not None:
        raise ValueError(f"there is no counter in the line {odd[:120]!r}")
    if parsed.gaps:
        raise ValueError(parsed.gaps[0].what)
    return parsed.value


def by_place(errors: Errors) -> dict[str, Mapping[str, int]]:
    """Return the counters by port, named by device description and number."""
    return {f"{errors.names.get(guid) or guid} port {port}": values for (guid, port), values in errors.counters.items()}


def facts(errors: Errors) -> dict[str, Any]:
    """Return the ports as `preflight read --json` prints them."""
    return {
        "ports": [
            {"name": errors.names.get(guid) or None, "guid": guid, "port": port, "counters": dict(values)}
            for (guid, port), values in errors.counters.items()
        ],
        "nodes": errors.nodes or None, "unanswered": errors.unanswered, "thresholds": dict(errors.thresholds),
    }  # fmt: skip


def summary(errors: Errors) -> str:
    """Return a one-line summary of the ports."""
    on = f" on {counted(errors.nodes, 'node')}" if errors.nodes else ""
    return f"{counted(len(errors.counters), 'port')} with errors{on}"
