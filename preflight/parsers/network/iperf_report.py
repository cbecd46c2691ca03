"""``iperf3``: the rates and TCP retransmissions of a test.

Source: iperf3(1).
"""

from __future__ import annotations

import re
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import is_prompt
from preflight.textprep.lines import Lines

HINTS = ("Connecting to host", "iperf3: ", "Bitrate", "Bandwidth")

_HEAD = re.compile(
    r"Connecting to host (\S{1,100}), port \d{1,5}|\[ ?ID\] Interval\s+Transfer\s+(?:Bitrate|Bandwidth).*"
)
_ERROR = re.compile(r"iperf3?: (?:error|interrupt) - (.{1,300})")
_LINE = re.compile(
    r"\[ {0,3}(?:\d{1,4}|SUM|ID)\].*|[- ]{10,200}|iperf Done\."
    r"|Test Complete.*|iperf3?: .*|Server listening.*|Accepted.*|Cookie.*|\s*"
)
_SUM = re.compile(
    r"\[ {0,3}(\d{1,4}|SUM)\](?:\[[TR]X-\w\])?\s+[\d.]{1,9}-[\d.]{1,9}\s+sec\s+\S{1,12} \w?Bytes\s+"
    r"(\d{1,6}(?:\.\d{1,3})?) ([KMGT]?)bits/sec(?:\s+(\d{1,9}))?\s+(sender|receiver)\s*"
)
_SCALE = {"": 1e-9, "K": 1e-6, "M": 1e-3, "G": 1.0, "T": 1e3}


@dataclass(frozen=True)
class IperfReport:
    """One iperf3 test; a value that the text lacks is None."""

    peer: str | None
    sent_gbps: float | None
    received_gbps: float | None
    retransmitted: int | None
    error: str  # empty if none was printed
    line: int


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``iperf3`` output begins at a line."""
    return _HEAD.fullmatch(lines[at].text) is not None or _ERROR.fullmatch(lines[at].text) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[IperfReport]:
    """Read the report that begins at a line."""
    peer = match[1] if (match := _HEAD.fullmatch(lines[at].text)) else None
    rates: dict[tuple[str, str], tuple[float, int | None]] = {}
    error, end, last = "", at, at
    while end < len(lines) and not is_prompt(lines[end].text):
        text = lines[end].text
        if end > at and text.startswith("Connecting to host"):
            break
        if not (_LINE.fullmatch(text) or _HEAD.fullmatch(text)):
            break
        if match := _ERROR.fullmatch(text):
            error = match[1]
        if match := _SUM.fullmatch(text):
            again = int(match[4]) if match[4] else None
            rates[match[5], match[1]] = (float(match[2]) * _SCALE[match[3]], again)
        last = end if text.strip() else last
        end += 1
    sent, received = _total(rates, "sender"), _total(rates, "receiver")
    gaps = () if error or received[0] is not None else (ParseGap(lines[last].number, "the receiver's sum is missing"),)
    value = IperfReport(peer, sent[0], received[0], sent[1], error, lines[at].number)
    return Parsed(value, gaps, last + 1)


def _total(rates: dict[tuple[str, str], tuple[float, int | None]], side: str) -> tuple[float | None, int | None]:
    """Return the rate and retransmissions of a side, over all of its streams.

    The printed sum is used; if it is missing, the streams are added up. Values that the text lacks are None.
    """
    if (side, "SUM") in rates:
        return rates[side, "SUM"]
    own = [value for (name, _), value in rates.items() if name == side]
    again = [number for _, number in own if number is not None]
    return (sum(rate for rate, _ in own), sum(again) if again else None) if own else (None, None)


def facts(report: IperfReport) -> dict[str, Any]:
    """Return the test as `preflight read --json` prints it."""
    return {"peer": report.peer, "sent_gbps": report.sent_gbps, "received_gbps": report.received_gbps,
            "retransmitted": report.retransmitted, "error": report.error or None}  # fmt: skip


def summary(report: IperfReport) -> str:
    """Return a one-line summary of the test."""
    if report.error:
        return f"iperf3: {report.error}"
    return "iperf3" if report.received_gbps is None else f"iperf3: {report.received_gbps:.4g} Gb/s received"
