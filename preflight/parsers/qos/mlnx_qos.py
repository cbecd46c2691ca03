"""``mlnx_qos -i IF``: trust state, DSCP map, PFC, receive buffers, DCBX mode.

The tool is part of mlnx-tools and MLNX_OFED, and needs root. Missing values are None, not zero.
"""

from __future__ import annotations

import re
from functools import lru_cache

from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.qos.port_settings import PRIORITIES, Buffers, DscpMap, PortQos, facts, summary
from preflight.parsers.record import parse_complete
from preflight.parsers.text_block import block
from preflight.textprep.lines import Lines

__all__ = ["HINTS", "begins", "facts", "parse_lines", "parse_record", "summary"]

HINTS = (":", "enabled")

_MLNX = re.compile(
    r"\s*(?:(?P<dcbx>(?i:DCBX mode):\s*(?P<mode>.*))|Priority trust (?:state|mode):\s*(?P<trust>\w+)"
    r"|(?P<mapping>dscp2prio mapping:\s*(?:prio:.*)?)|(?P<dscps>prio:\d\s+dscp:.*)"
    r"|(?P<default>default priority:.*)|Receive buffer size \(bytes\):\s*(?P<buffer>[\d,=\w .…]*)"
    r"|(?P<cable>Cable len:\s*\d*)|Enabled TC:.*|priority:?\s+(?P<numbers>\d(?:\s+\d)+)"
    r"|(?P<pfc>PFC configuration:)(?:\s*enabled:?\s+(?P<beside>[01](?:\s+[01])*))?"
    r"|(?:pfc )?enabled:?\s+(?P<enabled>[01](?:\s+[01])*)"
    r"|buffer:?\s+(?P<buffers>[\d\s]+)"
    r"|tc:\s*(?P<tc>\d)\s+ratelimit:\s*(?P<limit>[^,]*),\s*tsa:\s*(?P<tsa>\w+).*|(?:priority|up):\s*(?P<of>\d)"
    r"|skprio:\s*\d{1,2}\b.*)\s*"
)
#: A priority and its DSCPs. If a paste omits some, as in ``07,…,00``, only the DSCPs shown are used.
_PRIO_DSCPS = re.compile(r"prio:(\d)\s+dscp:([\d,.…\s]*)(?=prio:|$)")


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``mlnx_qos`` output begins at a line."""
    match = _MLNX.fullmatch(lines[at].text)
    if not match:
        return False
    if match["enabled"] or match["tc"] or match["dscps"]:  # the header is missing
        after = _MLNX.fullmatch(lines[at + 1].text) if at + 1 < len(lines) else None
        return bool(after and (after["buffers"] or after["tc"] or after["of"] or after["dscps"]))
    return bool(match["dcbx"] or match["trust"] or match["mapping"] or match["pfc"])


#: The command above the output.
_COMMAND = re.compile(r"\bmlnx_qos\s+-i\s+([\w.@-]{1,32})")


@lru_cache(maxsize=64)  # ports and nodes often have equal settings
def parse_record(text: str) -> PortQos:
    """Read a node's record; raises ValueError if it is incomplete."""
    return parse_complete(text, begins, parse_lines)


def parse_lines(lines: Lines, at: int) -> Parsed[PortQos]:
    """Read a port's settings, starting at a line."""
    cut = list[ParseGap]()
    trust = dcbx = None
    pfc: dict[int, bool] | None = None
    dscps: dict[int, frozenset[int]] = {}
    classes: dict[int, int] = {}
    tsa: dict[str, str] = {}
    buffers = Buffers()
    tc = ""
    end, taken = block(
        lines, at, lambda text: bool(_MLNX.fullmatch(text)), blanks=1,
        again=lambda text: text.lstrip().startswith("DCBX mode"),
    )  # fmt: skip
    has_head = False
    for line in taken:
        match = _MLNX.fullmatch(line.text)
        assert match
        if match["dcbx"]:
            dcbx, has_head = match["mode"].strip() or None, True
        elif match["trust"]:
            trust = word if (word := match["trust"].lower()) in ("dscp", "pcp", "both") else None
        elif match["dscps"] or match["mapping"]:
            for priority, numbers in _PRIO_DSCPS.findall(line.text):
                for number in map(int, re.findall(r"\d{1,2}", numbers)):
                    if number > 63 or int(priority) not in PRIORITIES:
                        cut.append(ParseGap(line.number, f"DSCP {number} of priority {priority} is out of range"))
                    else:
                        dscps[number] = dscps.get(number, frozenset()) | {int(priority)}
        elif match["buffer"]:
            sizes = tuple(map(int, re.findall(r"(?<![=\w])\d{1,12}", match["buffer"])))
            most = re.search(r"max_buffer_size=(\d{1,12})", match["buffer"])
            buffers = Buffers(buffers.of_priority, sizes, int(most[1]) if most else None)
            if len(sizes) != len(PRIORITIES):
                cut.append(ParseGap(line.number, f"the size of {len(sizes)} of 8 buffers is shown"))
        elif enabled := match["enabled"] or match["beside"]:
            bits = enabled.split()
            if len(bits) == len(PRIORITIES):
                pfc = {number: bit == "1" for number, bit in enumerate(bits)}
            else:
                cut.append(ParseGap(line.number, f"PFC is shown for {len(bits)} of 8 priorities"))
        elif match["buffers"]:
            owners = tuple(map(int, match["buffers"].split()))
            buffers = Buffers(owners, buffers.bytes, buffers.most_bytes)
            if len(owners) != len(PRIORITIES) or not set(owners) <= set(PRIORITIES):
                cut.append(ParseGap(line.number, "the row of buffers does not have eight buffer numbers"))
        elif match["numbers"] and not tc:
            if match["numbers"].split() != [str(number) for number in PRIORITIES]:
                cut.append(ParseGap(line.number, "the PFC rows are not those of priorities 0 to 7"))
        elif match["tc"]:
            tc = match["tc"]
            tsa[tc] = match["tsa"]
        elif (owned := match["of"] or match["numbers"]) and tc:
            classes |= dict.fromkeys(map(int, owned.split()), int(tc))
    last = taken[-1].number
    if pfc is None and not cut:
        cut.append(ParseGap(last, "the PFC configuration is missing"))
    if trust is None and not has_head:  # old versions print the DCBX mode, but no trust state
        cut.append(ParseGap(last, "the trust state is missing"))
    if tsa and len(classes) < len(PRIORITIES):
        cut.append(ParseGap(last, f"the traffic class is shown for {len(classes)} of 8 priorities"))
    command = _COMMAND.search(lines[at - 1].text) if at else None
    return Parsed(PortQos(
        taken[0].number, command[1] if command else "", trust, pfc, DscpMap(dscps) if dscps else None, classes or None,
        buffers if buffers != Buffers() else None, dcbx, tsa,
    ), tuple(cut), end)  # fmt: skip
