"""Files of RDMA ports in sysfs, as ``grep .`` lists them."""

from __future__ import annotations

import re

from preflight.parsers.parsed import Parsed
from preflight.parsers.rdma.port_list import PortList, RdmaPort, facts, summary, word
from preflight.parsers.rdma.port_values import rate, state
from preflight.parsers.text_block import is_prompt, number
from preflight.textprep.lines import Lines

__all__ = ["HINTS", "begins", "facts", "parse_lines", "summary"]

HINTS = ("/ports/",)

_NAMES = ("state", "phys_state", "rate", "link_layer", "lid", "sm_lid")
_PATH = rf"(?:\S{{0,200}}/)?([A-Za-z][\w.-]{{0,63}})/ports/(\d{{1,3}})/({'|'.join(_NAMES)})"
_LINE = re.compile(rf"\s*{_PATH}\s{{0,4}}[:=]\s{{0,4}}(\S.{{0,80}}?)\s*")
#: Other files of a port, which are skipped.
_OTHER = re.compile(r"\s*\S{0,200}/ports/\d{1,3}/\w{1,40}(?:/\d{1,3})?\s{0,4}:.{0,200}")


def begins(lines: Lines, at: int) -> bool:
    """Return whether a list of these files begins at a line."""
    return _LINE.fullmatch(lines[at].text) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[PortList]:
    """Read the files of all ports, in order of the ports' first lines."""
    ports: dict[tuple[str, int], dict[str, str]] = {}
    first: dict[tuple[str, int], int] = {}
    end = last = at
    while end < len(lines):
        text = lines[end].text
        if match := _LINE.fullmatch(text):
            place, name, value = (match[1], int(match[2])), match[3], match[4]
        elif end > at and (is_prompt(text) or (text.strip() and not _OTHER.fullmatch(text))):
            break
        else:
            end += 1
            continue
        ports.setdefault(place, {}).setdefault(name, value)
        first.setdefault(place, lines[end].number)
        end += 1
        last = end
    return Parsed(PortList(tuple(_port(place, fields, first[place]) for place, fields in ports.items())), (), last)


def _port(place: tuple[str, int], fields: dict[str, str], line: int) -> RdmaPort:
    return RdmaPort(
        place[0], place[1], line, word(state(fields.get("state", ""))), word(state(fields.get("phys_state", ""))),
        rate(fields.get("rate")), word(fields.get("link_layer")),
        number(fields.get("lid")), number(fields.get("sm_lid")), rate=fields.get("rate", ""),
    )  # fmt: skip
