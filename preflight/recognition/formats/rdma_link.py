"""Ports and their interfaces: ``rdma link`` (iproute2) and ``ibdev2netdev`` (mlnx-tools)."""

from __future__ import annotations

import re
from typing import Any

from preflight.recognition.detector import OutputFormat, ParsedPart, TextGap, left_out
from preflight.recognition.formats.rdma_port_lines import port_of, summary, word
from preflight.parsers.text_block import block, json_at, number, stops_in
from preflight.textprep.lines import Lines

# --- rdma link ---------------------------------------------------------------------------------------

#: States of a port; other objects of ``rdma`` have others.
_STATES = frozenset(("ACTIVE", "DOWN", "INIT", "ARMED", "NOP", "DEFER", "ACTIVE_DEFER", "UNKNOWN"))
_RDMA_LINK = re.compile(
    r"\s*(?:\S.{0,80}[\s:：](?=link ))?(?:\d{1,5}(?:/\d{1,3})?:\s*)?(?:link )?([A-Za-z][\w.-]{0,63})/(\d{1,3}):?\s+"
    r"((?:(?:subnet_prefix|lid|sm_lid|lmc|ifindex|ifname|netdev|netdev_index|cap_mask|link_layer) \S+\s+){0,20}"
    rf"state (?:{'|'.join(sorted(_STATES))})(?:\s.*)?)"
)


#: A line that was broken before the state, and what followed there.
_RDMA_HEAD = re.compile(
    r"\s*(?:\d{1,5}(?:/\d{1,3})?:\s*)?(?:link )?[A-Za-z][\w.-]{0,63}/\d{1,3}:?\s+subnet_prefix"
    r" \S+(?:\s+\w+ \S+){0,10}(?:\s+\w+)?\s*"
)


_LINK_BEGUN = re.compile(
    r"\s*(?:(?:\d{1,5}(?:/\d{1,3})?:\s*)?link\s+[A-Za-z][\w.-]{0,63}(?:/|$)|\d{1,5}/\d{1,3}:\s+\w)"
)
_CAPABILITIES = re.compile(r"\s+caps:\s*<.*|\s+[A-Z][A-Z0-9_]+(?:, [A-Z][A-Z0-9_]+)*[,>]\s*")


def _link_at(lines: Lines, at: int) -> tuple[re.Match[str], int] | None:
    """Return a link, and the line behind it: a mail may have broken it in two."""
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
    """Return the line behind those that were left out, behind a blank one, and behind capabilities (``-d``)."""
    blanks = 0
    while at < len(lines) and blanks < 2:
        text = lines[at].text
        if text.strip() and not left_out(text) and not _CAPABILITIES.fullmatch(text):
            break
        blanks += not text.strip()
        at += 1
    return at


def _begins_rdma_link(lines: Lines, at: int) -> bool:
    text = lines[at].text
    if text.lstrip().startswith("[") and any('"ifname"' in line.text for line in lines[at : at + 5]):
        return _rdma_json(lines, at) is not None
    return "/" in text and _link_at(lines, at) is not None


def _rdma_json(lines: Lines, at: int) -> tuple[int, list[dict[str, Any]]] | None:
    found = json_at(lines, at)
    if found is None or not isinstance(found[1], list) or not found[1]:
        return None
    wanted = {"ifname", "port", "state"}
    for entry in found[1]:
        if not isinstance(entry, dict) or not wanted <= entry.keys() or str(entry["state"]) not in _STATES:
            return None
    return found


def _take_rdma_link(lines: Lines, at: int) -> ParsedPart:
    ports = []
    if document := _rdma_json(lines, at):
        end, entries = document
        for entry in entries:
            ports.append(_rdma_port(str(entry["ifname"]), number(str(entry["port"])), entry))
        return ParsedPart(end, {"ports": ports}, summary(ports))
    end, cut = at, list[TextGap]()
    while found := _link_at(lines, _over(lines, end)):
        match, end = found
        words = match[3].split()
        fields = dict(zip(words[::2], words[1::2], strict=False))
        ports.append(_rdma_port(match[1], int(match[2]), fields))
        if ports[-1]["physical_state"] is None:
            cut.append(TextGap(lines[end - 1].number, f"the physical state of {match[1]} port {match[2]} is not whole"))
    if stops_in(lines, end, _LINK_BEGUN):
        cut.append(TextGap(lines[end - 1].number, "the text stops within another link"))
    return ParsedPart(end, {"ports": ports}, summary(ports), cut)


def _rdma_port(device: str, port: int | None, fields: dict[str, Any]) -> dict[str, Any]:
    return {
        **port_of(device, port),
        "state": fields.get("state"), "physical_state": word(fields.get("physical_state")),
        "netdev": fields.get("netdev"),
        "lid": number(str(fields["lid"])) if "lid" in fields else None,
        "sm_lid": number(str(fields["sm_lid"])) if "sm_lid" in fields else None,
    }  # fmt: skip


# --- ibdev2netdev ------------------------------------------------------------------------------------

_IBDEV = re.compile(
    r"(?:(?:.{0,80}[\s#])?(?P<device>[A-Za-z][\w.-]{0,63})\s+(?:\([Mm][Tt]\d.{0,300}?)?"
    r"|[^(]{0,200}\sfw [\d.]+\s+)"  # or the line has lost its beginning
    r"port\s+(?P<port>\d{1,3})\s+(?:\(\s*(?P<state>\w+)\s*\)\s+)?==>\s+(?P<netdev>\S{1,64})\s+\((?P<up>\w+)\)"
    r"(?:\s+\S.{0,100})?"
)


_IBDEV_BEGUN = re.compile(r"\s*[A-Za-z]\w{0,40}_?\d{1,3}\s+po?r?t?(?:\s+\d.*)?$")


def _begins_ibdev(lines: Lines, at: int) -> bool:
    return "==>" in lines[at].text and bool(_IBDEV.fullmatch(lines[at].text))


def _take_ibdev(lines: Lines, at: int) -> ParsedPart:
    ports, cut = [], list[TextGap]()
    end, taken = block(lines, at, lambda text: "==>" in text and bool(_IBDEV.fullmatch(text)), blanks=1)
    for line in taken:
        match = _IBDEV.fullmatch(line.text)
        assert match
        if match["device"] is None:
            cut.append(TextGap(line.number, "the beginning of the line, which names the device, is missing"))
        # (Up) is the interface's state: an InfiniBand port may work with IPoIB down
        ports.append({
            **port_of(match["device"], int(match["port"])), "state": match["state"], "netdev": match["netdev"],
            "netdev_state": match["up"],
        })  # fmt: skip
    if stops_in(lines, end, _IBDEV_BEGUN):
        cut.append(TextGap(lines[end - 1].number, "the text stops within another port"))
    down = [port["netdev"] for port in ports if port["netdev_state"] == "Down"]
    overview = f"{len(ports)} ports, interface down: {', '.join(down[:8]) if down else 'none'}"
    return ParsedPart(end, {"ports": ports}, overview, cut)


KINDS = (
    OutputFormat("rdma link", _begins_rdma_link, _take_rdma_link, hints=("/", "[")),
    OutputFormat("ibdev2netdev", _begins_ibdev, _take_ibdev, hints=("==>",)),
)
