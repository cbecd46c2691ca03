"""``show_gids`` (mlnx-tools): the GID tables of RoCE ports."""

from __future__ import annotations

import re
from typing import Any

from preflight._startup.lightclass import replace
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.rdma.gid_row import GidRow, mapped_ipv4
from preflight.parsers.text_block import block
from preflight.textprep.agreement import counted
from preflight.textprep.lines import Lines

HINTS = ("GID", ":")

_GIDS_HEAD = re.compile(r"\s*DEV\s+PORT\s+INDEX\s+GID\s.*")
_FULL_GID = r"[0-9a-fA-FxX*]{4}(?::[0-9a-fA-FxX*]{4}){7}"
_TAIL = (
    r"(?:\s+(?P<ipv4>\d{1,3}(?:\.\d{1,3}){3}))?(?:\s+(?P<version>(?i:(?:IB/)?RoCE ?v[12]|v[12]|IB)))?"
    r"(?:\s+(?P<netdev>[A-Za-z][\w.@-]{0,63}))?\s*"
)
#: Remains of an address or a version in a truncated row.
_TORN = r"(?:\s+(?:\d{1,3}(?:\.\d{0,3}){0,2}|\d{1,3}(?:\.\d{1,3}){2}\.|v)\s*)?"
_GID_ROW = re.compile(
    rf"\s*(?P<device>[A-Za-z][\w.-]{{0,63}})\s+(?P<port>\d{{1,3}})\s+(?P<index>\d{{1,4}})\s+"
    rf"(?P<gid>{_FULL_GID}|(?=\S{{0,40}}:\S{{0,40}}:)[0-9a-fA-F]{{0,4}}:[0-9a-fA-F:.…]{{3,44}})(?:{_TORN}|{_TAIL})"
)
#: The rest of a row that was wrapped after the GID or the address, or of the wrapped header.
_GID_REST = re.compile(rf"(?=.*\b(?:v[12]|IB)\b){_TAIL}|\s*VER\s+DEV\s*", re.IGNORECASE)
_NETDEV = re.compile(r"\s*[A-Za-z][\w.@-]{0,63}\s*")
#: Minimum length of a row that may have been wrapped before its last word.
_BROKEN = 50
#: Minimum number of vertical rules in a row of a drawn table.
_LINES_OF_A_TABLE = 5
_GIDS_RULE = re.compile(r"[\s-]{3,}")
_GIDS_FOUND = re.compile(r"\s*n_gids_found=(\d{1,6})\s*")


def _gid(text: str) -> str | None:
    """Return a GID, even with masked digits; None if it is truncated."""
    *before, last = text.split(":")
    torn = "::" not in text and (len(before) < 7 or (len(last) < 4 and all(len(group) == 4 for group in before)))
    return None if torn or ".." in text or "…" in text else text.lower()


def _version(text: str | None) -> str | None:
    """Return ``v1``, ``v2`` or ``IB`` for a version in any spelling, or None."""
    return (f"v{text[-1]}" if text[-1].isdigit() else "IB") if text else None


def _plain(text: str) -> str:
    """Return a row without the vertical rules of a drawn table."""
    return text.replace("|", " ") if text.count("|") >= _LINES_OF_A_TABLE else text


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``show_gids`` output begins at a line."""
    text = _plain(lines[at].text)
    return bool(_GIDS_HEAD.fullmatch(text) or _GID_ROW.fullmatch(text))


def parse_lines(lines: Lines, at: int) -> Parsed[tuple[GidRow, ...]]:
    """Read the rows of the table."""
    gids: list[GidRow] = []
    cut, promised = list[ParseGap](), None

    last = _GID_ROW.fullmatch(_plain(lines[at].text))

    def belongs(text: str) -> bool:
        nonlocal last
        text = _plain(text)
        if match := _GID_ROW.fullmatch(text):
            last = match
            return True
        if last and last["version"] and not last["netdev"] and len(last[0]) >= _BROKEN and _NETDEV.fullmatch(text):
            last = None
            return True
        return bool(
            _GIDS_HEAD.fullmatch(text) or _GIDS_RULE.fullmatch(text) or _GIDS_FOUND.fullmatch(text)
            or _GID_REST.fullmatch(f" {text}")
        )  # fmt: skip

    end, taken = block(lines, at, belongs, blanks=1)
    for line in taken:
        if match := _GIDS_FOUND.fullmatch(line.text):
            promised = int(match[1])
            break
        if match := _GID_ROW.fullmatch(_plain(line.text)):
            dotted = mapped_ipv4(match["gid"]) if "." in match["gid"] else None
            gids.append(GidRow(
                match["device"], int(match["port"]), int(match["index"]), _gid(match["gid"]), match["ipv4"] or dotted,
                _version(match["version"]), match["netdev"], line.number,
            ))  # fmt: skip
        elif gids and gids[-1].version and not gids[-1].netdev and _NETDEV.fullmatch(line.text):
            gids[-1] = replace(gids[-1], netdev=line.text.strip())
        elif gids and (match := _GID_REST.fullmatch(f" {line.text}")) and match["version"] and not gids[-1].version:
            gids[-1] = replace(gids[-1], ipv4=match["ipv4"] or gids[-1].ipv4, version=_version(match["version"]),
                               netdev=match["netdev"])  # fmt: skip
    if promised is None:
        cut.append(ParseGap(taken[-1].number, "the line n_gids_found=… that ends the list is missing"))
    elif promised != len(gids):
        cut.append(ParseGap(taken[-1].number, f"the list announces {promised} GIDs but shows {len(gids)}"))
    return Parsed(tuple(gids), tuple(cut), end)


def facts(gids: tuple[GidRow, ...]) -> dict[str, Any]:
    """Return the table as `preflight read --json` prints it."""
    return {"gids": [row.document() for row in gids]}


def summary(gids: tuple[GidRow, ...]) -> str:
    """Return a one-line summary of the table."""
    v2 = sum(row.version == "v2" and row.ipv4 is not None for row in gids)
    return f"{counted(len(gids), 'GID')}, {v2} of them RoCE v2 with an IPv4 address"
