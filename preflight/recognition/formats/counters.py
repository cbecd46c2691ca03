"""Counters: ``perfquery`` and ``ethtool -S``.

Data counters of InfiniBand count words of four bytes; the facts are in bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from preflight.recognition.detector import OutputFormat, ParsedPart, TextGap
from preflight.parsers.text_block import block, broken_off, number, stops_in
from preflight.textprep.lines import Lines

#: Counted in words of four bytes (InfiniBand specification, PortCounters), by perfquery's names and sysfs's.
WORDS = frozenset(
    ("PortXmitData", "PortRcvData", "XmtData", "RcvData", "XmitData", "port_xmit_data", "port_rcv_data",
     "PortUnicastXmitData")
)  # fmt: skip

#: What perfquery prints besides counters.
_NO_COUNTER = frozenset(("PortSelect", "CounterSelect", "CounterSelect2"))

_PERF_HEAD = re.compile(
    r"\s*(?:/\*)?\s*#\s*Port (extended )?(?:counters|performance counters).*?:\s*"
    r"(?:Lid (\d{1,5})|DR path [\d ;,a-z]{1,200}?) port (\d{1,3})\b.*",
    re.IGNORECASE,
)
#: The end of the head, where a mail broke it.
_PERF_HEAD_END = re.compile(
    r"\s*(?:\(?CapMask\d?:\s*)?(?:0x[0-9a-fA-F]{4,8}\s*)?(?:CapMask2:\s*0x[0-9a-fA-F]{4,8})?\)\s*"
)
_PERF_ROW = re.compile(r"\s*([A-Z][A-Za-z0-9]{2,60}):(?:[.…]*|\s+(?=\d+\s*$))(\S.*)?")


#: Names that only perfquery prints this way, two of which tell it where the head is cut off.
_PERF_OWN = re.compile(
    r"\s*(?:(?:SymbolError|LinkErrorRecovery|LinkDowned)Counter|Port(?:Unicast|Multicast)?(?:Rcv|Xmit)[A-Za-z]{3,40}"
    r"|LocalLinkIntegrityErrors|ExcessiveBufferOverrunErrors|VL15Dropped|QP1Dropped|CounterSelect2?|LinkDowned|SymbolErrors|LinkRecovers|(?:Xmt|Xmit|Rcv)(?:Data|Pkts|Discards))"
    r":(?:\.{2,}.*|\s+\d{1,20}\s*)"
)


_PERF_BEGUN = re.compile(r"\s*(?:Po|Ex|Lo|VL|QP|Co|Li|Sy|Xm|Rc)\w*:?\.*\s*$")


def _begins_perf(lines: Lines, at: int) -> bool:
    text = lines[at].text
    if _PERF_HEAD.fullmatch(text) or (text.lstrip().startswith("PortSelect:") and ".." in text):
        return True
    return ":" in text and at + 1 < len(lines) and all(_PERF_OWN.fullmatch(line.text) for line in lines[at : at + 2])


def _take_perf(lines: Lines, at: int) -> ParsedPart:
    facts: dict[str, Any] = {"lid": None, "port": None, "extended": None, "counters": {}}
    cut = list[TextGap]()
    if match := _PERF_HEAD.fullmatch(lines[at].text):
        facts.update(lid=number(match[2]), port=int(match[3]), extended=bool(match[1]))
    elif _PERF_OWN.fullmatch(lines[at].text):
        cut.append(TextGap(lines[at].number, "the head of the list is missing: others may have stood before"))

    def belongs(text: str) -> bool:
        if text is lines[at].text or _PERF_HEAD_END.fullmatch(text):
            return True
        return bool(_PERF_OWN.fullmatch(text) or (_PERF_ROW.fullmatch(text) and (".." in text or "…" in text)))

    end, taken = block(lines, at, belongs, blanks=0)
    for line in taken:
        if (match := _PERF_ROW.fullmatch(line.text)) and match[1] not in _NO_COUNTER:
            if (value := number(match[2])) is None and not (match[2] or "").startswith("N/A"):
                cut.append(TextGap(line.number, f"{match[1]} has no value"))
            elif value is not None:
                facts["counters"][match[1]] = value * 4 if match[1] in WORDS else value
    if not facts["counters"]:
        cut.append(TextGap(taken[-1].number, "no counter follows"))
    if stops_in(lines, end, _PERF_BEGUN):
        cut.append(TextGap(taken[-1].number, "the text stops within a counter"))
    return ParsedPart(end, facts, summary(facts["counters"], f"LID {facts['lid']} port {facts['port']}"), cut)


#: A remark behind a counter.
_REMARK = r"(?:\s{2,}\([^()]{1,80}\))?\s*"
_NIC_STATISTICS = re.compile(r"\s*(?:(?:NIC|PHY) statistics|Standard stats for [\w.@-]{1,64}):\s*")
_STATISTIC = re.compile(r"\s*([A-Za-z\[][\w .,:+/()\[\]-]{0,80}?)\s*:\s*(-?\d{1,30}|\d{1,3}(?:,\d{3}){1,8})" + _REMARK)


#: Names by which a list is known whose head was cut off, as by `| grep pause`: a direction is in them. ``rx-usecs``
#: and ``rx-frames`` are settings of ``ethtool -c``.
_NIC_NAME = re.compile(
    r"\s*(?:(?:[\w.\[\]-]{1,20}(?:[._\]-]|: ?))?(?:rx|tx)\d{0,4}(?!-usecs|-frames?\b"
    r"|_(?:read|write|atomic)_requests|_icrc_|_dct_)"
    r"(?:[._-]|: ?)[\w.-]{2,60}"
    r"|[a-z]\w{2,60}_(?:phy|allowance_exceeded)"  # or mlx5's of the wire, and those of Amazon's limits
    r"):\s*\d{1,30}" + _REMARK
)
_SNAKE = re.compile(r"\s*[a-z][a-z0-9]*_[\w.-]{1,60}:\s*\d{1,30}" + _REMARK)
#: An explanation beside a counter that goes on below, far to the right.
_EXPLAINED = re.compile(r"\s{20,}[^\s:][^:]{0,120}")
#: Lines of a text between a command and what it shows.
_NEAR = 8
#: A command that tells what follows it, be it a single line.
_NIC_COMMAND = re.compile(r"\bethtool[ _](?:-S|--statistics)[ _].*")


def _begins_ethtool(lines: Lines, at: int) -> bool:
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


def _take_ethtool(lines: Lines, at: int) -> ParsedPart:
    end, taken = block(
        lines, at, lambda text: bool(_STATISTIC.fullmatch(text) or _EXPLAINED.fullmatch(text)), blanks=0,
        again=lambda text: bool(_NIC_STATISTICS.fullmatch(text)),
    )  # fmt: skip
    found = [match for line in taken if (match := _STATISTIC.fullmatch(line.text))]
    counters = {match[1].strip(): int(match[2].replace(",", "")) for match in found}
    cut = [] if counters else [TextGap(taken[-1].number, "no counter follows")]
    if not _NIC_STATISTICS.fullmatch(lines[at].text):
        cut.append(TextGap(lines[at].number, "the head of the list is missing: others may have stood before"))
    if broken_off(lines, end):
        cut.append(TextGap(lines[end].number, "the text stops within a counter"))
    return ParsedPart(end, {"counters": counters}, summary(counters, ""), cut)


def summary(counters: Mapping[str, int], where: str) -> str:
    """Say in a line how many counters there are, and of which port."""
    return f"{len(counters)} counters, {sum(map(bool, counters.values()))} of them not 0{' of ' * bool(where)}{where}"


KINDS = (
    OutputFormat("perfquery", _begins_perf, _take_perf, hints=(":",)),
    OutputFormat("ethtool -S", _begins_ethtool, _take_ethtool, hints=(":",)),
)
