"""``ethtool DEVICE``: an interface's speed, link modes and link state."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import fields_from, queried_device, switch
from preflight.textprep.lines import Lines

HINTS = ("Settings for ", "Speed:")


@dataclass(frozen=True)
class EthernetLink:
    """The link of an interface; a value that the text lacks is None."""

    interface: str | None
    line: int
    speed_gbps: float | None
    duplex: str | None
    link: bool | None
    link_text: str | None  # as printed: "no (No cable)"
    autonegotiation: bool | None
    fastest_gbps: float | None  # fastest supported mode
    fields: Mapping[str, str]


_LINK_HEAD = re.compile(r"\s*Settings for ([\w.@-]{1,64}):\s*")
#: Messages that ethtool prints between the fields if it lacks permission.
_REFUSED = re.compile(r"(?:Cannot get [\w -]{2,60}|netlink error): .{0,80}")
_SPEED = re.compile(r"(\d{1,7})Mb/s")


#: Fields that may start the output if a search or a paste removed its first line.
_SPEED_LINE = re.compile(r"\s*Speed:\s+(?:\d{1,7}Mb/s|Unknown!.{0,20})\s*")
_DUPLEX_LINE = re.compile(r"\s*(?:Duplex:\s+\w{2,8}!?.{0,10}|Link detected:\s+\w{2,3}.{0,40})")


#: A line of the output whose indentation is lost: fields, modes, or enabled messages.
_LINK_FIELD = re.compile(
    r"\s*(?:(?:(?:Supported|Supports|Advertised|Link partner advertised) [\w -]{4,30}|Speed|Lanes|Duplex|Port|PHYAD"
    r"|Transceiver|Auto-negotiation|MDI-X|Wake-on|SecureOn password|Current message level|Link detected"
    r"|master-slave (?:cfg|status)|Active FEC encodings?|SQI):.*"
    r"|\d{2,7}base\S{1,16}(?:\s+\d{2,7}base\S{1,16})*"
    r"|(?:drv|probe|link|timer|ifdown|ifup|[rt]x_err|tx_queued|intr|tx_done|rx_status|pktdata|hw|wol|\s){3,200})"
)
#: The last field, which may follow a blank line.
_LAST = re.compile(r"\n\s*Link detected:\s+(\w{2,3})$")


def _has_lanes(lines: Lines, at: int) -> bool:
    return at + 1 < len(lines) and lines[at + 1].text.lstrip().startswith("Lanes:")


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``ethtool DEVICE`` output begins at a line."""
    if _LINK_HEAD.fullmatch(lines[at].text):
        return True
    return bool(
        _SPEED_LINE.fullmatch(lines[at].text)
        and any(_DUPLEX_LINE.fullmatch(line.text) for line in lines[at + 1 : at + 2 + _has_lanes(lines, at)])
    )


#: A mode that begins with its speed in Mb/s: ``200000baseCR4/Full``.
_MODE = re.compile(r"(\d{2,7})base\S")


def _fastest(lines: Lines, at: int, end: int) -> float | None:
    """Return the speed of the fastest supported mode in Gb/s; None if not shown."""
    speeds: list[int] = []
    inside = False
    for line in lines[at:end]:
        if ":" in line.text:
            inside = "Supported link modes" in line.text
        if inside:
            speeds += map(int, _MODE.findall(line.text))
    return max(speeds) / 1000 if speeds else None


def parse_lines(lines: Lines, at: int) -> Parsed[EthernetLink]:
    """Read the fields starting at a line."""
    head = _LINK_HEAD.fullmatch(lines[at].text)
    flat = not head or not any(line.text[:1] in " \t" for line in lines[at + 1 : at + 3])  # a page removed the spaces

    # modes continue on indented lines without a name
    def belongs(text: str) -> bool:
        if text is lines[at].text or _REFUSED.fullmatch(text):
            return True
        return bool(_LINK_FIELD.fullmatch(text)) if flat else text[:1] in " \t"

    end, fields = fields_from(lines, at, belongs)
    if "Link detected" not in fields and (match := _LAST.match("\n".join(line.text for line in lines[end : end + 2]))):
        fields["Link detected"], end = match[1], end + 2
    speed = _SPEED.match(fields.get("Speed", ""))
    detected = fields.get("Link detected")
    cut = [] if detected is not None else [ParseGap(lines[end - 1].number, "Link detected is missing")]
    interface = head[1] if head else queried_device(lines, at, "ethtool")
    if interface is None:
        cut.append(ParseGap(lines[at].number, "the header of the list is missing"))
    link = EthernetLink(
        interface, lines[at].number, int(speed[1]) / 1000 if speed else None, fields.get("Duplex"),
        None if detected is None else detected.startswith("yes"), detected, switch(fields.get("Auto-negotiation")),
        _fastest(lines, at, end), fields,
    )  # fmt: skip
    return Parsed(link, tuple(cut), end)


def facts(link: EthernetLink) -> dict[str, Any]:
    """Return the link as `preflight read --json` prints it."""
    return {
        "interface": link.interface, "speed_gbps": link.speed_gbps, "duplex": link.duplex, "link_detected": link.link,
        "autonegotiation": link.autonegotiation, "fields": {k: v for k, v in link.fields.items() if k and v},
    }  # fmt: skip


def summary(link: EthernetLink) -> str:
    """Return a one-line summary of the link."""
    return f"{link.interface or 'a port'}: speed {link.fields.get('Speed')}, link {link.link_text}"
