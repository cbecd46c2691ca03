"""``dcb pfc|app|ets|buffer|dcbx|apptrust show`` (iproute2), as text or JSON.

See dcb(8). ``dcb`` does not need root. For drivers without DCB, and for virtual functions, it prints "Operation not
supported". Each command shows some of the settings; consecutive outputs for one port are joined.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from preflight._startup.lightclass import replace
from preflight.evidence import json_limits
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.qos.port_settings import DSCPS, PRIORITIES, Buffers, DscpMap, PortQos, facts, summary
from preflight.parsers.text_block import block, json_at
from preflight.textprep.lines import Line, Lines

__all__ = ["HINTS", "begins", "facts", "parse_app", "parse_buffer", "parse_dcbx", "parse_lines", "parse_pfc", "summary"]

HINTS = ()

#: Name that ``dcb app show`` prints without ``-N`` -> DSCP (RFC 2474, 2597, 3246, 5865).
_DSCP = {
    **{f"CS{number}": number * 8 for number in range(8)},
    **{f"AF{high}{low}": high * 8 + low * 2 for high in range(1, 5) for low in range(1, 4)},
    "EF": 46, "VA": 44,
}  # fmt: skip

#: Keys with a value for each priority, class or code point.
_MAPS = (
    r"(?:reco-)?(?:prio-tc|tc-bw|tc-tsa)|pg-bw|p(?:rio|g)-pfc|prio-buffer|buffer-size|dscp-prio|pcp-prio|ethtype-prio"
    r"|(?:stream-port|dgram-port|port)-prio"
)
_PAIR = r"[A-Za-z0-9]{1,8}:\w[\w.]{0,11}"
#: A line with one or several keys, each with its pairs or its word. Older versions print ``ets_cap``.
_KEYS = re.compile(
    rf"\s*(?:[\w.@-]{{1,64}}:\s+)?(?:(?:(?:{_MAPS}|requests|indications):?(?:\s+(?:{_PAIR}|\d{{1,5}})(?=\s|$))*"
    r"|(?:pfc|ets)[-_]cap \d{1,2}|macsec-bypass (?:on|off)|delay \d{1,6}|(?:cbs|willing) (?:on|off)"
    r"|total-size \d[\w.]{0,11}|default-prio(?: \d)*|order(?: (?:dscp|pcp|ethtype|stream-port|dgram-port|port))+)"
    r"(?:\s+|$))+"
)
#: A key with a value, in a form that does not occur in prose.
_OWN = re.compile(rf"(?<![\w-])(?:(?:{_MAPS}):?\s+{_PAIR}(?:\s|$)|(?:pfc|ets)[-_]cap \d)")
#: A key and its values up to the next key; some versions print all keys on one line.
_KEY_AND_PAIRS = re.compile(rf"(?<![\w-])({_MAPS}):?((?:\s+{_PAIR})*)")
_JSON_KEYS = frozenset(("prio_pfc", "dscp_prio", "prio_tc", "prio_buffer", "pfc_cap"))

#: Commands that print a single line, and the words on it.
_DCBX_COMMAND = re.compile(r"\bdcb(?: -{1,2}\w{1,20}){0,8} dcbx (?:show|get)\b")
_DCBX = re.compile(r"\s*(?:(?:host|lld[-_]managed|cee|ieee|static)(?:\s+|$))+")
_TRUST_COMMAND = re.compile(r"\bdcb(?: -{1,2}\w{1,20}){0,8} apptrust show\b")
_ORDER = re.compile(r"\s*order: ?((?:\s?(?:dscp|pcp))+)\s*|\s*order ((?:\s?(?:dscp|pcp))+)\s*")

#: A line between two outputs: a prompt with a command, or a script's title of the next output.
_BETWEEN = re.compile(r"(?i).*\bdcb\b.*")
_MOST_BETWEEN = 2
_DEVICE = re.compile(r"(?:\bdev|\bfor|\bon)\s+([a-zA-Z][\w.@-]{1,31})")


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``dcb`` output begins at a line."""
    text = lines[at].text
    if text.lstrip().startswith("{") and any(key in line.text for line in lines[at : at + 8] for key in _JSON_KEYS):
        return _json(lines, at) is not None
    before = lines[at - 1].text if at else ""
    if before.endswith("\\"):  # the rest of a command
        return False
    if _OWN.search(text):
        return bool(_KEYS.fullmatch(text))
    return "dcb" in before and bool(
        (_DCBX_COMMAND.search(before) and _DCBX.fullmatch(text))
        or (_TRUST_COMMAND.search(before) and _ORDER.fullmatch(text))
    )


def _json(lines: Lines, at: int) -> tuple[int, dict[str, Any]] | None:
    result = json_at(lines, at, 2000)
    if result is None or not isinstance(result[1], dict):
        return None
    return (result[0], result[1]) if _JSON_KEYS & result[1].keys() else None


def parse_lines(lines: Lines, at: int) -> Parsed[PortQos]:
    """Read a port's settings from consecutive outputs, starting at a line."""
    end, qos, cut = _one(lines, at)
    device = _device(lines, at)
    while (after := _next(lines, end)) is not None:
        other = _device(lines, after)
        further, more, missing = _one(lines, after)
        joined = None if device and other and device != other else _joined(qos, more)
        if joined is None:
            break
        qos, end, device, cut = joined, further, device or other, cut + missing
    return Parsed(replace(qos, line=lines[at].number, interface=device), tuple(cut), end)


def _device(lines: Lines, at: int) -> str:
    """Return the port that the previous line names; empty if there is none."""
    match = _DEVICE.search(lines[at - 1].text) if at and "dcb" in lines[at - 1].text.lower() else None
    return match[1].rstrip(":") if match else ""


def _next(lines: Lines, end: int) -> int | None:
    """Return the start of the next output if only commands or titles precede it."""
    between = 0
    for at in range(end, min(end + 6, len(lines))):
        text = lines[at].text
        if not text.strip():
            continue
        if begins(lines, at):
            return at
        between += 1
        if between > _MOST_BETWEEN or len(text) > 120 or not _BETWEEN.fullmatch(text):
            return None
    return None


_VALUES = ("trust", "pfc", "dscp", "priority_to_tc", "dcbx")


def _joined(qos: PortQos, more: PortQos) -> PortQos | None:
    """Join two outputs; return None if both show the same setting."""
    values = {name: getattr(more, name) for name in _VALUES if getattr(more, name) is not None}
    if any(getattr(qos, name) is not None for name in values):
        return None
    ours, theirs = qos.buffers or Buffers(), more.buffers or Buffers()
    if (ours.of_priority and theirs.of_priority) or (ours.bytes and theirs.bytes):
        return None
    both = Buffers(ours.of_priority or theirs.of_priority, ours.bytes or theirs.bytes)
    return replace(qos, **values, buffers=both if both != Buffers() else None)


def _one(lines: Lines, at: int) -> tuple[int, PortQos, list[ParseGap]]:
    """Read the output of one command."""
    text = lines[at].text
    if text.lstrip().startswith("{") and (parsed := _json(lines, at)):
        qos, faults = _of_json(parsed[1])
        return parsed[0], qos, [ParseGap(lines[at].number, fault) for fault in faults]
    if not _OWN.search(text):
        if match := _ORDER.fullmatch(text):
            return at + 1, PortQos(trust=(match[1] or match[2]).split()[0]), []
        return at + 1, PortQos(dcbx=" ".join(text.split())), []
    end, taken = block(lines, at, lambda text: bool(_KEYS.fullmatch(text)), blanks=0)
    qos, cut = PortQos(), list[ParseGap]()
    for line in taken:
        qos = _of_line(qos, line, cut)
    return end, qos, cut


def _of_line(qos: PortQos, line: Line, cut: list[ParseGap]) -> PortQos:
    for key, values in _KEY_AND_PAIRS.findall(line.text):
        pairs = re.findall(r"([A-Za-z0-9]{1,8}):(\w[\w.]{0,11})", values)
        if not pairs:
            continue
        if key in ("prio-pfc", "pg-pfc"):
            pfc = {int(number): word == "on" for number, word in pairs if number.isdigit()}
            if len(pfc) < len(PRIORITIES):
                cut.append(ParseGap(line.number, f"PFC is shown for {len(pfc)} of 8 priorities"))
            qos = replace(qos, pfc=pfc)
        elif key == "dscp-prio":
            of = dict(qos.dscp.of) if qos.dscp else {}
            for dscp, priority in pairs:
                code = int(dscp) if dscp.isdigit() else _DSCP.get(dscp.upper())
                if code is not None and priority.isdigit():
                    of[code] = of.get(code, frozenset()) | {int(priority)}
            qos = replace(qos, dscp=DscpMap(of), trust="dscp" if of else qos.trust)
        elif key == "prio-tc":
            qos = replace(qos, priority_to_tc={int(number): int(tc) for number, tc in pairs
                                               if tc.isdigit() and number.isdigit()})  # fmt: skip
        elif key == "prio-buffer":
            owners = tuple(int(owner) for _, owner in pairs if owner.isdigit())
            qos = replace(qos, buffers=Buffers(owners, qos.buffers.bytes if qos.buffers else ()))
        elif key == "buffer-size" and all(re.fullmatch(r"\d{1,12}b?", size) for _, size in pairs):
            sizes = tuple(int(size.removesuffix("b")) for _, size in pairs)
            qos = replace(qos, buffers=Buffers(qos.buffers.of_priority if qos.buffers else (), sizes))
    return qos


def _of_json(value: Mapping[str, Any]) -> tuple[PortQos, list[str]]:
    """Return the settings in an object of ``dcb -j``, and errors for invalid values."""
    qos, faults = PortQos(), list[str]()
    bits = value.get("prio_pfc")
    if isinstance(bits, list) and len(bits) == 8 and all(isinstance(bit, bool) for bit in bits):
        qos = replace(qos, pfc=dict(enumerate(bits)))
    elif bits is not None:
        faults.append(f"prio_pfc is not eight booleans: {str(bits)[:80]}")
    if "dscp_prio" in value or "default_prio" in value:
        result = _dscps(value, faults)
        qos = replace(qos, dscp=result, trust="dscp" if result.of else None)
    tcs = value.get("prio_tc")
    if isinstance(tcs, list):
        qos = replace(qos, priority_to_tc={number: tc for number, tc in enumerate(tcs) if isinstance(tc, int)})
    owners, sizes = value.get("prio_buffer"), value.get("buffer_size")
    if owners is not None or sizes is not None:
        rows = [tuple(row) if isinstance(row, list) and _numbers(row) else () for row in (owners, sizes)]
        buffers = Buffers(rows[0], rows[1])
        qos = replace(qos, buffers=buffers)
        if not buffers.complete:
            faults.append("prio_buffer and buffer_size are not eight numbers each")
    return qos, faults


def _dscps(value: Mapping[str, Any], faults: list[str]) -> DscpMap:
    of: dict[int, frozenset[int]] = {}
    entries, default = value.get("dscp_prio", []), value.get("default_prio", [])
    if not isinstance(entries, list):
        faults.append("dscp_prio is not a list")
        entries = []
    for entry in entries:
        if not isinstance(entry, list) or len(entry) != 2 or not _numbers(entry):
            faults.append(f"an entry of dscp_prio is not a DSCP and a priority: {str(entry)[:80]}")
        elif entry[0] not in DSCPS or entry[1] not in PRIORITIES:
            faults.append(f"DSCP {entry[0]} with priority {entry[1]} is out of range")
        else:
            of[entry[0]] = of.get(entry[0], frozenset()) | {entry[1]}
    if not isinstance(default, list) or not _numbers(default) or not set(default) <= set(PRIORITIES):
        faults.append(f"default_prio is not a list of priorities: {str(default)[:80]}")
        default = []
    return DscpMap(of, max(default, default=0))


def _numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int) and not isinstance(value, bool) and value >= 0 for value in values)


# --- records of a node: one command each, as JSON ------------------------------------------------------


def parse_pfc(text: str) -> frozenset[int]:
    """Return the priorities with PFC in ``dcb -j pfc show``; raises ValueError."""
    value = _object(text)
    qos = _checked({"prio_pfc": value.get("prio_pfc", "absent")})
    return qos.lossless


def parse_app(text: str) -> DscpMap:
    """Return the DSCP map in ``dcb -j app show``; raises ValueError.

    It contains only the listed DSCPs.
    """
    value = _object(text)
    return _checked({"dscp_prio": [], **{key: value[key] for key in ("dscp_prio", "default_prio") if key in value}}
                    ).dscp or DscpMap({})  # fmt: skip


def parse_buffer(text: str) -> Buffers:
    """Return the receive buffers in ``dcb -j buffer show``; raises ValueError."""
    value = _object(text)
    buffers = _checked({key: value.get(key, []) for key in ("prio_buffer", "buffer_size")}).buffers
    assert buffers
    return buffers


def parse_dcbx(text: str) -> str:
    """Return the owner of DCB in ``dcb -j dcbx show``; raises ValueError.

    The owner is ``os`` if the host sets DCB, and ``firmware`` if the firmware follows the switch.
    """
    result = _object(text)
    if not result or not all(isinstance(flag, bool) for flag in result.values()):
        raise ValueError(f"{text.strip()[:80]!r} contains no flags")
    return "os" if result.get("host") else "firmware"


def _checked(value: Mapping[str, Any]) -> PortQos:
    qos, faults = _of_json(value)
    for fault in faults:
        raise ValueError(fault)
    return qos


def _object(text: str) -> dict[str, Any]:
    try:
        result = json_limits.text(text)
    except ValueError:
        raise ValueError(f"{text.strip()[:80]!r} is not the JSON of dcb(8)") from None
    if not isinstance(result, dict):
        raise ValueError(f"{text.strip()[:80]!r} is not an object")
    return result
