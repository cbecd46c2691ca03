"""RoCE QoS of a port: ``dcb pfc|app|ets|buffer|dcbx|apptrust show``, also as JSON.

Each command tells a part of what is set; what somebody asked of one port, one command after the other, is put together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from preflight.recognition.detector import OutputFormat, ParsedPart, TextGap
from preflight.recognition.formats.mlnx_qos import no_facts, summary_of
from preflight.parsers.text_block import block, json_at
from preflight.textprep.lines import Line, Lines

#: Names of DSCPs, as ``dcb app show`` prints them without ``-N`` (RFC 2474, 2597, 3246, 5865).
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
#: A line is a key with its pairs or its word, or several of them; older versions write ``ets_cap``.
_KEYS = re.compile(
    rf"\s*(?:[\w.@-]{{1,64}}:\s+)?(?:(?:(?:{_MAPS}|requests|indications):?(?:\s+(?:{_PAIR}|\d{{1,5}})(?=\s|$))*"
    r"|(?:pfc|ets)[-_]cap \d{1,2}|macsec-bypass (?:on|off)|delay \d{1,6}|(?:cbs|willing) (?:on|off)"
    r"|total-size \d[\w.]{0,11}|default-prio(?: \d)*|order(?: (?:dscp|pcp|ethtype|stream-port|dgram-port|port))+)"
    r"(?:\s+|$))+"
)
#: What of it is no word of a text.
_OWN = re.compile(rf"(?<![\w-])(?:(?:{_MAPS}):?\s+{_PAIR}(?:\s|$)|(?:pfc|ets)[-_]cap \d)")
#: A key and its values up to the next one: some versions print all of them on one line.
_KEY_AND_PAIRS = re.compile(rf"(?<![\w-])({_MAPS}):?((?:\s+{_PAIR})*)")
_JSON_KEYS = frozenset(("prio_pfc", "dscp_prio", "prio_tc", "prio_buffer", "pfc_cap"))

#: Commands whose one line of output holds words alone.
_DCBX_COMMAND = re.compile(r"\bdcb(?: -{1,2}\w{1,20}){0,8} dcbx (?:show|get)\b")
_DCBX = re.compile(r"\s*(?:(?:host|lld[-_]managed|cee|ieee|static)(?:\s+|$))+")
_TRUST_COMMAND = re.compile(r"\bdcb(?: -{1,2}\w{1,20}){0,8} apptrust show\b")
_ORDER = re.compile(r"\s*order: ?((?:\s?(?:dscp|pcp))+)\s*|\s*order ((?:\s?(?:dscp|pcp))+)\s*")

#: A line between two outputs that speaks of the tool: a prompt with a command, a script's word about what follows.
_BETWEEN = re.compile(r"(?i).*\bdcb\b.*")
_MOST_BETWEEN = 2
_DEVICE = re.compile(r"(?:\bdev|\bfor|\bon)\s+([a-zA-Z][\w.@-]{1,31})")


def _begins(lines: Lines, at: int) -> bool:
    text = lines[at].text
    if text.lstrip().startswith("{") and any(key in line.text for line in lines[at : at + 8] for key in _JSON_KEYS):
        return _json(lines, at) is not None
    before = lines[at - 1].text if at else ""
    if before.endswith("\\"):  # a command goes on
        return False
    if _OWN.search(text):
        return bool(_KEYS.fullmatch(text))
    return "dcb" in before and bool(
        (_DCBX_COMMAND.search(before) and _DCBX.fullmatch(text))
        or (_TRUST_COMMAND.search(before) and _ORDER.fullmatch(text))
    )


def _json(lines: Lines, at: int) -> tuple[int, dict[str, Any]] | None:
    found = json_at(lines, at, 2000)
    if found is None or not isinstance(found[1], dict):
        return None
    return (found[0], found[1]) if _JSON_KEYS & found[1].keys() else None


def _take(lines: Lines, at: int) -> ParsedPart:
    end, facts, cut = _one(lines, at)
    device = _device(lines, at)
    while (after := _next(lines, end)) is not None:
        other = _device(lines, after)
        further, more, missing = _one(lines, after)
        if (device and other and device != other) or not _disjoint(facts, more):
            break
        buffers = {**(facts["buffers"] or {}), **(more["buffers"] or {})} or None
        facts.update({name: value for name, value in more.items() if value is not None}, buffers=buffers)
        end, device, cut = further, device or other, cut + missing
    return ParsedPart(end, facts, summary_of(facts), cut)


def _device(lines: Lines, at: int) -> str:
    """Return the port that is named on the line before, empty if none is."""
    match = _DEVICE.search(lines[at - 1].text) if at and "dcb" in lines[at - 1].text.lower() else None
    return match[1].rstrip(":") if match else ""


def _next(lines: Lines, end: int) -> int | None:
    """Return where the next output begins, with nothing between but words about it."""
    between = 0
    for at in range(end, min(end + 6, len(lines))):
        text = lines[at].text
        if not text.strip():
            continue
        if _begins(lines, at):
            return at
        between += 1
        if between > _MOST_BETWEEN or len(text) > 120 or not _BETWEEN.fullmatch(text):
            return None
    return None


def _disjoint(facts: Mapping[str, Any], more: Mapping[str, Any]) -> bool:
    for name, value in more.items():
        present = facts[name]
        if value is not None and present is not None and (name != "buffers" or value.keys() & present.keys()):
            return False
    return True


def _one(lines: Lines, at: int) -> tuple[int, dict[str, Any], list[TextGap]]:
    """Read what one command printed."""
    facts, text = no_facts(), lines[at].text
    if text.lstrip().startswith("{") and (parsed := _json(lines, at)):
        _of_json(facts, parsed[1])
        return parsed[0], facts, []
    if not _OWN.search(text):
        if match := _ORDER.fullmatch(text):
            facts["trust"] = (match[1] or match[2]).split()[0]
        else:
            facts["dcbx"] = " ".join(text.split())
        return at + 1, facts, []
    end, taken = block(lines, at, lambda text: bool(_KEYS.fullmatch(text)), blanks=0)
    return end, facts, [missing for line in taken for missing in _of_line(facts, line)]


def _of_json(facts: dict[str, Any], value: Mapping[str, Any]) -> None:
    bits, dscps, tcs = value.get("prio_pfc"), value.get("dscp_prio"), value.get("prio_tc")
    if isinstance(bits, list):
        facts["pfc"] = {str(number): bit is True for number, bit in enumerate(bits)}
    if isinstance(dscps, list):
        pairs = [pair for pair in dscps if isinstance(pair, list) and len(pair) == 2]
        _mapped(facts, [(str(dscp), str(priority)) for dscp, priority in pairs])
    if isinstance(tcs, list):
        facts["priority_to_tc"] = {str(number): tc for number, tc in enumerate(tcs) if isinstance(tc, int)}
    if isinstance(value.get("prio_buffer"), list):
        facts["buffers"] = {"of_priority": value["prio_buffer"]}
        if isinstance(value.get("buffer_size"), list):
            facts["buffers"]["sizes"] = value["buffer_size"]


def _of_line(facts: dict[str, Any], line: Line) -> list[TextGap]:
    cut = []
    for key, values in _KEY_AND_PAIRS.findall(line.text):
        pairs = re.findall(r"([A-Za-z0-9]{1,8}):(\w[\w.]{0,11})", values)
        if not pairs:
            continue
        if key in ("prio-pfc", "pg-pfc"):
            facts["pfc"] = {number: word == "on" for number, word in pairs if number.isdigit()}
            if len(facts["pfc"]) < 8:
                cut.append(TextGap(line.number, f"PFC is shown for {len(facts['pfc'])} of 8 priorities"))
        elif key == "dscp-prio":
            _mapped(facts, pairs)
        elif key == "prio-tc":
            facts["priority_to_tc"] = {number: int(tc) for number, tc in pairs if tc.isdigit()}
        elif key == "prio-buffer":
            owners = [int(owner) for _, owner in pairs if owner.isdigit()]
            facts["buffers"] = {**(facts["buffers"] or {}), "of_priority": owners}
        elif key == "buffer-size" and all(re.fullmatch(r"\d{1,12}b?", size) for _, size in pairs):
            sizes = [int(size.removesuffix("b")) for _, size in pairs]
            facts["buffers"] = {**(facts["buffers"] or {}), "sizes": sizes}
    return cut


def _mapped(facts: dict[str, Any], pairs: Iterable[Sequence[str]]) -> None:
    """Take DSCPs by name or number; the kernel trusts DSCP as soon as one entry is there."""
    mapped = facts["dscp_to_priority"] = facts["dscp_to_priority"] or {}
    for dscp, priority in pairs:
        code = int(dscp) if dscp.isdigit() else _DSCP.get(dscp.upper())
        if code is not None and priority.isdigit():
            mapped[str(code)] = int(priority)
    facts["trust"] = "dscp" if mapped else facts["trust"]


KINDS = (OutputFormat("dcb", _begins, _take),)
