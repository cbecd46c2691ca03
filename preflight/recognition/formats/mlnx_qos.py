"""RoCE QoS of a port: ``mlnx_qos -i DEVICE``."""

from __future__ import annotations

import re
from typing import Any

from preflight.recognition.detector import OutputFormat, ParsedPart, TextGap
from preflight.parsers.text_block import block
from preflight.textprep.lines import Lines


def no_facts() -> dict[str, Any]:
    """Return the facts of a port of which nothing is known."""
    return {
        "trust": None, "pfc": None, "dscp_to_priority": None, "priority_to_tc": None, "buffers": None, "dcbx": None,
    }  # fmt: skip


def summary_of(facts: dict[str, Any]) -> str:
    """Say what a person would read in the facts of a port."""
    pfc = facts["pfc"]
    on = "unknown" if pfc is None else ", ".join(p for p, enabled in pfc.items() if enabled) or "none"
    return f"trust {facts['trust'] or 'unknown'}, PFC on priorities: {on}"


# --- mlnx_qos ----------------------------------------------------------------------------------------

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
#: Where a paste leaves DSCPs out, ``07,…,00``, those that it shows are told.
_PRIO_DSCPS = re.compile(r"prio:(\d)\s+dscp:([\d,.…\s]*)(?=prio:|$)")


def _begins_mlnx(lines: Lines, at: int) -> bool:
    match = _MLNX.fullmatch(lines[at].text)
    if not match:
        return False
    if match["enabled"] or match["tc"] or match["dscps"]:  # the head was cut off
        after = _MLNX.fullmatch(lines[at + 1].text) if at + 1 < len(lines) else None
        return bool(after and (after["buffers"] or after["tc"] or after["of"] or after["dscps"]))
    return bool(match["dcbx"] or match["trust"] or match["mapping"] or match["pfc"])


def _take_mlnx(lines: Lines, at: int) -> ParsedPart:
    facts, cut, tc = no_facts(), list[TextGap](), ""
    facts["tsa"] = {}
    end, taken = block(
        lines, at, lambda text: bool(_MLNX.fullmatch(text)), blanks=1,
        again=lambda text: text.lstrip().startswith("DCBX mode"),
    )  # fmt: skip
    for line in taken:
        match = _MLNX.fullmatch(line.text)
        assert match
        if match["dcbx"]:
            facts["dcbx"] = match["mode"].strip() or None
        elif match["trust"]:
            facts["trust"] = trust if (trust := match["trust"].lower()) in ("dscp", "pcp", "both") else None
        elif match["dscps"] or match["mapping"]:
            for priority, dscps in _PRIO_DSCPS.findall(line.text):
                mapped = facts["dscp_to_priority"] = facts["dscp_to_priority"] or {}
                mapped.update({str(int(number)): int(priority) for number in re.findall(r"\d{1,2}", dscps)})
        elif match["buffer"]:
            sizes = re.findall(r"(?<![=\w])\d+", match["buffer"])
            most = re.search(r"max_buffer_size=(\d+)", match["buffer"])
            facts["buffers"] = {
                "sizes": [int(size) for size in sizes], "max_buffer_size": int(most[1]) if most else None,
            }  # fmt: skip
        elif enabled := match["enabled"] or match["beside"]:
            bits = enabled.split()
            if len(bits) == 8:
                facts["pfc"] = {str(number): bit == "1" for number, bit in enumerate(bits)}
            else:
                cut.append(TextGap(line.number, f"PFC is shown for {len(bits)} of 8 priorities"))
        elif match["buffers"]:
            owners = [int(owner) for owner in match["buffers"].split()]
            facts["buffers"] = {**(facts["buffers"] or {}), "of_priority": owners}
        elif match["tc"]:
            tc = match["tc"]
            facts["tsa"][tc] = match["tsa"]
        elif (owned := match["of"] or match["numbers"]) and tc:
            facts["priority_to_tc"] = {**(facts["priority_to_tc"] or {}), **dict.fromkeys(owned.split(), int(tc))}
    if facts["pfc"] is None and not cut:
        cut.append(TextGap(taken[-1].number, "the PFC configuration is missing"))
    if facts["trust"] is None:
        cut.append(TextGap(taken[-1].number, "the trust state is missing"))
    if facts["tsa"] and (assigned := len(facts["priority_to_tc"] or ())) < 8:
        cut.append(TextGap(taken[-1].number, f"the traffic class is shown for {assigned} of 8 priorities"))
    return ParsedPart(end, facts, summary_of(facts), cut)


KINDS = (OutputFormat("mlnx_qos", _begins_mlnx, _take_mlnx, hints=(":", "enabled")),)
