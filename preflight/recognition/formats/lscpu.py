"""``lscpu``: its list, in any language; ``lscpu -e`` and ``-p``, a line for each CPU; ``lscpu -J``."""

from __future__ import annotations

import re
from typing import Any

from preflight.parsers.text_block import block, cpu_ids, field
from preflight.recognition.detector import OutputFormat, ParsedPart, TextGap
from preflight.textprep.lines import Lines

#: A node's CPUs, in any language: ``NUMA node0 CPU(s):``, ``NUMA-Knoten0 CPU(s):``, ``NUMA 节点0 CPU：``.
_NUMA_LINE = re.compile(r"\s*NUMA[ -]?[^\W\d]{1,16}\s?(\d{1,4}) CPU(?:\(s\))?\s*[:：]\s*(\d[\d,\s-]*)?")
#: Not ``NUMA node: 1``, which is of a device in lspci, nor what virsh calls cells.
_NUMA_COUNT = re.compile(r"\s*(?!NUMA node:|NUMA cell)NUMA[ -]?[^\W\d]{1,16}(?:\(s\))?\s*[:：]\s*(\d{1,4})")
#: Names that only lscpu has, two of which tell what is left of it.
_NAMES = re.compile(
    r"\s*(?:CPU op-mode\(s\)|CPU\(s\)|On-line CPU\(s\) list|Thread\(s\) per core|Core\(s\) per socket|Socket\(s\)):\s.*"
)
#: What others say as well, ahead of the nodes of a list whose head was cut off.
_MORE = re.compile(
    r"\s*(?:Vendor ID|CPU family|Model(?: name)?|Stepping|CPU (?:max |min )?MHz|BogoMIPS|Virtualization(?: type)?"
    r"|Hypervisor vendor|L\d[di]? cache|Byte Order|Address sizes):\s.*"
)
#: Lines of the list between its head and the nodes.
_AHEAD = 25
#: The list's first name, and the names whose values are told, in the other languages that people paste most.
_FIRST = re.compile(r"\s*(?:Architecture|Architektur|架构)\s*[:：]\s*\S+\s*")
_WORDS = {
    "Architektur": "Architecture", "Modellname": "Model name", "Sockel": "Socket(s)",
    "Thread(s) pro Kern": "Thread(s) per core", "架构": "Architecture", "CPU": "CPU(s)", "型号名称": "Model name",
    "座": "Socket(s)", "每个核的线程数": "Thread(s) per core",
}  # fmt: skip
_WORD = re.compile(rf"\s*({'|'.join(map(re.escape, _WORDS))})\s*[:：]\s*(\S.*?)\s*")
#: Flags that a page broke.
_FLAGS = re.compile(r"(?=.*[_\d])[a-z\d_]{1,24}(?: [a-z\d_]{1,24}){2,40}")
_HEAD = re.compile(r"\s*CPU\s+NODE\s+SOCKET\s+CORE\b.*")
_COMMENT = re.compile(r"# (?:The following is the parsable format|CPU,Core,Socket,Node\b).*")


def _begins(lines: Lines, at: int) -> bool:
    text = lines[at].text
    if _HEAD.fullmatch(text) or _COMMENT.fullmatch(text) or _is_json(lines, at):
        return True
    if "NUMA" in text and (_NUMA_LINE.fullmatch(text) or _NUMA_COUNT.fullmatch(text)):
        return True
    if _NAMES.fullmatch(text):
        near = [line.text for line in lines[at + 1 : at + 4]]
        return any(_NAMES.fullmatch(one) or _NUMA_COUNT.fullmatch(one) for one in near)
    if (
        _MORE.fullmatch(text)
        and at + 1 < len(lines)
        and (_MORE.fullmatch(lines[at + 1].text) or _NAMES.fullmatch(lines[at + 1].text))
    ):
        return any("NUMA" in line.text and _NUMA_LINE.fullmatch(line.text) for line in lines[at + 2 : at + _AHEAD])
    if not _FIRST.fullmatch(text):
        return False
    return any("CPU(s)" in line.text or "CPU 列表" in line.text for line in lines[at + 1 : at + 6])


def _take(lines: Lines, at: int) -> ParsedPart:
    if _HEAD.fullmatch(lines[at].text) or _COMMENT.fullmatch(lines[at].text):
        return _take_table(lines, at)
    if _is_json(lines, at):
        return _take_json(lines, at)

    def belongs(text: str) -> bool:
        if _FLAGS.fullmatch(text):
            return True
        return field(text) is not None or text[:1].isspace() or bool(re.match(r"[^:：]{1,60}：|NUMA[ -]", text))

    end, taken = block(lines, at, belongs, blanks=1)
    fields = dict(filter(None, (field(line.text) for line in taken)))
    for line in taken:
        if match := _WORD.fullmatch(line.text):
            fields.setdefault(_WORDS[match[1]], match[2])
    nodes = {
        match[1]: {"cpus": cpu_ids(match[2] or ""), "memory_bytes": None}
        for line in taken
        if (match := _NUMA_LINE.fullmatch(line.text))
    }
    counts = [match[1] for line in taken if (match := _NUMA_COUNT.fullmatch(line.text))]
    cpus = fields.get("CPU(s)", "")
    facts = {
        "numa_nodes": nodes, "cpus": int(cpus) if re.fullmatch(r"\d{1,6}", cpus) else None,
        "model": fields.get("Model name"), "sockets": _number(fields.get("Socket(s)")),
        "threads_per_core": _number(fields.get("Thread(s) per core")), "architecture": fields.get("Architecture"),
    }  # fmt: skip
    cut = []
    promised = _number(counts[0]) if counts else None
    if not counts and nodes and "0" not in nodes:
        cut.append(TextGap(taken[0].number, "the nodes before these are missing"))
    if promised is not None and promised != len(nodes):
        cut.append(TextGap(taken[-1].number, f"{promised} NUMA nodes are there and {len(nodes)} are shown"))
    return ParsedPart(end, facts, f"{facts['model'] or 'CPU'}, {cpus} CPUs, {len(nodes)} NUMA nodes", cut)


def _take_table(lines: Lines, at: int) -> ParsedPart:
    """Read ``lscpu -e`` or ``lscpu -p``: a line for each CPU."""
    wide = bool(_HEAD.fullmatch(lines[at].text))
    row = re.compile(r"\s*(\d{1,5})\s+(\d{1,4})(?:\s+\S+){1,12}" if wide else r"(\d{1,5}),\d*,\d*,(\d{0,4})(?:,.*)?")
    end, taken = block(lines, at, lambda text: bool(row.fullmatch(text)) or (not wide and text[:2] == "# "), blanks=0)
    nodes: dict[str, dict[str, Any]] = {}
    for line in taken:
        if (match := row.fullmatch(line.text)) and match[2]:
            nodes.setdefault(match[2], {"cpus": [], "memory_bytes": None})["cpus"].append(int(match[1]))
    return ParsedPart(end, {**_HOST, "numa_nodes": nodes}, f"{len(nodes)} NUMA nodes")


#: Facts of a host by lscpu.
_HOST = dict.fromkeys(("numa_nodes", "cpus", "model", "sockets", "threads_per_core", "architecture"))
_JSON_LINE = re.compile(r"\s*[\]\[{}\",].*")


def _is_json(lines: Lines, at: int) -> bool:
    if not lines[at].text.lstrip().startswith("{"):
        return False
    near = " ".join(line.text[:400] for line in lines[at : at + 4])
    return bool(re.match(r'\s*{\s*"(?:lscpu|cpus)"\s*:', near)) and bool(re.search(r'"(?:field|cpu)"', near))


def _take_json(lines: Lines, at: int) -> ParsedPart:
    """Read ``lscpu -J`` or ``lscpu -Je``, also one that is cut."""
    end = at + 1
    while end < len(lines) and _JSON_LINE.fullmatch(lines[end].text):
        end += 1
        if lines[end - 1].text.startswith("}"):
            break
    text = "\n".join(line.text for line in lines[at:end])
    nodes: dict[str, dict[str, Any]] = {}
    fields: dict[str, str] = dict(re.findall(r'"field":\s*"([^"]{1,60}?):?",\s*"data":\s*"([^"]*)"', text))
    for name, value in fields.items():
        if match := re.fullmatch(r"NUMA node(\d{1,4}) CPU\(s\)", name):
            nodes[match[1]] = {"cpus": cpu_ids(value), "memory_bytes": None}
    for cpu, node in re.findall(r'"cpu":\s*"?(\d{1,5})"?,[^{}]{0,400}?"node":\s*"?(\d{1,4})"?', text):
        nodes.setdefault(node, {"cpus": [], "memory_bytes": None})["cpus"].append(int(cpu))
    facts = {
        **_HOST, "numa_nodes": nodes, "cpus": _number(fields.get("CPU(s)")), "model": fields.get("Model name"),
        "sockets": _number(fields.get("Socket(s)")), "threads_per_core": _number(fields.get("Thread(s) per core")),
        "architecture": fields.get("Architecture"),
    }  # fmt: skip
    complete = lines[end - 1].text.strip().endswith("}") and text.count("{") == text.count("}")
    cut = [] if complete else [TextGap(lines[end - 1].number, "the JSON is not whole")]
    return ParsedPart(end, facts, f"{facts['model'] or 'CPU'}, {len(nodes)} NUMA nodes", cut)


def _number(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"\d{1,6}", text) else None


KINDS = (OutputFormat("lscpu", _begins, _take, hints=(":", "：", "NUMA", "CPU", "# ", "{")),)
