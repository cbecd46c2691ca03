"""The annotation ``network-status`` of Multus: the networks of a pod, as JSON.

Only the name of a network is required. Source: Kubernetes Network Custom Resource Definition De-facto Standard.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.evidence import json_limits
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import json_at
from preflight.textprep.agreement import counted
from preflight.textprep.lines import Lines

HINTS = ("network-status", "networks-status", "[", "}")


@dataclass(frozen=True)
class PodNetwork:
    """One network that the pod is attached to."""

    name: str  # NAMESPACE/NAME of the network attachment
    interface: str = ""  # as in net1
    ips: tuple[str, ...] | None = ()  # None if the list is truncated
    default: bool = False  # whether it is the cluster's default network
    rdma_device: str = ""  # device-info.pci.rdma-device
    pci_address: str = ""  # device-info.pci.pci-address
    mac: str | None = None
    mtu: int | None = None
    line: int = 0


def parse_network_status(text: str) -> tuple[PodNetwork, ...]:
    """Read the JSON of the annotation; raises ValueError."""
    try:
        value = json_limits.text(text)
    except ValueError:
        raise ValueError(f"{text.strip()[:80]!r} is not JSON") from None
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise ValueError("the network status is not a list of networks")
    return tuple(_network(entry, 0) for entry in value)


def _network(entry: Mapping[str, Any], line: int) -> PodNetwork:
    name, ips, info = entry.get("name"), entry.get("ips", []), entry.get("device-info")
    # only the default network may have no name
    if not isinstance(name, str) or (not name and entry.get("default") is not True):
        raise ValueError("a network in the status has no name")
    details = [item for item in info.values() if isinstance(item, dict)] if isinstance(info, dict) else []
    device = next((item for item in details if "rdma-device" in item), details[0] if details else {})
    mac, mtu = entry.get("mac"), entry.get("mtu")
    return PodNetwork(
        name,
        str(entry.get("interface") or ""),
        tuple(map(str, ips)) if isinstance(ips, list) else None,
        entry.get("default") is True,
        str(device.get("rdma-device") or ""),
        str(device.get("pci-address") or ""),
        mac if isinstance(mac, str) else None,
        mtu if isinstance(mtu, int) else None,
        line,
    )


#: Separator between the entries of two networks.
_NEXT_NETWORK = re.compile(r"\s*},\s*{\s*")


#: Maximum characters that are searched in an entry whose end is missing.
_LONGEST_NETWORK = 4000

#: The annotation that requests networks, which does not contain their status.
_REQUESTED_NETWORKS = re.compile(r"cncf\.io/networks\b(?!-status)")
#: The annotation, formerly named ``networks-status``. Older versions of kubectl print ``=`` after the name.
_ANNOTATION = re.compile(r"\bnetworks?-status\b")


#: The start of a list of objects; a prompt also starts with a bracket.
_LIST = re.compile(r"\s*\[\s*(?:\{|$)")


def begins(lines: Lines, at: int) -> bool:
    """Return whether a network status begins at a line."""
    text = lines[at].text
    if _NEXT_NETWORK.fullmatch(text):  # the start is missing
        near = " ".join(line.text[:4000] for line in lines[at + 1 : at + 6])
        return '"name"' in near and ('"interface"' in near or '"ips"' in near)
    if "-status" in text and _ANNOTATION.search(text):
        return any("[" in line.text or "{" in line.text for line in lines[at : at + 3])
    if not _LIST.match(text) or (at and _REQUESTED_NETWORKS.search(lines[at - 1].text)):
        return False
    near = " ".join(line.text[:4000] for line in lines[at : at + 8])
    return '"name"' in near and any(key in near for key in ('"interface"', '"dns"', '"default"', '"device-info"'))


def parse_lines(lines: Lines, at: int) -> Parsed[tuple[PodNetwork, ...]]:
    """Read the list starting at a line; a truncated list yields what it has."""
    cut = list[ParseGap]()
    parsed = None if _NEXT_NETWORK.fullmatch(lines[at].text) else _status(lines, at)
    if parsed is None:
        parsed = _cut_status(lines, at)
        cut.append(ParseGap(lines[parsed[0] - 1].number, "the JSON of the network status is truncated"))
    end, value = parsed
    networks = []
    for entry in value:
        try:
            networks.append(_network(entry, lines[at].number))
        except ValueError as error:
            cut.append(ParseGap(lines[at].number, str(error)))
    return Parsed(tuple(networks), tuple(cut), end)


def facts(networks: tuple[PodNetwork, ...]) -> dict[str, Any]:
    """Return the networks as `preflight read --json` prints them."""
    return {
        "networks": [
            {
                "name": network.name, "interface": network.interface or None,
                "ips": None if network.ips is None else list(network.ips), "mac": network.mac,
                "rdma_device": network.rdma_device or None, "default": network.default or None, "mtu": network.mtu,
            }
            for network in networks
        ]
    }  # fmt: skip


def summary(networks: tuple[PodNetwork, ...]) -> str:
    """Return a one-line summary of the networks."""
    return counted(len(networks), "network")


def _cut_status(lines: Lines, at: int) -> tuple[int, list[dict[str, Any]]]:
    """Return the end and the networks of a truncated list.

    The last network may be incomplete; only its complete members are returned.
    """
    headless = _NEXT_NETWORK.fullmatch(lines[at].text)
    begun = next((index for index in range(at, min(at + 3, len(lines))) if "[" in lines[index].text), at)
    begun = at if headless else begun
    end = begun + 1
    while end < len(lines) and re.fullmatch(r"\s*(?:[\]\[{}\",].*)?", lines[end].text) and lines[end].text.strip():
        end += 1
    first = "{" if headless else lines[begun].text.partition("[")[2]
    text = "\n".join([first, *(line.text for line in lines[begun + 1 : end])])
    result: list[dict[str, Any]] = []
    place = 0
    while (match := re.compile(r"[\s,]*").match(text, place)) and text[match.end() : match.end() + 1] == "{":
        try:
            value, place = json_limits.begun(text, match.end())
        except (ValueError, RecursionError):
            if _is_status([value := _begun(text[match.end() :])]):
                result.append({"ips": None, **value})
            break
        if _is_status([value]):
            result.append(value)
    return end, result


def _begun(text: str) -> dict[str, Any]:
    """Return the complete members of a truncated object; empty if there are none."""
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
    """Return the end and the networks of a complete list, or None.

    The list may be alone, follow the annotation's name, or be quoted on one line.
    """
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
    if len(rest) > 1 and '\\"' in rest[1].text:  # quotes escaped for the shell
        rest = [type(line)(line.number, line.text.replace('\\"', '"')) for line in rest]
    # `kubectl describe` continues on lines that start with spaces
    result = json_at(rest, 0)
    return (at + result[0], result[1]) if result and _is_status(result[1]) else None


#: The start of a quoted list, and its end at the end of the line. A combined pattern would search for the end from
#: every start.
_QUOTE_BEGINS, _QUOTE_ENDS = re.compile(r"""["']\["""), re.compile(r"""\]["']\s*,?\s*$""")


def _quoted_list(text: str) -> str:
    """Return the quoted list at the end of a line.

    The result is empty if there is none.
    """
    begin, end = _QUOTE_BEGINS.search(text), _QUOTE_ENDS.search(text)
    return text[begin.start() + 1 : end.start() + 1] if begin and end and begin.end() <= end.start() else ""


def _is_status(value: Any) -> bool:
    return (
        isinstance(value, list) and bool(value) and all(isinstance(entry, dict) and "name" in entry for entry in value)
    )
