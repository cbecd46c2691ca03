"""``numactl -H``: the CPUs and memory of each NUMA node."""

from __future__ import annotations

import re

from preflight.parsers.host.numa_nodes import HostCpus, PrintedNumaNode
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import block, cpu_ids
from preflight.textprep.lines import Lines

_AVAILABLE = re.compile(r"\s*available:\s*(\d{1,4}) nodes?\b.*")
#: With ``--cpu-compress``, CPU ranges followed by the number of CPUs.
_NODE_CPUS = re.compile(r"\s*node (\d{1,4}) cpus:([\d\s,-]*)(?:\([\w ,-]{1,40}\)\s*)?")
#: The rest of a node's CPUs, if their line was broken.
_MORE_CPUS = re.compile(r"\s*\d{1,5}(?:\s+\d{1,5})*\s*")
#: The number may be masked: ``size: n MB``.
_NODE_SIZE = re.compile(r"\s*node (\d{1,4}) (size|memory|free):\s*(\S{1,12}) ([KMG]B)\s*")
_UNIT = {"KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``numactl -H`` output begins at a line."""
    text = lines[at].text
    if "node" not in text:
        return False
    if _NODE_SIZE.fullmatch(text):  # the header is missing
        return any(_NODE_CPUS.fullmatch(line.text) for line in lines[at + 1 : at + 3])
    return bool(_AVAILABLE.fullmatch(text) or _NODE_CPUS.fullmatch(text))


def parse_lines(lines: Lines, at: int) -> Parsed[HostCpus]:
    """Read the output that begins at a line."""

    def belongs(text: str) -> bool:
        return bool(
            _AVAILABLE.fullmatch(text) or _NODE_CPUS.fullmatch(text) or _NODE_SIZE.fullmatch(text)
            or re.fullmatch(r"\s*node distances:\s*|\s*node(?:\s+\d{1,4})+\s*|\s*\d{1,4}:(?:\s+\d{1,4})+\s*", text)
            or _MORE_CPUS.fullmatch(text)
        )  # fmt: skip

    end, taken = block(lines, at, belongs, blanks=1)
    sizes: dict[str, dict[str, int | None]] = {}
    promised = None
    cpu_lists: dict[str, list[str]] = {}
    open_node = ""
    for line in taken:
        if open_node and _MORE_CPUS.fullmatch(line.text):
            cpu_lists[open_node][-1:] = _joined(cpu_lists[open_node][-1], line.text)
            continue
        open_node = ""
        if match := _AVAILABLE.fullmatch(line.text):
            promised = int(match[1])
        elif match := _NODE_CPUS.fullmatch(line.text):
            cpu_lists[match[1]], open_node = [match[2].strip()], match[1]
        elif match := _NODE_SIZE.fullmatch(line.text):
            size = int(match[3]) * _UNIT[match[4]] if match[3].isdecimal() else None
            sizes.setdefault(match[1], {})[match[2]] = size
    nodes = {}
    for name in sorted({*sizes, *cpu_lists}, key=int):
        ids = cpu_ids(" ".join(cpu_lists[name])) if name in cpu_lists else None
        memory = sizes.get(name, {})
        nodes[name] = PrintedNumaNode(None if ids is None else tuple(ids), memory.get("size"), memory.get("free"))
    gaps = []
    if promised is not None and promised != len(nodes):
        gaps.append(ParseGap(taken[-1].number, f"{promised} nodes are available, but {len(nodes)} are listed"))
    gaps += [ParseGap(taken[-1].number, f"the CPUs of node {name} are missing") for name, node in nodes.items()
             if node.cpus is None]  # fmt: skip
    gaps += [ParseGap(taken[-1].number, f"the size of node {name} is missing") for name, node in nodes.items()
             if node.memory_bytes is None]  # fmt: skip
    if promised is None and nodes and "0" not in nodes:
        gaps.append(ParseGap(taken[0].number, "the preceding NUMA nodes are missing"))
    return Parsed(HostCpus(nodes), tuple(gaps), end)


def _joined(text: str, more: str) -> list[str]:
    """Join a CPU list with its next line if a number was broken; else return both.

    Complete numbers ascend, so a smaller one shows that a number was broken.
    """
    numbers = [int(number) for number in re.findall(r"\d{1,5}", text[-24:])][-2:]
    cut = numbers[-1:] <= numbers[-2:-1] or [int(more.split()[0])] <= numbers[-1:]
    return [text + more] if cut and numbers and not more[:1].isspace() else [text, more]


HINTS = ("node",)
