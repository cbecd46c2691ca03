"""``rdma link`` (iproute2), as text or JSON: ports and their interfaces."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.rdma.port_list import PortList, RdmaPort, facts, summary, word
from preflight.parsers.text_block import json_at, number, stops_in
from preflight.textprep.lines import Lines
from preflight.textprep.numbered_text import left_out

__all__ = ["HINTS", "begins", "facts", "parse_lines", "summary"]

HINTS = ("/", "[")

#: States of a port, which other objects of ``rdma`` do not have.
_STATES = frozenset(("ACTIVE", "DOWN", "INIT", "ARMED", "NOP", "DEFER", "ACTIVE_DEFER", "UNKNOWN"))
_RDMA_LINK = re.compile(
    r"\s*(?:\S.{0,80}[\s:：](?=link ))?(?:\d{1,5}(?:/\d{1,3})?:\s*)?(?:link )?([A-Za-z][\w.-]{0,63})/(\d{1,3}):?\s+"
    r"((?:(?:subnet_prefix|lid|sm_lid|lmc|ifindex|ifname|netdev|netdev_index|cap_mask|link_layer) \S+\s+){0,20}"
    rf"state (?:{'|'.join(sorted(_STATES))})(?:\s.*)?)"
)


#: Fields of a port in JSON that must be words or numbers.
_WORDS = {"port", "physical_state", "netdev", "lid", "sm_lid"}
#: A line that was wrapped before the state.
_RDMA_HEAD = re.compile(
    r"\s*(?:\d{1,5}(?:/\d{1,3})?:\s*)?(?:link )?[A-Za-z][\w.-]{0,63}/\d{1,3}:?\s+subnet_prefix"
    r" \S+(?:\s+\w+ \S+){0,10}(?:\s+\w+)?\s*"
)


_LINK_BEGUN = re.compile(
    r"\s*(?:(?:\d{1,5}(?:/\d{1,3})?:\s*)?link\s+[A-Za-z][\w.-]{0,63}(?:/|$)|\d{1,5}/\d{1,3}:\s+\w)"
)
_CAPABILITIES = re.compile(r"\s+caps:\s*<.*|\s+[A-Z][A-Z0-9_]+(?:, [A-Z][A-Z0-9_]+)*[,>]\s*")


def _link_at(lines: Lines, at: int) -> tuple[re.Match[str], int] | None:
    """Return a link and the index after it, or None; an email may have wrapped it."""
    if at >= len(lines):
        return None
    text = lines[at].text
    if match := _RDMA_LINK.fullmatch(text):
        return match, at + 1
    if "subnet_prefix" in text and at + 1 < len(lines) and _RDMA_HEAD.fullmatch(text):
        match = _RDMA_LINK.fullmatch(f"{text} {lines[at + 1].text.strip()}")
        return (match, at + 2) if match else None
    return None


def _over(lines: Lines, at: int) -> int:
    """Return the index after omitted lines, a blank line and capabilities (``-d``)."""
    blanks = 0
    while at < len(lines) and blanks < 2:
        text = lines[at].text
        if text.strip() and not left_out(text) and not _CAPABILITIES.fullmatch(text):
            break
        blanks += not text.strip()
        at += 1
    return at


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``rdma link`` output begins at a line."""
    text = lines[at].text
    if text.lstrip().startswith("[") and any('"ifname"' in line.text for line in lines[at : at + 5]):
        return _rdma_json(lines, at) is not None
    return "/" in text and _link_at(lines, at) is not None


def _rdma_json(lines: Lines, at: int) -> tuple[int, list[dict[str, Any]]] | None:
    result = json_at(lines, at)
    if result is None or not isinstance(result[1], list) or not result[1]:
        return None
    wanted = {"ifname", "port", "state"}
    for entry in result[1]:
        if not isinstance(entry, dict) or not wanted <= entry.keys() or str(entry["state"]) not in _STATES:
            return None
        if not isinstance(entry["ifname"], str):
            return None
    return result


def parse_lines(lines: Lines, at: int) -> Parsed[PortList]:
    """Read the links."""
    ports, cut = list[RdmaPort](), list[ParseGap]()
    if document := _rdma_json(lines, at):
        end, entries = document
        for entry in entries:
            fields = {name: str(value) for name, value in entry.items() if isinstance(value, str | int)}
            ports.append(_port(entry["ifname"], number(fields.get("port")), lines[at].number, fields))
            cut += [
                ParseGap(
                    lines[at].number,
                    f"the {name} of {entry['ifname']} port {ports[-1].number} is neither text nor a number",
                )
                for name in sorted((entry.keys() - fields.keys()) & _WORDS)
            ]
        return Parsed(PortList(tuple(ports)), tuple(cut), end)
    end = at
    while result := _link_at(lines, _over(lines, end)):
        match, end = result
        words = match[3].split()
        fields = dict(zip(words[::2], words[1::2], strict=False))
        ports.append(_port(match[1], int(match[2]), lines[end - 1].number, fields))
        if ports[-1].physical_state is None:
            cut.append(
                ParseGap(lines[end - 1].number, f"the physical state of {match[1]} port {match[2]} is truncated")
            )
    if stops_in(lines, end, _LINK_BEGUN):
        cut.append(ParseGap(lines[end - 1].number, "the text stops within another link"))
    return Parsed(PortList(tuple(ports)), tuple(cut), end)


def _port(device: str, port: int | None, line: int, fields: Mapping[str, Any]) -> RdmaPort:
    def lid(name: str) -> int | None:
        return number(str(fields[name])) if name in fields else None

    return RdmaPort(
        device, port, line, fields.get("state"), word(fields.get("physical_state")), lid=lid("lid"),
        sm_lid=lid("sm_lid"), netdev=fields.get("netdev"),
    )  # fmt: skip
