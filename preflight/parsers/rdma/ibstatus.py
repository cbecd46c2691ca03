"""``ibstatus`` (infiniband-diags): a block for each port."""

from __future__ import annotations

import re

from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.rdma.port_list import PortList, PortListBuilder, RdmaPort, facts, summary, word
from preflight.parsers.rdma.port_values import rate
from preflight.parsers.text_block import block, field, number, queried_device, stops_in, value_or_none
from preflight.textprep.lines import Lines

__all__ = ["HINTS", "begins", "facts", "parse_lines", "summary"]

HINTS = (":",)

_IBSTATUS = re.compile(r"\s*Infiniband device '([^']{1,64})' port (\d{1,3}) status:(?:\s.*)?", re.IGNORECASE)
_IBSTATUS_BEGUN = re.compile(r"\s*Infiniband\b", re.IGNORECASE)
_IBSTATUS_FIELDS = frozenset(
    ("default gid", "base lid", "sm lid", "state", "phys state", "physical state", "rate", "link_layer")
)


#: Lines of a port; two identify the output if the header is missing.
_IBSTATUS_OWN = re.compile(
    r"\s*(?:default gid:\s+[0-9a-fA-F:]{6,}|(?:base|sm) lid:\s+0x[0-9a-f]+|(?:phys )?state:\s+\d: \w+"
    r"|rate:\s+\d+ Gb/sec .*|link_layer:\s+\w+)\s*"
)


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``ibstatus`` output begins at a line."""
    if _IBSTATUS.fullmatch(lines[at].text):
        return True
    return len(lines) > at + 1 and all(_IBSTATUS_OWN.fullmatch(line.text) for line in lines[at : at + 2])


def parse_lines(lines: Lines, at: int) -> Parsed[PortList]:
    """Read the ports."""
    listing, cut = PortListBuilder(_IBSTATUS_FIELDS), list[ParseGap]()
    if not _IBSTATUS.fullmatch(lines[at].text):
        cut.append(ParseGap(lines[at].number, "the line that names the device is missing"))

    def belongs(text: str) -> bool:
        result = field(text)
        return bool(_IBSTATUS.fullmatch(text) or (result and result[0] in _IBSTATUS_FIELDS))

    end, taken = block(lines, at, belongs)
    for line in taken:
        if match := _IBSTATUS.fullmatch(line.text):
            listing.begin_device(match[1])
            listing.begin_port(int(match[2]), line.number)
        elif result := field(line.text):
            listing.add(result[0], result[1], line.number)
    if stops_in(lines, end, _IBSTATUS_BEGUN):
        cut.append(ParseGap(taken[-1].number, "the text ends at the start of another device"))
    listing.name_alone(queried_device(lines, at, "ibstatus"))
    ports = []
    for port in listing.ports:
        fields = port.fields
        physical = fields.get("phys state") or fields.get("physical state")
        gid = value_or_none(fields.get("default gid"))
        ports.append(RdmaPort(
            port.device, port.number, port.line, word(_word(fields.get("state"))), word(_word(physical)),
            rate(fields.get("rate")), word(fields.get("link_layer")), number(fields.get("base lid")),
            number(fields.get("sm lid")), rate=fields.get("rate", ""),
            other={"gid": gid if gid and gid.count(":") == 7 else None},
        ))  # fmt: skip
        required = {"state": fields.get("state"), "phys state": physical, "rate": fields.get("rate")}
        if missing := [name for name, value in required.items() if not value]:
            cut.append(ParseGap(taken[-1].number, f"{port.shown} lacks {', '.join(missing)}"))
    return Parsed(PortList(tuple(ports)), tuple(cut), end)


def _word(text: str | None) -> str | None:
    """Return the word of ``4: ACTIVE``; None if there is only a number."""
    return text.partition(":")[2].strip() or text if text and not text.isdigit() else None
