"""Ports that switches print as blocks of lines, and settings of NVUE.

A block begins with ``Ethernet1 is up`` (EOS, NX-OS) or ``IB1/1 state:`` (Onyx).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.switch.printed_ports import PORT, PrintedAnswer, PrintedPort, count, is_up, speed
from preflight.textprep.lines import Lines

#: Maximum number of blank lines between blocks.
_BLANKS = 2

_BLOCK = re.compile(
    r"(?P<port>[A-Za-z][\w/.-]{1,40}) is (?P<admin>administratively )?(?P<state>up|down|disabled)"
    r"(?:, line protocol is (?P<line>up|down|lowerlayerdown|notpresent))?(?: ?\((?P<why>[^)]{1,80})\))?,?\s*"
)
_COUNTED = re.compile(
    r"\b(\d{1,24}) (input errors?|output errors?|CRC|FCS errors?|alignment|symbol|runts?|giants?|jabber|input discards?"
    r"|output discards?|link status changes|late collisions?|collisions?|overrun|underrun|no buffer|ignored|watchdog"
    r"|bad etype drop|bad proto drop|if down drop|PAUSE (?:in|out)put|input with dribble|interface resets)\b"
)
_BLOCK_MTU = re.compile(r"\bMTU (\d{3,5})\b")
_BLOCK_SPEED = re.compile(r"(?:duplex, |BW )(\d{1,9}(?: [GM]b/s|[GM]b/s| kbit))")
_BLOCK_ABOUT = re.compile(r"\s+Description: (.{1,120})")

_NV_HEAD = re.compile(r"\s{2,60}operational(?:\s+applied\b.*)?")
_NV = re.compile(
    r"(?P<indent> {0,16})(?P<name>\[?[a-z][\w-]{0,50}\]?)(?:\s{2,80}(?P<value>\S.{0,80}?))?(?:\s{2,80}.{0,120})?"
)
_NV_COUNTERS = frozenset(("in-errors", "out-errors", "in-drops", "out-drops", "carrier-transitions"))
_ONYX_HEAD = re.compile(r"(?P<port>(?:IB|Eth)\d[\d/]{0,12})(?: state)?:\s*")
_ONYX = re.compile(r"\s{1,12}(?P<name>[A-Z][\w ()/.-]{1,50}?)\s{0,60}: (?P<value>.{0,120})")


def begins_block(lines: Lines, at: int) -> bool:
    """Return whether the block of one port begins at a line."""
    text = lines[at].text
    below = [line.text for line in lines[at + 1 : at + 3]]
    if match := _BLOCK.fullmatch(text):
        return bool(PORT.fullmatch(match["port"])) and any(map(_in_block, below))
    return _ONYX_HEAD.fullmatch(text) is not None and any(map(_ONYX.fullmatch, below))


def begins_settings(lines: Lines, at: int) -> bool:
    """Return whether the settings that NVUE prints begin at a line."""
    ruler = lines[at + 1].text if at + 1 < len(lines) else ""
    return _NV_HEAD.fullmatch(lines[at].text.rstrip()) is not None and ruler.startswith("---")


def _in_block(text: str) -> bool:
    return bool(text.strip()) and (text[0] in " \t" or text.startswith("admin state is "))


def blocks(lines: Lines, at: int) -> tuple[list[PrintedPort], int]:
    """Return the ports of consecutive blocks, and the index of the line after them."""
    ports: list[PrintedPort] = []
    end = at
    while end < len(lines):
        start = end
        while start < len(lines) and not lines[start].text.strip() and start - end < _BLANKS:
            start += 1
        if start >= len(lines):
            break
        if not begins_block(lines, start):
            break
        end = _end_of_block(lines, start)
        ports += (_interface if _BLOCK.fullmatch(lines[start].text) else _onyx)(lines, start, end)
    return ports, max(end, at + 1)


def _end_of_block(lines: Lines, at: int) -> int:
    end = at + 1
    for index in range(at + 1, len(lines)):
        text = lines[index].text
        if _in_block(text):
            end = index + 1
        elif text.strip() or index - end >= _BLANKS:
            break
    return end


def _interface(lines: Lines, at: int, end: int) -> Iterator[PrintedPort]:
    head = _BLOCK.fullmatch(lines[at].text)
    if head is None or not PORT.fullmatch(head["port"]):
        return
    texts = [line.text for line in lines[at + 1 : end]]
    counters: dict[str, int] = {}
    for text in texts:
        for value, name in _COUNTED.findall(text):
            counters.setdefault(name, int(value))
    joined = "\n".join(texts)
    mtu, rate, about = _BLOCK_MTU.search(joined), _BLOCK_SPEED.search(joined), _BLOCK_ABOUT.search(joined)
    why = head["why"] or ""
    off = bool(head["admin"]) or head["state"] == "disabled" or why.lower().startswith(("admin", "disabled"))
    up = (head["line"] or head["state"]) == "up"
    gbps = None
    if rate:
        gbps = int(rate[1].split()[0]) / 1e6 if rate[1].endswith("kbit") else speed(rate[1])
    yield PrintedPort(
        head["port"], lines[at].number, admin_up=not off, up=up, state=why or head["line"] or head["state"],
        about=about[1].strip() if about else "", speed_gbps=gbps if up else None, mtu=int(mtu[1]) if mtu else None,
        counters=counters,
    )  # fmt: skip


def _onyx(lines: Lines, at: int, end: int) -> Iterator[PrintedPort]:
    head = _ONYX_HEAD.fullmatch(lines[at].text)
    fields: dict[str, str] = {}
    for line in lines[at + 1 : end]:
        if match := _ONYX.fullmatch(line.text):
            fields.setdefault(match["name"].strip(), match["value"].strip())
    lower = {name.lower(): value for name, value in fields.items()}
    state = lower.get("physical port state") or lower.get("operational state") or lower.get("logical port state") or ""
    admin = lower.get("admin state", "")
    if head and fields:
        counters = {name: value for name, text in fields.items() if (value := count(text)) is not None
                    and re.search(r"(?i)error|discard|drop|symbol|recover|downed|wait|constraint", name)}  # fmt: skip
        yield PrintedPort(
            head["port"], lines[at].number, admin_up=None if not admin else admin.lower().startswith("enabled"),
            up=is_up(state), state=state, about=lower.get("description", "").strip("- N/A"),
            speed_gbps=speed(lower.get("actual speed", lower.get("current line rate", "")).replace("bps", "")),
            mtu=count(lower.get("mtu", "").partition(" ")[0]), counters=counters, fields=fields,
        )  # fmt: skip


def settings_from(lines: Lines, at: int, switch: str, above: str) -> Parsed[PrintedAnswer]:
    """Read the tree of settings that NVUE prints; the operational value counts."""
    column = lines[at].text.index("operational")
    settings: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    end = at + 2
    for index in range(at + 2, len(lines)):
        text = lines[index].text
        match = _NV.fullmatch(text.rstrip())
        if match is None:
            break
        indent = len(match["indent"])
        path = [entry for entry in path if entry[0] < indent] + [(indent, match["name"].strip("[]"))]
        value = re.split(r"\s{2,}", text[column:].strip())[0] if len(text) > column and text[column] != " " else ""
        if not value and match["value"]:
            value = match["value"]
        if value:
            settings[".".join(name for _, name in path)] = value
        end = index + 1
    gaps = () if settings else (ParseGap(lines[at].number, "no setting follows"),)
    return Parsed(PrintedAnswer(switch, tuple(_linked(settings, above, lines[at].number)), "", settings), gaps, end)


def _linked(settings: Mapping[str, str], above: str, line: int) -> Iterator[PrintedPort]:
    """Yield the port that the settings describe, if it is one."""
    by_name = {name.rpartition(".")[2]: value for name, value in settings.items() if re.match(r"(?:link|stats)\.", name)
               or name.rpartition(".")[2] in _NV_COUNTERS}  # fmt: skip
    named = re.search(r"interface (\S{1,40})", above)
    if not by_name.get("state") and not _NV_COUNTERS & set(by_name):
        return
    counters = {name: number for name in _NV_COUNTERS if (number := count(by_name.get(name, ""))) is not None}
    state = by_name.get("state", "")
    yield PrintedPort(
        named[1] if named else "the port", line, up=is_up(state), state=state,
        speed_gbps=speed(by_name.get("speed", "")), mtu=count(by_name.get("mtu", "")), fec=by_name.get("fec", ""),
        counters=counters,
    )  # fmt: skip
