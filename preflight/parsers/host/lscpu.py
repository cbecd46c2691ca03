"""``lscpu``: the list, in any language.

Also reads ``lscpu -e`` and ``-p``, which print one line per CPU, and ``lscpu -J``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from preflight.parsers.host.numa_nodes import HostCpus, PrintedNumaNode
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import block, cpu_ids, field
from preflight.textprep.lines import Lines

#: The CPUs of a NUMA node, in any language: ``NUMA node0 CPU(s):``, ``NUMA-Knoten0 CPU(s):``, ``NUMA 节点0 CPU：``.
_NUMA_LINE = re.compile(r"\s*NUMA[ -]?[^\W\d]{1,16}\s?(\d{1,4}) CPU(?:\(s\))?\s*[:：]\s*(\d[\d,\s-]*)?")
#: The number of NUMA nodes; neither ``NUMA node: 1``, which describes a device in lspci, nor virsh's cells.
_NUMA_COUNT = re.compile(r"\s*(?!NUMA node:|NUMA cell)NUMA[ -]?[^\W\d]{1,16}(?:\(s\))?\s*[:：]\s*(\d{1,4})")
#: Names that only lscpu prints; two of them identify a truncated list.
_NAMES = re.compile(
    r"\s*(?:CPU op-mode\(s\)|CPU\(s\)|On-line CPU\(s\) list|Thread\(s\) per core|Core\(s\) per socket|Socket\(s\)):\s.*"
)
#: Names that other tools also print; they may start a truncated list if the NUMA nodes follow.
_MORE = re.compile(
    r"\s*(?:Vendor ID|CPU family|Model(?: name)?|Stepping|CPU (?:max |min )?MHz|BogoMIPS|Virtualization(?: type)?"
    r"|Hypervisor vendor|L\d[di]? cache|Byte Order|Address sizes):\s.*"
)
#: Maximum lines of the list before its NUMA nodes.
_AHEAD = 25
#: The first line of the list, and the names of the parsed values, in other common languages.
_FIRST_LINE = re.compile(r"\s*(?:Architecture|Architektur|架构)\s*[:：]\s*\S+\s*")
_WORDS = {
    "Architektur": "Architecture", "Modellname": "Model name", "Sockel": "Socket(s)",
    "Thread(s) pro Kern": "Thread(s) per core", "架构": "Architecture", "CPU": "CPU(s)", "型号名称": "Model name",
    "座": "Socket(s)", "每个核的线程数": "Thread(s) per core",
}  # fmt: skip
_WORD = re.compile(rf"\s*({'|'.join(map(re.escape, _WORDS))})\s*[:：]\s*(\S.*?)\s*")
#: Flags on a further line, broken by a web page.
_FLAGS = re.compile(r"(?=.*[_\d])[a-z\d_]{1,24}(?: [a-z\d_]{1,24}){2,40}")
_HEAD = re.compile(r"\s*CPU\s+NODE\s+SOCKET\s+CORE\b.*")
_COMMENT = re.compile(r"# (?:The following is the parsable format|CPU,Core,Socket,Node\b).*")


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``lscpu`` output begins at a line."""
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
    if not _FIRST_LINE.fullmatch(text):
        return False
    return any("CPU(s)" in line.text or "CPU 列表" in line.text for line in lines[at + 1 : at + 6])


def parse_lines(lines: Lines, at: int) -> Parsed[HostCpus]:
    """Read the output that begins at a line: a list, a table or JSON."""
    if _HEAD.fullmatch(lines[at].text) or _COMMENT.fullmatch(lines[at].text):
        return _table(lines, at)
    if _is_json(lines, at):
        return _json(lines, at)

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
        match[1]: PrintedNumaNode(_ids(match[2] or "")) for line in taken if (match := _NUMA_LINE.fullmatch(line.text))
    }
    counts = [match[1] for line in taken if (match := _NUMA_COUNT.fullmatch(line.text))]
    gaps = []
    promised = _number(counts[0]) if counts else None
    if not counts and nodes and "0" not in nodes:
        gaps.append(ParseGap(taken[0].number, "the preceding NUMA nodes are missing"))
    if promised is not None and promised != len(nodes):
        gaps.append(ParseGap(taken[-1].number, f"{promised} NUMA nodes exist, but {len(nodes)} are listed"))
    return Parsed(_host(fields, nodes), tuple(gaps), end)


def _host(fields: Mapping[str, str], nodes: Mapping[str, PrintedNumaNode]) -> HostCpus:
    return HostCpus(
        nodes, _number(fields.get("CPU(s)")), fields.get("Model name"), _number(fields.get("Socket(s)")),
        _number(fields.get("Thread(s) per core")), fields.get("Architecture"), fields.get("On-line CPU(s) list"),
        fields.get("Off-line CPU(s) list"),
    )  # fmt: skip


def _ids(text: str) -> tuple[int, ...] | None:
    ids = cpu_ids(text)
    return None if ids is None else tuple(ids)


def _table(lines: Lines, at: int) -> Parsed[HostCpus]:
    """Read ``lscpu -e`` or ``lscpu -p``, which print one line per CPU."""
    wide = bool(_HEAD.fullmatch(lines[at].text))
    row = re.compile(r"\s*(\d{1,5})\s+(\d{1,4})(?:\s+\S+){1,12}" if wide else r"(\d{1,5}),\d*,\d*,(\d{0,4})(?:,.*)?")
    end, taken = block(lines, at, lambda text: bool(row.fullmatch(text)) or (not wide and text[:2] == "# "), blanks=0)
    cpus: dict[str, list[int]] = {}
    for line in taken:
        if (match := row.fullmatch(line.text)) and match[2]:
            cpus.setdefault(match[2], []).append(int(match[1]))
    return Parsed(HostCpus({node: PrintedNumaNode(tuple(ids)) for node, ids in cpus.items()}), (), end)


_JSON_LINE = re.compile(r"\s*[\]\[{}\",].*")


def _is_json(lines: Lines, at: int) -> bool:
    if not lines[at].text.lstrip().startswith("{"):
        return False
    near = " ".join(line.text[:400] for line in lines[at : at + 4])
    return bool(re.match(r'\s*{\s*"(?:lscpu|cpus)"\s*:', near)) and bool(re.search(r'"(?:field|cpu)"', near))


def _json(lines: Lines, at: int) -> Parsed[HostCpus]:
    """Read ``lscpu -J`` or ``lscpu -Je``, possibly truncated."""
    end = at + 1
    while end < len(lines) and _JSON_LINE.fullmatch(lines[end].text):
        end += 1
        if lines[end - 1].text.startswith("}"):
            break
    text = "\n".join(line.text for line in lines[at:end])
    fields: dict[str, str] = dict(re.findall(r'"field":\s*"([^"]{1,60}?):?",\s*"data":\s*"([^"]*)"', text))
    nodes = {
        match[1]: PrintedNumaNode(_ids(value))
        for name, value in fields.items()
        if (match := re.fullmatch(r"NUMA node(\d{1,4}) CPU\(s\)", name))
    }
    cpus: dict[str, list[int]] = {}
    for cpu, node in re.findall(r'"cpu":\s*"?(\d{1,5})"?,[^{}]{0,400}?"node":\s*"?(\d{1,4})"?', text):
        cpus.setdefault(node, []).append(int(cpu))
    nodes |= {node: PrintedNumaNode(tuple(ids)) for node, ids in cpus.items()}
    complete = lines[end - 1].text.strip().endswith("}") and text.count("{") == text.count("}")
    gaps = () if complete else (ParseGap(lines[end - 1].number, "the JSON is incomplete"),)
    return Parsed(_host(fields, nodes), gaps, end)


def _number(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"\d{1,6}", text) else None


HINTS = (":", "：", "NUMA", "CPU", "# ", "{")
