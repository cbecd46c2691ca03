"""``numactl -H``: NUMA nodes, their CPUs and memory."""

from __future__ import annotations

import re
from typing import Any

from preflight.parsers.text_block import block, cpu_ids
from preflight.recognition.detector import OutputFormat, ParsedPart, TextGap
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


KINDS = (OutputFormat("numactl", _begins_numactl, _take_numactl, hints=("node",)),)
