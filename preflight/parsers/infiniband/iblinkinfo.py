"""``iblinkinfo``: the state of every port of a subnet, also of those with nothing at the other end.

Source: infiniband-diags, iblinkinfo(8). With ``-l`` a line says whose port it is; without, a line above does.
"""

from __future__ import annotations

import re

from preflight._startup.lightclass import dataclass
from preflight.textprep.plain_text import normalize_text

_LINE = re.compile(
    r'(?:0x([0-9a-fA-F]{1,16})\s+)?(?:"([^\n]*?)"\s+)?([0-9]{1,5})\s+([0-9]{1,3})\[[^\]\n]{0,8}\]\s+==\(([^\n]*?)\)==>([^\n]*)'
)
_HEAD = re.compile(r"(?:CA|RT|Switch): (?:0x([0-9a-fA-F]{1,16}) )?(.*):")
_STATE = re.compile(r"([A-Za-z-]+)/\s*([A-Za-z-]+(?: [A-Za-z-]+)?)\s*$")
_SPEED = re.compile(r"([0-9]{1,2})X\s+([0-9]{1,4}(?:\.[0-9]{1,6})?) Gbps")
_COULD = re.compile(r"Could be ((?:[0-9]{1,4}(?:\.[0-9]{1,6})? Gbps)|(?:[0-9]{1,2}X)|(?:FDR10))")

#: Characters of a line: two descriptions of 64 bytes (IBA), GUIDs and a remark take less than 300.
LONGEST_LINE = 1000


@dataclass(frozen=True)
class PortState:
    """One port of a switch or an HCA."""

    guid: str  # of the switch; of an HCA's port, which need not be the node's
    name: str
    number: int
    state: str  # Active, Down, Initialize, Armed
    physical: str  # LinkUp, Polling, Disabled, …
    lane_gbps: float | None  # signalling rate of a lane, Gb/s: 53.125 for HDR; None while down
    width: int | None  # lanes
    could_be: tuple[str, ...]  # better widths and speeds that both ends support: "100.0 Gbps"


def parse(text: str) -> tuple[PortState, ...]:
    """Read the lines of all ports; raises ValueError with the offending line, or if there is none."""
    found = []
    above, name = "", ""
    for line in normalize_text(text).split("\n"):
        if not line.strip():
            continue
        if head := _HEAD.fullmatch(line.strip()):
            above, name = head[1] or "", head[2]
            continue
        match = _LINE.fullmatch(line.strip()) if len(line) <= LONGEST_LINE else None
        state = _STATE.search(match[5]) if match else None
        guid = (match[1] or above) if match else ""
        if not match or not state or not guid:
            raise ValueError(f"there is no port in the line {line.strip()[:120]!r}")
        speed = _SPEED.search(match[5]) if state[1] != "Down" else None
        found.append(
            PortState(
                guid.lower().zfill(16), (match[2] or name).strip(), int(match[4]), state[1], state[2],
                float(speed[2]) if speed else None, int(speed[1]) if speed else None,
                tuple(_COULD.findall(match[6])),
            )
        )  # fmt: skip
    if not found:
        raise ValueError("there is no port in it")
    return tuple(found)
