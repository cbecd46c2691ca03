"""``mlxlink``: a port's state, speed, FEC, bit error ratios and advice."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.network.ethtool_module import LinkQuality, parse_mlxlink
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import is_prompt, queried_device
from preflight.textprep.lines import Lines

HINTS = ("Operational Info", "Troubleshooting Info", "Physical Counters and BER Info")

_HEAD = re.compile(
    r"\s*(Operational Info|Supported Info|Troubleshooting Info|Tool Information|Module Info|EYE Opening Info.{0,40}"
    r"|(?:Physical )?Counters and BER Info|Physical Counters and BER Info|FEC .{0,40}Info|Serdes .{0,60}Info.{0,40}"
    r"|Show .{0,60})\s*"
)
_RULE = re.compile(r"\s*-{4,}\s*")
_FIELD = re.compile(r"\s*(\S[^:\n]{0,60}?)\s{0,60}: ?(.{0,400})")
#: Maximum number of blank lines between sections.
_MOST_BLANKS = 2


@dataclass(frozen=True)
class PortLink:
    """One port; a value that the text lacks is None."""

    device: str | None  # from the command above the output
    state: str | None  # Active, Polling, Disable
    physical_state: str | None
    speed: str | None  # IB-NDR, 400G
    width: str | None
    fec: str | None
    opcode: int | None  # 0 if no issue was observed
    advice: str | None
    link_downs: int | None
    quality: LinkQuality | None
    fields: Mapping[str, str]


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``mlxlink`` output begins at a line."""
    if lines[at].text.strip() not in HINTS or at + 2 >= len(lines):
        return False
    first = at + 2 if _RULE.fullmatch(lines[at + 1].text) else at + 1
    return _FIELD.fullmatch(lines[first].text) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[PortLink]:
    """Read the sections starting at a line."""
    fields: dict[str, str] = {}
    end, last, blanks = at, at, 0
    while end < len(lines) and blanks <= _MOST_BLANKS:
        text = lines[end].text
        if end > at and (is_prompt(text) or text.strip() == "Operational Info"):
            break
        if not text.strip():
            blanks += 1
        elif match := _FIELD.fullmatch(text):
            fields.setdefault(match[1].strip(), match[2].strip())
            last, blanks = end, 0
        elif _HEAD.fullmatch(text) or _RULE.fullmatch(text):
            last, blanks = end, 0
        else:
            break
        end += 1
    gaps = () if "State" in fields else (ParseGap(lines[at].number, "the state of the port is missing"),)
    return Parsed(_link(fields, queried_device(lines, at, "mlxlink")), gaps, last + 1)


def _link(fields: Mapping[str, str], device: str | None) -> PortLink:
    def value(name: str) -> str | None:
        text = fields.get(name)
        return text if text and text != "N/A" else None

    def number(name: str) -> int | None:
        text = fields.get(name, "")
        return int(text) if re.fullmatch(r"\d{1,12}", text) else None

    try:
        quality = parse_mlxlink("".join(f"{name} : {text}\n" for name, text in fields.items()))
    except ValueError:
        quality = None
    return PortLink(
        device, value("State"), value("Physical state"), value("Speed"), value("Width"), value("FEC"),
        number("Status Opcode"), value("Recommendation"), number("Link Down Counter"), quality, dict(fields),
    )  # fmt: skip


def facts(link: PortLink) -> dict[str, Any]:
    """Return the port as `preflight read --json` prints it."""
    quality = link.quality
    return {
        "device": link.device, "state": link.state, "physical_state": link.physical_state, "speed": link.speed,
        "width": link.width, "fec": link.fec, "status_opcode": link.opcode, "recommendation": link.advice,
        "link_downs": link.link_downs,
        "raw_ber": quality.raw_ber if quality else None,
        "effective_ber": quality.effective_ber if quality else None,
        "symbol_ber": quality.symbol_ber if quality else None,
        "fields": dict(link.fields),
    }  # fmt: skip


def summary(link: PortLink) -> str:
    """Return a one-line summary of the port."""
    words = " ".join(filter(None, (link.speed, link.width)))
    return f"{link.device or 'a port'}: {link.state or 'state unknown'}{f', {words}' if words else ''}"
