"""``iblinkinfo``: the state of every port of a subnet, including unused ones.

With ``-l``, each line names its device; otherwise, a heading does. Source: infiniband-diags, iblinkinfo(8).
"""

from __future__ import annotations

import re
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.record import lines_of_record
from preflight.textprep.agreement import counted
from preflight.textprep.lines import Lines

_LINE = re.compile(
    r'(?:0x([0-9a-fA-F]{1,16})\s+)?(?:"([^\n]*?)"\s+)?([0-9]{1,5})\s+([0-9]{1,3})\[[^\]\n]{0,8}\]\s+==\(([^\n]*?)\)==>([^\n]*)'
)
_HEAD = re.compile(r"(?:CA|RT|Switch): (?:0x([0-9a-fA-F]{1,16}) )?(.*):")
_OF_AN_HCA = "CA: "
_STATE = re.compile(r"([A-Za-z-]+)/\s*([A-Za-z-]+(?: [A-Za-z-]+)?)\s*$")
_SPEED = re.compile(r"([0-9]{1,2})X\s+([0-9]{1,4}(?:\.[0-9]{1,6})?) Gbps")
_COULD = re.compile(r"Could be ((?:[0-9]{1,4}(?:\.[0-9]{1,6})? Gbps)|(?:[0-9]{1,2}X)|(?:FDR10))")

_PEER = re.compile(r'"([^"\n]{0,200})"')

#: Maximum number of characters in a line; two descriptions of 64 bytes (IBA), GUIDs and a remark have less than 300.
LONGEST_LINE = 1000


@dataclass(frozen=True)
class PortState:
    """The state of one port of a switch or an HCA."""

    guid: str  # GUID of the switch; for an HCA, of the port, which may differ from the node GUID
    name: str
    number: int
    state: str  # Active, Down, Initialize, Armed
    physical: str  # LinkUp, Polling, Disabled, …
    lane_gbps: float | None  # signalling rate of a lane in Gb/s, such as 53.125 for HDR; None while down
    width: int | None  # number of lanes
    could_be: tuple[str, ...]  # higher widths and speeds that both ends support, such as "100.0 Gbps"
    peer: str = ""  # description of the other end
    is_hca: bool = False  # as the heading shows


HINTS = ("==(", "Switch: ", "CA: ")


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``iblinkinfo`` output begins at a line."""
    text = lines[at].text.strip()
    if len(text) > LONGEST_LINE or "==(" not in text:
        after = lines[at + 1].text.strip() if at + 1 < len(lines) else ""
        return bool(_HEAD.fullmatch(text) and len(after) <= LONGEST_LINE and _LINE.fullmatch(after))
    return _LINE.fullmatch(text) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[tuple[PortState, ...]]:
    """Read the ports, up to the first other line."""
    result: list[PortState] = []
    above, name, hca, end = "", "", False, at
    gaps = []
    for index in range(at, len(lines)):
        text = lines[index].text.strip()
        if not text:
            continue
        if head := _HEAD.fullmatch(text):
            above, name, hca = head[1] or "", head[2], text.startswith(_OF_AN_HCA)
        elif (port := _port(text, above, name, hca)) is not None:
            result.append(port)
            if not port.guid:
                gaps.append(ParseGap(lines[index].number, "the line that names the switch is missing"))
        else:
            break
        end = index + 1
    return Parsed(tuple(result), tuple(gaps[:1]), end)


def _port(text: str, above: str, name: str, hca: bool) -> PortState | None:
    match = _LINE.fullmatch(text) if len(text) <= LONGEST_LINE else None
    state = _STATE.search(match[5]) if match else None
    if not match or not state:
        return None
    guid = match[1] or above
    speed = _SPEED.search(match[5]) if state[1] != "Down" else None
    return PortState(
        guid.lower().zfill(16) if guid else "", (match[2] or name).strip(), int(match[4]), state[1], state[2],
        float(speed[2]) if speed else None, int(speed[1]) if speed else None, tuple(_COULD.findall(match[6])),
        peer=peer[1].strip() if (peer := _PEER.search(match[6])) else "", is_hca=hca,
    )  # fmt: skip


def parse(text: str) -> tuple[PortState, ...]:
    """Read a node's record of all ports.

    Raises ValueError if a line is invalid, quoting the first one, or if there is no port.
    """
    lines = lines_of_record(text)
    parsed = parse_lines(lines, 0)
    for line in lines[parsed.end :]:
        if line.text.strip():
            raise ValueError(f"there is no port in the line {line.text.strip()[:120]!r}")
    if parsed.gaps:
        raise ValueError(f"there is no port in the line {lines[parsed.gaps[0].line - 1].text.strip()[:120]!r}")
    if not parsed.value:
        raise ValueError("it contains no port")
    return parsed.value


def facts(ports: tuple[PortState, ...]) -> dict[str, Any]:
    """Return the ports as `preflight read --json` prints them."""
    return {
        "links": [
            {"guid": port.guid or None, "name": port.name, "port": port.number, "state": port.state,
             "physical_state": port.physical, "width": port.width, "lane_gbps": port.lane_gbps,
             "could_be": list(port.could_be), "peer": port.peer or None}
            for port in ports
        ]
    }  # fmt: skip


def summary(ports: tuple[PortState, ...]) -> str:
    """Return a one-line summary of the ports."""
    up = sum(port.state == "Active" for port in ports)
    return f"{counted(len(ports), 'port')}, {up} active"
