"""``ibnetdiscover`` output in a pasted text."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from preflight.parsers.infiniband import ibnetdiscover
from preflight.parsers.infiniband.ibnetdiscover import Net
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import is_prompt
from preflight.textprep.agreement import counted
from preflight.textprep.lines import Lines

HINTS = ("vendid=", "Topology file:", "Switch\t", "Ca\t", "Switch ", "Ca ")

_BEGINS = re.compile(
    r'\s*(?:# Topology file: .*|vendid=0x[0-9a-fA-F]{1,8}|(?:Switch|Ca|Rt)\s+\d{1,3}\s+"[SHR]-\w{16}".*)'
)
_LINE = re.compile(
    r'\s*(?:#.*|\w{4,12}=0x[0-9a-fA-F]{1,16}.*|(?:Switch|Ca|Rt)\s+\d{1,3}\s+".*|\[\d{1,3}\].*|DR path .*|)\s*'
)


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``ibnetdiscover`` output begins at a line."""
    return _BEGINS.fullmatch(lines[at].text) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[Net]:
    """Read the devices and links."""
    end = at
    while end < len(lines) and _LINE.fullmatch(lines[end].text) and not is_prompt(lines[end].text):
        end += 1
    text = "\n".join(line.text for line in lines[at:end])
    try:
        return Parsed(ibnetdiscover.parse(text), (), end)
    except ValueError as error:
        return Parsed(Net({}, (), None, {}), (ParseGap(lines[at].number, str(error)[:200]),), end)


def facts(fabric: Net) -> dict[str, Any]:
    """Return the fabric as `preflight read --json` prints it."""
    return {
        "devices": [
            {"guid": item.guid, "kind": item.kind, "name": item.name or None, "lid": item.lid, "ports": item.ports}
            for item in fabric.devices.values()
        ],
        "links": [
            {"ends": [f"{guid}:{port}" for guid, port in link.ends], "speed": link.speed or None, "gbps": link.gbps}
            for link in fabric.links
        ],
    }  # fmt: skip


def summary(fabric: Net) -> str:
    """Return a one-line summary of the fabric."""
    kinds = Counter(item.kind for item in fabric.devices.values())
    shown = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
    return f"{shown or 'no device'}, {counted(len(fabric.links), 'link')}"
