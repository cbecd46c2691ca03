"""``perfquery`` (infiniband-diags): the counters of one InfiniBand port."""

from __future__ import annotations

import re
from typing import Any

from preflight._startup.lightclass import replace
from preflight.parsers import counter_list
from preflight.parsers.counter_list import WORDS, CounterList, summary
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import block, number, stops_in
from preflight.textprep.lines import Lines

__all__ = ["HINTS", "begins", "facts", "parse_lines", "summary"]

HINTS = (":",)

#: Fields of perfquery that are not counters.
_NO_COUNTER = frozenset(("PortSelect", "CounterSelect", "CounterSelect2"))

_PERF_HEAD = re.compile(
    r"\s*(?:/\*)?\s*#\s*Port (extended )?(?:counters|performance counters).*?:\s*"
    r"(?:Lid (\d{1,5})|DR path [\d ;,a-z]{1,200}?) port (\d{1,3})\b.*",
    re.IGNORECASE,
)
#: The end of the header, if an email wrapped it.
_PERF_HEAD_END = re.compile(
    r"\s*(?:\(?CapMask\d?:\s*)?(?:0x[0-9a-fA-F]{4,8}\s*)?(?:CapMask2:\s*0x[0-9a-fA-F]{4,8})?\)\s*"
)
_PERF_ROW = re.compile(r"\s*([A-Z][A-Za-z0-9]{2,60}):(?:[.…]*|\s+(?=\d+\s*$))(\S.*)?")


#: Names that only perfquery prints in this form; two of them identify its output if the header is missing.
_PERF_OWN = re.compile(
    r"\s*(?:(?:SymbolError|LinkErrorRecovery|LinkDowned)Counter|Port(?:Unicast|Multicast)?(?:Rcv|Xmit)[A-Za-z]{3,40}"
    r"|LocalLinkIntegrityErrors|ExcessiveBufferOverrunErrors|VL15Dropped|QP1Dropped|CounterSelect2?|LinkDowned|SymbolErrors|LinkRecovers|(?:Xmt|Xmit|Rcv)(?:Data|Pkts|Discards))"
    r":(?:\.{2,}.*|\s+\d{1,20}\s*)"
)


_PERF_BEGUN = re.compile(r"\s*(?:Po|Ex|Lo|VL|QP|Co|Li|Sy|Xm|Rc)\w*:?\.*\s*$")


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``perfquery`` output begins at a line."""
    text = lines[at].text
    if _PERF_HEAD.fullmatch(text) or (text.lstrip().startswith("PortSelect:") and ".." in text):
        return True
    return ":" in text and at + 1 < len(lines) and all(_PERF_OWN.fullmatch(line.text) for line in lines[at : at + 2])


def parse_lines(lines: Lines, at: int) -> Parsed[CounterList]:
    """Read the counters of one port, with data in bytes."""
    counters: dict[str, int] = {}
    result = CounterList(counters)
    cut = list[ParseGap]()
    if match := _PERF_HEAD.fullmatch(lines[at].text):
        result = replace(result, lid=number(match[2]), port=int(match[3]), extended=bool(match[1]))
    elif _PERF_OWN.fullmatch(lines[at].text):
        cut.append(
            ParseGap(
                lines[at].number, "the head of the list is missing: preceding counters may be missing", beside=True
            )
        )

    def belongs(text: str) -> bool:
        if text is lines[at].text or _PERF_HEAD_END.fullmatch(text):
            return True
        return bool(_PERF_OWN.fullmatch(text) or (_PERF_ROW.fullmatch(text) and (".." in text or "…" in text)))

    end, taken = block(lines, at, belongs, blanks=0)
    for line in taken:
        if (match := _PERF_ROW.fullmatch(line.text)) and match[1] not in _NO_COUNTER:
            if (value := number(match[2])) is None and not (match[2] or "").startswith("N/A"):
                cut.append(ParseGap(line.number, f"{match[1]} has no value"))
            elif value is not None:
                counters[match[1]] = value * 4 if match[1] in WORDS else value
    if not counters:
        cut.append(ParseGap(taken[-1].number, "no counter follows"))
    if stops_in(lines, end, _PERF_BEGUN):
        cut.append(ParseGap(taken[-1].number, "the text stops within a counter"))
    return Parsed(result, tuple(cut), end)


def facts(listed: CounterList) -> dict[str, Any]:
    """Return the counters and the port as `preflight read --json` prints them."""
    return {"lid": listed.lid, "port": listed.port, "extended": listed.extended, **counter_list.facts(listed)}
