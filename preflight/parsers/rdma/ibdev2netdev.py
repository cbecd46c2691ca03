"""``ibdev2netdev`` (mlnx-tools): the interface of each RDMA port."""

from __future__ import annotations

import re

from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.rdma.port_list import PortList, RdmaPort, facts
from preflight.parsers.text_block import block, stops_in
from preflight.textprep.agreement import counted
from preflight.textprep.lines import Lines

__all__ = ["HINTS", "begins", "facts", "parse_lines", "summary"]

HINTS = ("==>",)

_IBDEV = re.compile(
    r"(?:(?:.{0,80}[\s#])?(?P<device>[A-Za-z][\w.-]{0,63})\s+(?:\([Mm][Tt]\d.{0,300}?)?"
    r"|[^(]{0,200}\sfw [\d.]+\s+)"  # or the line has lost its start
    r"port\s+(?P<port>\d{1,3})\s+(?:\(\s*(?P<state>\w+)\s*\)\s+)?==>\s+(?P<netdev>\S{1,64})\s+\((?P<up>\w+)\)"
    r"(?:\s+\S.{0,100})?"
)


_IBDEV_BEGUN = re.compile(r"\s*[A-Za-z]\w{0,40}_?\d{1,3}\s+po?r?t?(?:\s+\d.*)?$")


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``ibdev2netdev`` output begins at a line."""
    return "==>" in lines[at].text and bool(_IBDEV.fullmatch(lines[at].text))


def parse_lines(lines: Lines, at: int) -> Parsed[PortList]:
    """Read the ports and their interfaces."""
    ports, cut = [], list[ParseGap]()
    end, taken = block(lines, at, lambda text: "==>" in text and bool(_IBDEV.fullmatch(text)), blanks=1)
    for line in taken:
        match = _IBDEV.fullmatch(line.text)
        assert match
        if match["device"] is None:
            cut.append(ParseGap(line.number, "the start of the line, which names the device, is missing"))
        # (Up) is the state of the interface; an InfiniBand port may work while its IPoIB interface is down
        ports.append(RdmaPort(
            match["device"], int(match["port"]), line.number, match["state"], netdev=match["netdev"],
            other={"netdev_state": match["up"]},
        ))  # fmt: skip
    if stops_in(lines, end, _IBDEV_BEGUN):
        cut.append(ParseGap(lines[end - 1].number, "the text stops within another port"))
    return Parsed(PortList(tuple(ports)), tuple(cut), end)


def summary(listed: PortList) -> str:
    """Return a one-line summary of the ports, and the interfaces that are down."""
    down = [str(port.netdev) for port in listed.ports if port.other["netdev_state"] == "Down"]
    return f"{counted(len(listed.ports), 'port')}, interface down: {', '.join(down[:8]) if down else 'none'}"
