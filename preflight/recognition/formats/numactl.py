"""The host's own: ``numactl -H``, and Multus's ``network-status``."""

from __future__ import annotations

import json
import re
from typing import Any

from preflight.evidence import json_limits
from preflight.recognition.detector import OutputFormat, ParsedPart, TextGap
from preflight.parsers.text_block import block, cpu_ids, json_at
from preflight.textprep.lines import Lines

# --- numactl -H --------------------------------------------------------------------------------------

_AVAILABLE = re.compile(r"\s*available:\s*(\d{1,4}) nodes?\b.*")
#: With ``--cpu-compress`` ranges, and behind them how many CPUs they are.
_NODE_CPUS = re.compile(r"\s*node (\d{1,4}) cpus:([\d\s,-]*)(?:\([\w ,-]{1,40}\)\s*)?")
#: The rest of a node's CPUs, where the line was broken.
_MORE_CPUS = re.compile(r"\s*\d{1,5}(?:\s+\d{1,5})*\s*")
#: The number may have been blotted out: ``size: n MB``.
_NODE_SIZE = re.compile(r"\s*node (\d{1,4}) (size|memory|free):\s*(\S{1,12}) ([KMG]B)\s*")
_UNIT = {"KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}


def _begins_numactl(lines: Lines, at: int) -> bool:
    text = lines[at].text
    if "node" not in text:
        return False
    if _NODE_SIZE.fullmatch(text):  # the head was cut off
        return any(_NODE_CPUS.fullmatch(line.text) for line in lines[at + 1 : at + 3])
    return bool(_AVAILABLE.fullmatch(text) or _NODE_CPUS.fullmatch(text))


def _take_numactl(lines: Lines, at: int) -> ParsedPart:
    def belongs(text: str) -> bool:
        return bool(
            _AVAILABLE.fullmatch(text) or _NODE_CPUS.fullmatch(text) or _NODE_SIZE.fullmatch(text)
            or re.fullmatch(r"\s*node distances:\s*|\s*node(?:\s+\d{1,4})+\s*|\s*\d{1,4}:(?:\s+\d{1,4})+\s*", text)
            or _MORE_CPUS.fullmatch(text)
        )  # fmt: skip

    end, taken = block(lines, at, belongs, blanks=1)
    nodes: dict[str, dict[str, Any]] = {}
    promised = None
    cpu_lists: dict[str, list[str]] = {}
    open_node = ""
    for line in taken:
        if open_node and _MORE_CPUS.fullmatch(line.text):
            cpu_lists[open_node][-1:] = joined_cpus(cpu_lists[open_node][-1], line.text)
            continue
        open_node = ""
        if match := _AVAILABLE.fullmatch(line.text):
            promised = int(match[1])
        elif match := _NODE_CPUS.fullmatch(line.text):
            nodes.setdefault(match[1], {"cpus": None, "memory_bytes": None})
            cpu_lists[match[1]], open_node = [match[2].strip()], match[1]
        elif (match := _NODE_SIZE.fullmatch(line.text)) and match[2] != "free":
            node = nodes.setdefault(match[1], {"cpus": None, "memory_bytes": None})
            node["memory_bytes"] = int(match[3]) * _UNIT[match[4]] if match[3].isdecimal() else None
    for name, texts in cpu_lists.items():
        nodes[name]["cpus"] = cpu_ids(" ".join(texts))
    cut = []
    if promised is not None and promised != len(nodes):
        cut.append(TextGap(taken[-1].number, f"{promised} nodes are available and {len(nodes)} are shown"))
    cut += [TextGap(taken[-1].number, f"the {what} of node {name} {verb} missing")
            for what, fact, verb in (("CPUs", "cpus", "are"), ("size", "memory_bytes", "is"))
            for name, node in nodes.items() if node[fact] is None]  # fmt: skip
    if promised is None and nodes and "0" not in nodes:
        cut.append(TextGap(taken[0].number, "the nodes before these are missing"))
    return ParsedPart(end, {"numa_nodes": nodes}, f"{len(nodes)} NUMA nodes", cut)


def joined_cpus(text: str, more: str) -> list[str]:
    """Put a list of CPUs together that was broken, between two numbers or within one: whole ones go up."""
    numbers = [int(number) for number in re.findall(r"\d{1,5}", text[-24:])][-2:]
    cut = numbers[-1:] <= numbers[-2:-1] or [int(more.split()[0])] <= numbers[-1:]
    return [text + more] if cut and numbers and not more[:1].isspace() else [text, more]


# --- network-status ----------------------------------------------------------------------------------


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
    """Return the list that stands in quotes at the end of a line; empty where none does."""
    begin, end = _QUOTE_BEGINS.search(text), _QUOTE_ENDS.search(text)
    return text[begin.start() + 1 : end.start() + 1] if begin and end and begin.end() <= end.start() else ""


def _is_status(value: Any) -> bool:
    return (
        isinstance(value, list) and bool(value) and all(isinstance(entry, dict) and "name" in entry for entry in value)
    )


KINDS = (
    OutputFormat("network-status", _begins_status, _take_status, hints=("network-status", "networks-status", "[", "}")),
    OutputFormat("numactl", _begins_numactl, _take_numactl, hints=("node",)),
)
