"""RoCE QoS of a port: ``mlnx_qos -i DEVICE`` and ``dcb pfc|app|ets|buffer show``, also as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from preflight.reading.blocks import block
from preflight.reading.kinds.verbs import json_at
from preflight.reading.lines import Lines
from preflight.reading.parts import Cut, Kind, Taken

#: Names of DSCPs, as ``dcb app show`` prints them without ``-N`` (RFC 2474, 2597, 3246, 5865).
_DSCP = {
    **{f"CS{number}": number * 8 for number in range(8)},
    **{f"AF{high}{low}": high * 8 + low * 2 for high in range(1, 5) for low in range(1, 4)},
    "EF": 46, "VA": 44,
}  # fmt: skip


def _facts() -> dict[str, Any]:
    return {
        "trust": None, "pfc": None, "dscp_to_priority": None, "priority_to_tc": None, "buffers": None, "dcbx": None,
    }  # fmt: skip


def _summary(facts: dict[str, Any]) -> str:
    pfc = facts["pfc"]
    on = "unknown" if pfc is None else ", ".join(p for p, enabled in pfc.items() if enabled) or "none"
    return f"trust {facts['trust'] or 'unknown'}, PFC on priorities: {on}"


# --- mlnx_qos ----------------------------------------------------------------------------------------

_MLNX = re.compile(
    r"\s*(?:(?P<dcbx>DCBX mode:\s*(?P<mode>.*))|Priority trust (?:state|mode):\s*(?P<trust>\w+)"
    r"|(?P<mapping>dscp2prio mapping:\s*(?:prio:.*)?)|(?P<dscps>prio:\d\s+dscp:.*)"
    r"|(?P<default>default priority:.*)|Receive buffer size \(bytes\):\s*(?P<buffer>[\d,=\w ]*)"
    r"|(?P<cable>Cable len:\s*\d*)|Enabled TC:.*|priority:?\s+(?P<numbers>\d(?:\s+\d)+)"
    r"|(?P<pfc>PFC configuration:)(?:\s*enabled:?\s+(?P<beside>[01](?:\s+[01])*))?"
    r"|enabled:?\s+(?P<enabled>[01](?:\s+[01])*)"
    r"|buffer:?\s+(?P<buffers>[\d\s]+)"
    r"|tc:\s*(?P<tc>\d)\s+ratelimit:\s*(?P<limit>[^,]*),\s*tsa:\s*(?P<tsa>\w+).*|priority:\s*(?P<of>\d))\s*"
)
#: Where a paste leaves DSCPs out, ``07,…,00``, those that it shows are told.
_PRIO_DSCPS = re.compile(r"prio:(\d)\s+dscp:([\d,.…\s]*)(?=prio:|$)")


def _begins_mlnx(lines: Lines, at: int) -> bool:
    match = _MLNX.fullmatch(lines[at].text)
    return bool(match and (match["dcbx"] or match["trust"] or match["mapping"] or match["pfc"]))


def _take_mlnx(lines: Lines, at: int) -> Taken:
    facts, cut, tc = _facts(), list[Cut](), ""
    facts["tsa"] = {}
    end, taken = block(
        lines, at, lambda text: bool(_MLNX.fullmatch(text)), blanks=1,
        again=lambda text: text.lstrip().startswith("DCBX mode"),
    )  # fmt: skip
    for line in taken:
        match = _MLNX.fullmatch(line.text)
        assert match
        if match["dcbx"]:
            facts["dcbx"] = match["mode"].strip() or None
        elif match["trust"]:
            facts["trust"] = match["trust"].lower()
        elif match["dscps"] or match["mapping"]:
            for priority, dscps in _PRIO_DSCPS.findall(line.text):
                mapped = facts["dscp_to_priority"] = facts["dscp_to_priority"] or {}
                mapped.update({number: int(priority) for number in re.findall(r"\d+", dscps)})
        elif match["buffer"]:
            sizes = re.findall(r"(?<![=\w])\d+", match["buffer"])
            most = re.search(r"max_buffer_size=(\d+)", match["buffer"])
            facts["buffers"] = {
                "sizes": [int(size) for size in sizes], "max_buffer_size": int(most[1]) if most else None,
            }  # fmt: skip
        elif enabled := match["enabled"] or match["beside"]:
            bits = enabled.split()
            if len(bits) == 8:
                facts["pfc"] = {str(number): bit == "1" for number, bit in enumerate(bits)}
            else:
                cut.append(Cut(line.number, f"PFC is shown for {len(bits)} of 8 priorities"))
        elif match["buffers"]:
            owners = [int(owner) for owner in match["buffers"].split()]
            facts["buffers"] = {**(facts["buffers"] or {}), "of_priority": owners}
        elif match["tc"]:
            tc = match["tc"]
            facts["tsa"][tc] = match["tsa"]
        elif match["of"] and tc:
            facts["priority_to_tc"] = {**(facts["priority_to_tc"] or {}), match["of"]: int(tc)}
    if facts["pfc"] is None and not cut:
        cut.append(Cut(taken[-1].number, "the PFC configuration is missing"))
    if facts["trust"] is None:
        cut.append(Cut(taken[-1].number, "the trust state is missing"))
    return Taken(end, facts, _summary(facts), cut)


# --- dcb ---------------------------------------------------------------------------------------------

_DCB_WORDS = (
    r"pfc-cap|prio-pfc|prio-buffer|buffer-size|total-size|prio-tc|tc-bw|tc-tsa|reco-[a-z-]+|dscp-prio|default-prio"
    r"|ethtype-prio|stream-port-prio|dgram-port-prio|port-prio|pcp-prio|ets-cap|cbs|willing|prio-delay|macsec-bypass"
)
_DCB_KEY = re.compile(rf"\s*(?:[\w.@-]{{1,64}}:\s+)?(?:{_DCB_WORDS})(?:\s+.*)?\s*")
#: A key and its values up to the next one: some versions print all of them on one line.
_DCB_PAIRS = re.compile(rf"\b({_DCB_WORDS})((?:\s+[A-Za-z0-9]{{1,8}}:\w{{1,12}})*)")


_JSON_KEYS = frozenset(("prio_pfc", "dscp_prio", "prio_tc", "prio_buffer", "pfc_cap"))


def _begins_dcb(lines: Lines, at: int) -> bool:
    text = lines[at].text
    if text.lstrip().startswith("{") and any(key in line.text for line in lines[at : at + 8] for key in _JSON_KEYS):
        return _dcb_json(lines, at) is not None
    return bool(_DCB_KEY.fullmatch(text))


def _dcb_json(lines: Lines, at: int) -> tuple[int, dict[str, Any]] | None:
    found = json_at(lines, at, 2000)
    if found is None or not isinstance(found[1], dict):
        return None
    return (found[0], found[1]) if _JSON_KEYS & found[1].keys() else None


def _take_dcb(lines: Lines, at: int) -> Taken:
    facts, cut = _facts(), list[Cut]()
    if told := _dcb_json(lines, at) if lines[at].text.lstrip().startswith("{") else None:
        end, value = told
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
        return Taken(end, facts, _summary(facts))
    end, taken = block(lines, at, lambda text: bool(_DCB_KEY.fullmatch(text)), blanks=0)
    for line in taken:
        for key, values in _DCB_PAIRS.findall(line.text):
            pairs = re.findall(r"([A-Za-z0-9]{1,8}):(\w{1,12})", values)
            if key == "prio-pfc":
                facts["pfc"] = {number: word == "on" for number, word in pairs if number.isdigit()}
                if len(facts["pfc"]) < 8:
                    cut.append(Cut(line.number, f"PFC is shown for {len(facts['pfc'])} of 8 priorities"))
            elif key == "dscp-prio":
                _mapped(facts, pairs)
            elif key == "prio-tc":
                facts["priority_to_tc"] = {number: int(tc) for number, tc in pairs if tc.isdigit()}
            elif key == "prio-buffer":
                facts["buffers"] = {"of_priority": [int(owner) for _, owner in pairs if owner.isdigit()]}
    return Taken(end, facts, _summary(facts), cut)


def _mapped(facts: dict[str, Any], pairs: Iterable[Sequence[str]]) -> None:
    """Take DSCPs by name or number; the kernel trusts DSCP as soon as one entry is there."""
    mapped = facts["dscp_to_priority"] = facts["dscp_to_priority"] or {}
    for dscp, priority in pairs:
        code = int(dscp) if dscp.isdigit() else _DSCP.get(dscp.upper())
        if code is not None and priority.isdigit():
            mapped[str(code)] = int(priority)
    facts["trust"] = "dscp" if mapped else facts["trust"]


KINDS = (
    Kind("mlnx_qos", _begins_mlnx, _take_mlnx),
    Kind("dcb", _begins_dcb, _take_dcb),
)
