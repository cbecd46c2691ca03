"""The annotation ``network-status`` of Multus."""

from __future__ import annotations

import json
import re
from typing import Any

from preflight.evidence import json_limits
from preflight.parsers.text_block import json_at
from preflight.recognition.detector import OutputFormat, ParsedPart, TextGap
from preflight.textprep.lines import Lines

#: Where one network's entry ends and the next begins.
_NEXT_NETWORK = re.compile(r"\s*},\s*{\s*")


#: Characters of one network's entry that are looked at where its end is missing.
_LONGEST_NETWORK = 4000

#: The annotation that requests networks; their status is in another.
_REQUESTED_NETWORKS = re.compile(r"cncf\.io/networks\b(?!-status)")
#: The annotation, which was called ``networks-status`` at first; older kubectl puts ``=`` behind its name.
_ANNOTATION = re.compile(r"\bnetworks?-status\b")


#: A list of objects; a prompt begins with a bracket as well.
_LIST = re.compile(r"\s*\[\s*(?:\{|$)")


def _begins_status(lines: Lines, at: int) -> bool:
    text = lines[at].text
    if _NEXT_NETWORK.fullmatch(text):  # the head was cut off
        near = " ".join(line.text[:4000] for line in lines[at + 1 : at + 6])
        return '"name"' in near and ('"interface"' in near or '"ips"' in near)
    if "-status" in text and _ANNOTATION.search(text):
        return any("[" in line.text or "{" in line.text for line in lines[at : at + 3])
    if not _LIST.match(text) or (at and _REQUESTED_NETWORKS.search(lines[at - 1].text)):
        return False
    near = " ".join(line.text[:4000] for line in lines[at : at + 8])
    return '"name"' in near and any(key in near for key in ('"interface"', '"dns"', '"default"', '"device-info"'))


def _take_status(lines: Lines, at: int) -> ParsedPart:
    networks: list[dict[str, Any]] = []
    cut = list[TextGap]()
    parsed = None if _NEXT_NETWORK.fullmatch(lines[at].text) else _status(lines, at)
    if parsed is None:
        parsed = _cut_status(lines, at)
        cut.append(TextGap(lines[parsed[0] - 1].number, "the JSON of the network status is not whole"))
    end, value = parsed
    for entry in value:
        info = entry.get("device-info")
        details = list(info.values()) if isinstance(info, dict) else []
        rdma = next((one["rdma-device"] for one in details if isinstance(one, dict) and "rdma-device" in one), None)
        networks.append({
            "name": entry.get("name"), "interface": entry.get("interface"), "ips": entry.get("ips", []),
            "mac": entry.get("mac"), "rdma_device": rdma, "default": entry.get("default"), "mtu": entry.get("mtu"),
        })  # fmt: skip
    return ParsedPart(end, {"networks": networks}, f"{len(networks)} networks", cut)


def _cut_status(lines: Lines, at: int) -> tuple[int, list[dict[str, Any]]]:
    """Return the networks that are whole in a list that is not, and where what may be part of it ends."""
    headless = _NEXT_NETWORK.fullmatch(lines[at].text)
    begun = next((index for index in range(at, min(at + 3, len(lines))) if "[" in lines[index].text), at)
    begun = at if headless else begun
    end = begun + 1
    while end < len(lines) and re.fullmatch(r"\s*(?:[\]\[{}\",].*)?", lines[end].text) and lines[end].text.strip():
        end += 1
    first = "{" if headless else lines[begun].text.partition("[")[2]
    text = "\n".join([first, *(line.text for line in lines[begun + 1 : end])])
    found: list[dict[str, Any]] = []
    place = 0
    while (match := re.compile(r"[\s,]*").match(text, place)) and text[match.end() : match.end() + 1] == "{":
        try:
            value, place = json_limits.begun(text, match.end())
        except (ValueError, RecursionError):
            if _is_status([value := _begun(text[match.end() :])]):
                found.append({"ips": None, **value})
            break
        if _is_status([value]):
            found.append(value)
    return end, found


def _begun(text: str) -> dict[str, Any]:
    """Return the members that are whole in an object whose end was cut off."""
    closing, inside = list[str](), False
    places: list[tuple[int, str]] = []
    for match in re.finditer(r'\\.|["\[\]{},]', text[:_LONGEST_NETWORK]):
        sign = match[0]
        if sign == '"':
            inside = not inside
        elif inside or sign[0] == "\\":
            continue
        elif sign in "[{":
            closing.append("]" if sign == "[" else "}")
        elif sign in "]}":
            closing = closing[:-1]
        else:
            places.append((match.start(), "".join(reversed(closing))))
    ends = text[:_LONGEST_NETWORK].rstrip()
    if not inside and ends.endswith(('"', "]", "}")):
        places.append((len(ends), "".join(reversed(closing))))
    for place, rest in places[:-4:-1]:
        try:
            value = json.loads(text[:place] + rest)
        except (ValueError, RecursionError):
            continue
        return value if isinstance(value, dict) else {}
    return {}


def _status(lines: Lines, at: int) -> tuple[int, list[dict[str, Any]]] | None:
    """Find the list, which may stand alone, behind its annotation's name, or quoted in one line."""
    text = lines[at].text
    name = _ANNOTATION.search(text)
    start = text.find("[", name.end() if name else 0)
    quoted = _quoted_list(text)
    if '\\"' in quoted:
        try:
            value = json_limits.text(quoted.replace("\\n", " ").replace('\\"', '"'))
        except (ValueError, RecursionError):
            return None
        return (at + 1, value) if _is_status(value) else None
    if start < 0:
        start, at = 0, at + 1
        if at == len(lines):
            return None
    rest = [type(lines[at])(lines[at].number, text[start:] if start else lines[at].text), *lines[at + 1 : at + 2000]]
    if len(rest) > 1 and '\\"' in rest[1].text:  # an annotation's file, with the quotes kept from the shell
        rest = [type(line)(line.number, line.text.replace('\\"', '"')) for line in rest]
    # `kubectl describe` goes on over lines that begin with blanks
    found = json_at(rest, 0)
    return (at + found[0], found[1]) if found and _is_status(found[1]) else None


#: How a list in quotes begins, and how it ends with its line; one pattern for both would look for the end from each
#: beginning.
_QUOTE_BEGINS, _QUOTE_ENDS = re.compile(r"""["']\["""), re.compile(r"""\]["']\s*,?\s*$""")


def _quoted_list(text: str) -> str:
    """Return the list that stands in quotes at the end of a line.

    Empty where none does.
    """
    begin, end = _QUOTE_BEGINS.search(text), _QUOTE_ENDS.search(text)
    return text[begin.start() + 1 : end.start() + 1] if begin and end and begin.end() <= end.start() else ""


def _is_status(value: Any) -> bool:
    return (
        isinstance(value, list) and bool(value) and all(isinstance(entry, dict) and "name" in entry for entry in value)
    )


KINDS = (
    OutputFormat("network-status", _begins_status, _take_status, hints=("network-status", "networks-status", "[", "}")),
)
