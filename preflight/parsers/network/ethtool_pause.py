"""``ethtool -a``: global pause (IEEE 802.3x), as configured and negotiated."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from preflight._startup.lightclass import dataclass, field
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import field as named_field
from preflight.parsers.text_block import fields_from, json_at, switch
from preflight.textprep.lines import Lines

HINTS = ("Pause parameters for ", "[")


@dataclass(frozen=True)
class PauseParameters:
    """Whether a port accepts (RX) and sends (TX) pause frames; None if not shown."""

    interface: str | None
    autonegotiate: bool | None
    rx: bool | None
    tx: bool | None
    rx_negotiated: bool | None
    tx_negotiated: bool | None
    printed: Mapping[str, str] | None = None
    frames: Mapping[str, int] = field(default_factory=dict)

    @property
    def effective(self) -> tuple[bool | None, bool | None]:
        """RX and TX in effect: the negotiated values, else the configured ones."""
        rx = self.rx if self.rx_negotiated is None else self.rx_negotiated
        return rx, self.tx if self.tx_negotiated is None else self.tx_negotiated


_PAUSE_HEAD = re.compile(r"\s*Pause parameters for ([\w.@-]{1,64}):\s*")
_PAUSE = ("Autonegotiate", "RX", "TX", "RX negotiated", "TX negotiated")
#: Lines that ``--include-statistics`` adds.
_PAUSE_COUNTER = re.compile(r"\s*(?:Statistics:|[rt]x_pause_frames:\s*\d{1,20})\s*")


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``ethtool -a`` output begins at a line."""
    return bool(_PAUSE_HEAD.fullmatch(lines[at].text)) or _pause_json(lines, at) is not None


def _pause_json(lines: Lines, at: int) -> tuple[int, dict[str, Any]] | None:
    """Return the end and the first interface of ``ethtool --json -a``, or None."""
    if lines[at].text.lstrip()[:1] != "[" or not any('"autonegotiate"' in line.text for line in lines[at : at + 5]):
        return None
    result = json_at(lines, at, 200)
    if result is None or not isinstance(result[1], list) or not result[1] or not isinstance(result[1][0], dict):
        return None
    return result[0], result[1][0]


def _of_json(value: dict[str, Any]) -> PauseParameters:
    both = value.get("negotiated")
    negotiated = both if isinstance(both, dict) else {}
    values = (value.get("autonegotiate"), value.get("rx"), value.get("tx"), negotiated.get("rx"), negotiated.get("tx"))
    name = value.get("ifname")
    auto, rx, tx, rx_negotiated, tx_negotiated = (item if isinstance(item, bool) else None for item in values)
    return PauseParameters(name if isinstance(name, str) else None, auto, rx, tx, rx_negotiated, tx_negotiated)


def parse_lines(lines: Lines, at: int) -> Parsed[PauseParameters]:
    """Read the settings starting at a line."""
    if document := _pause_json(lines, at):
        return Parsed(_of_json(document[1]), (), document[0])
    head = _PAUSE_HEAD.fullmatch(lines[at].text)
    assert head

    def belongs(text: str) -> bool:
        result = named_field(text)
        return text is lines[at].text or bool(result and result[0] in _PAUSE) or bool(_PAUSE_COUNTER.fullmatch(text))

    end, fields = fields_from(lines, at, belongs)
    cut = [ParseGap(lines[end - 1].number, f"{name} is missing") for name in ("RX", "TX")
           if switch(fields.get(name)) is None]  # fmt: skip
    printed = {name: value for name, value in fields.items() if name in _PAUSE}
    counted = {name: int(fields[name]) for name in ("tx_pause_frames", "rx_pause_frames") if fields.get(name)}
    auto, rx, tx, rx_negotiated, tx_negotiated = (switch(fields.get(name)) for name in _PAUSE)
    result = PauseParameters(head[1], auto, rx, tx, rx_negotiated, tx_negotiated, printed, counted)
    return Parsed(result, tuple(cut), end)


def facts(pause: PauseParameters) -> dict[str, Any]:
    """Return the settings as `preflight read --json` prints them."""
    names = ("interface", "autonegotiate", "rx", "tx", "rx_negotiated", "tx_negotiated")
    result = {name: getattr(pause, name) for name in names}
    if pause.printed is None:
        return result
    return {**result, **pause.printed, "fields": pause.printed, "statistics": pause.frames or None}


def summary(pause: PauseParameters) -> str:
    """Return a one-line summary of the settings."""
    words = {True: "on", False: "off", None: "unknown"}
    return f"global pause of {pause.interface}: RX {words[pause.rx]}, TX {words[pause.tx]}"
