"""Single answers of EOS, NX-OS, SONiC, Cumulus Linux and Onyx switches.

They may lack a prompt. An answer is a table of ports (with a ruler or known columns), blocks of ports, or a list of
settings. Sources: manuals of EOS, NX-OS, SONiC (``sonic-utilities``), NVUE and Onyx.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from preflight._startup.lightclass import replace
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.switch import printed_blocks
from preflight.parsers.switch.printed_ports import (
    PORT,
    PrintedAnswer,
    PrintedPort,
    count,
    facts,
    is_off,
    is_up,
    prompt_name,
    speed,
    summary,
)
from preflight.parsers.text_block import decimal, is_prompt
from preflight.textprep.lines import Lines

__all__ = ["HINTS", "begins", "facts", "parse_lines", "summary"]

HINTS = ("Port", "PORT", "Interface", "IFACE", "Iface", "QUEUE", "operational", " is up", " is down", " is admin",
         " state:", "Ethernet  ", "State ")  # fmt: skip

_FIRST = frozenset(("port", "interface", "iface", "queue", "localport", "state", "intf", "ifname"))
#: Columns that only tables of switches have, in lower case.
_WORDS = """
fcs align symbol runts giants indiscards outdiscards inoctets inucastpkts inmcastpkts inbcastpkts outoctets outucastpkts
outmcastpkts outbcastpkts align-err fcs-err xmit-err rcv-err undersize single-col multi-col late-col exces-col carri-sen
sqetest-err deferred-tx intmactx-er intmacrx-er symbol-err stomped-crc rx_ok rx_bps rx_pps rx_util rx_err rx_drp rx_ovr
tx_ok tx_bps tx_pps tx_util tx_err tx_drp tx_ovr rx_drops tx_drops fec_corr fec_uncorr fec_symbol_err fec_pre_ber
fec_post_ber rxpfc txpfc rxppp txppp priorities txq counter/pkts counter/bytes drop/pkts drop/bytes pkts bytes droppkts
dropbytes lanes alias oper admin mtu fec asymmetric spd lldp presence duplex remotedevice remoteportid
"""
_PHRASES = ("asym pfc", "storm detected/restored", "detection time", "oper status", "admin status", "operational state",
            "remote host", "remote port", "lossless priorities")  # fmt: skip
_OF_QUEUES = tuple(f"{kind}{number}" for kind in ("pfc", "uc", "mc", "pg", "all") for number in range(16))
_KNOWN = frozenset((*_WORDS.split(), *_PHRASES, *_OF_QUEUES))
#: Columns that tables of other tools have too.
_COMMON = frozenset(("rx", "tx", "state", "status", "speed", "type", "name", "vlan", "flags", "encapsulation", "mode",
                     "active", "note", "enabled", "action", "description", "bmap)", "oper(vl"))  # fmt: skip
_NOT_COUNTED = re.compile(
    r"(?i)lanes|vlan|speed|spd|mtu|alias|type|.*(?:_bps|_pps|_util|_ber.*)|.*priorities|.* time|flr.*"
)
_RULER = re.compile(r"\s{0,12}-[-…]{0,200}(?:\s{1,20}-[-…]{0,200})+\s*")
_LINE = re.compile(r"\s{0,8}[-=]{10,200}\s*")
_PAUSE = re.compile(r"[RT]X_PFC[0-7]")
_RATE = re.compile(r"(\d) ([KMGT]?B/s|[KMGT]?bps|%)")

#: Rows of ``show interface status`` and ``brief``, whose columns may be empty.
_STATUS_HEAD = re.compile(r"Port +Name +Status +Vlan +Duplex +Speed +Type\b.*")
_STATUS = re.compile(
    r"(?P<port>\S{1,30})\s(?P<name>.{0,60}?)\s*\b(?P<state>connected|notconnec\w?|disabled|errdisabl\w{0,2}|inactive"
    r"|sfpAbsent|xcvrAbsen\w?|linkFlap\w?|suspn\w{0,3}|noOperMem|channelDo|up|down)\s+\S{1,20}"
    r"\s+(?P<duplex>(?:a-)?(?:full|half)|auto|unconf\w{0,4})\s+(?P<speed>\S{1,16})(?:\s+(?P<type>.{0,60}))?"
)
_BRIEF_HEAD = re.compile(r"(?:Ethernet|Interface) +VLAN +Type +Mode +Status +Reason +Speed +Port\b.*")
_BRIEF = re.compile(
    r"(?P<port>\S{1,30})\s+\S{1,10}\s+\S{1,10}\s+\S{1,12}\s+(?P<state>up|down)\s+(?P<reason>.{1,40}?)\s{1,10}"
    r"(?P<speed>auto(?:\(\w\))?|\d{1,4}(?:\.\d)?[GM]?(?:\(\w\))?)\s+\S{1,10}\s*"
)
_LIGHT_HEAD = re.compile(r"Port +\(Celsius\) +\(Volts\) +\(mA\) +\(dBm\) +\(dBm\).*")
_LIGHT = re.compile(
    r"(?P<port>\S{1,30})\s+(?P<temp>-?[\d.]{1,8}|N/A)\s+(?:-?[\d.]{1,8}|N/A)\s+(?:-?[\d.]{1,8}|N/A)\s+"
    r"(?P<tx>-?[\d.]{1,8}|-?inf|N/A)\s+(?P<rx>-?[\d.]{1,8}|-?inf|N/A)\b.*"
)

#: Maximum number of blank lines between the blocks of an answer, and lines above a table that may hold its prompt.
_BLANKS, _ABOVE = 2, 6


def begins(lines: Lines, at: int) -> bool:
    """Return whether an answer of a switch begins at a line."""
    return (
        _columns(lines, at) is not None
        or any(head.fullmatch(lines[at].text.strip()) for head in _ROWS)
        or printed_blocks.begins_block(lines, at)
        or printed_blocks.begins_settings(lines, at)
    )


def parse_lines(lines: Lines, at: int) -> Parsed[PrintedAnswer]:
    """Read the answer that begins at a line."""
    above = [line.text for line in lines[max(0, at - _ABOVE) : at] if line.text.strip()][::-1]
    switch = next(filter(None, map(prompt_name, above)), "")
    if printed_blocks.begins_settings(lines, at):
        return printed_blocks.settings_from(lines, at, switch, above[0] if above else "")
    read = printed_blocks.blocks if printed_blocks.begins_block(lines, at) else _tables
    ports, end = read(lines, at)
    title = next((text.strip() for text in above if not _LINE.fullmatch(text) and not prompt_name(text)), "")
    gaps = () if ports else (ParseGap(lines[at].number, "no row of a port follows"),)
    return Parsed(PrintedAnswer(switch, tuple(ports), title[:200]), gaps, end)


# --- tables -------------------------------------------------------------------------------------------

#: Header of a table with rows in a special form -> that form.
_ROWS: Mapping[re.Pattern[str], re.Pattern[str]] = {_STATUS_HEAD: _STATUS, _BRIEF_HEAD: _BRIEF, _LIGHT_HEAD: _LIGHT}

#: The columns of a table, and their start and end; without these, each cell is a word.
_Columns = tuple[tuple[str, ...], tuple[tuple[int, int], ...]]


def _columns(lines: Lines, at: int) -> _Columns | None:
    text = lines[at].text[:2000]
    words = text.split()
    if len(words) < 2 or words[0].lower() not in _FIRST:
        return None
    if at + 1 < len(lines) and _RULER.fullmatch(lines[at + 1].text):
        spans = [match.span() for match in re.finditer(r"\S+", lines[at + 1].text)]
        spans[-1] = (spans[-1][0], 4000)
        if not _torn(text, spans):
            names = _pauses([text[start:end].strip() for start, end in spans])
            return (
                (names, tuple(spans))
                if any(name.lower() in _KNOWN or _PAUSE.fullmatch(name) for name in names[1:])
                else None
            )
    if words[1] in ("Rx", "Tx") and "PFC0" in words:
        return _pauses([" ".join(words[:2]), *words[2:]]), ()
    lower = [word.lower() for word in words[1:]]
    if all(word in _KNOWN or word in _COMMON for word in lower) and any(word in _KNOWN for word in lower):
        return tuple(words), ()
    return None


def _pauses(names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns; those of pauses get the direction in the first one's name."""
    way = names[0].partition(" ")[2]
    return ("Port", *(f"{way.upper()}_{name}" for name in names[1:])) if way in ("Rx", "Tx") else tuple(names)


def _torn(text: str, spans: Sequence[tuple[int, int]]) -> bool:
    """Return whether a word of a line extends into the next column."""
    return any(0 < start < len(text) and text[start - 1] != " " and text[start] != " " for start, _ in spans)


def _tables(lines: Lines, at: int) -> tuple[list[PrintedPort], int]:
    """Return the ports of consecutive tables of one answer, and the end."""
    ports: dict[str, PrintedPort] = {}
    end = at
    while end < len(lines):
        start = end
        while (
            start < len(lines)
            and start - end <= _BLANKS
            and (not lines[start].text.strip() or _LINE.fullmatch(lines[start].text))
        ):
            start += 1
        if start >= len(lines) or not (start == at or begins(lines, start)):
            break
        rows, end = _table(lines, start)
        for port in rows:
            before = ports.get(port.name)
            ports[port.name] = port if before is None else replace(
                before, counters={**before.counters, **port.counters}, fields={**before.fields, **port.fields}
            )  # fmt: skip
    return list(ports.values()), max(end, at + 1)


def _table(lines: Lines, at: int) -> tuple[list[PrintedPort], int]:
    form = next((form for head, form in _ROWS.items() if head.fullmatch(lines[at].text.strip())), None)
    columns = None if form else _columns(lines, at)
    rows: list[PrintedPort] = []
    end = at + 1
    for index in range(at + 1, len(lines)):
        text = lines[index].text
        if not text.strip() and not rows and index == end:
            end += 1  # one blank line may precede the rows
            continue
        if _RULER.fullmatch(text) or _LINE.fullmatch(text) or (index == at + 1 and text.split()[-1:] == ["#"]):
            end = index + 1
            continue
        made = list(
            _from_form(form, text, lines[index].number) if form else _from_cells(columns, text, lines[index].number)
        )
        if not made and not (columns and columns[1] and _is_row(lines, index, columns[1])):
            break
        rows += made
        end = index + 1
    return rows, end


def _is_row(lines: Lines, at: int, spans: Sequence[tuple[int, int]]) -> bool:
    """Return whether a line fits the columns of a table."""
    text = lines[at].text
    return bool(text.strip()) and not (
        is_prompt(text) or prompt_name(text) or _torn(text, spans) or _columns(lines, at)
    )


def _from_form(form: re.Pattern[str], text: str, line: int) -> Iterator[PrintedPort]:
    match = form.fullmatch(text.strip()[:400])
    if match is None or not PORT.fullmatch(match["port"]):
        return
    values = {name: (value or "").strip() for name, value in match.groupdict().items()}
    if form is _LIGHT:
        light = {"-inf": -40.0, "inf": None, "N/A": None}
        received = light[values["rx"]] if values["rx"] in light else decimal(values["rx"])
        yield PrintedPort(values["port"], line, received_dbm=() if received is None else (received,),
                          fields={"temperature_c": values["temp"], "tx_dbm": values["tx"]})  # fmt: skip
        return
    state, reason = values["state"], values.get("reason", "")
    off = is_off(state) or reason.lower().startswith("administratively")
    module = values.get("type")
    absent = any(word in f"{state} {reason} {module}".lower() for word in ("absen", "not present", "not inserted"))
    yield PrintedPort(
        values["port"], line, admin_up=not off, up=is_up(state), state=reason if reason not in ("", "none") else state,
        about=values.get("name", "").strip("- "), speed_gbps=speed(values["speed"]),
        module="" if absent else module, fields={"duplex": values.get("duplex", "")},
    )  # fmt: skip


def _from_cells(columns: _Columns | None, text: str, line: int) -> Iterator[PrintedPort]:
    if columns is None:
        return
    names, spans = columns
    text = text[:4000]
    if spans:
        cells = [text[start:end].strip() for start, end in spans]
        cells = text.split(None, len(names) - 1) if _torn(text, spans) else cells
    else:
        cells = re.sub(r"\s{1,9}\(", "(", _RATE.sub(r"\1\2", text)).split()  # `On  (8)` is one cell
        names = tuple(name for name in names if name != "bmap)")
    if len(cells) < len(names) and not (spans or len(cells) >= 2):
        return
    row = dict(zip(names, cells, strict=False))
    lower = {name.lower(): value for name, value in row.items()}
    first = cells[0] if names[0].lower() != "state" else lower.get("name", "")
    if not PORT.fullmatch(first.replace("*", "")):
        return
    place = f"{first} {lower['txq']}" if "txq" in lower else first
    if not spans and len(cells) < len(names):
        row = row if "note" in names[-1].lower() or "flags" in names[-1].lower() else {}
        lower = {name.lower(): value for name, value in row.items()}
    yield _port(place, line, row, lower)


def _port(place: str, line: int, row: Mapping[str, str], lower: Mapping[str, str]) -> PrintedPort:
    def cell(*names: str) -> str:
        return next((lower[name] for name in names if lower.get(name)), "")

    oper, admin = cell("oper", "oper status", "operational state", "state", "status"), cell("admin", "admin status")
    up = is_up(oper)
    mtu = count(cell("mtu"))
    counters = {
        name: number for name, value in list(row.items())[1:]
        if not _NOT_COUNTED.fullmatch(name) and (number := count(value)) is not None
    }  # fmt: skip
    lanes, module = "lanes" in lower, lower.get("type")
    return PrintedPort(
        place, line, admin_up=None if not admin and not is_off(oper) else is_up(admin) if admin else False,
        up=up, state=oper if up is not None else "", about=cell("remote host", "description", "remotedevice", "lldp"),
        speed_gbps=speed(cell("speed", "spd")), mtu=mtu, fec=cell("fec").lower(),
        module=("" if module in ("N/A", "") else module) if lanes else None, counters=counters,
        fields={name: value for name, value in list(row.items())[1:] if name not in counters},
    )  # fmt: skip
