"""Judgement of recognised parts.

The facts of each part become evidence, from which the judges create findings. An unknown finding is included only if
its judge used the part.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from preflight.evidence.document import Evidence
from preflight.judge import findings
from preflight.nodeset import how_many
from preflight.parsers.host.kernel_text import KernelText
from preflight.parsers.messages.scan import LoggedError
from preflight.parsers.network.transport_errors import TransportMessage
from preflight.parsers.nvidia.dcgm_metrics import DcgmMetrics
from preflight.recognition import judges
from preflight.recognition.detector import TextPart
from preflight.recognition.evidence_adapter import key_of
from preflight.recognition.formats.typed import TypedPart

_SHOWN_STATUSES = ("fail", "warn", "pass")

#: Maximum number of earlier parts of the same kind and writer that a part is compared with.
_MOST_EARLIER = 64

#: Maximum number of other writers with which a part is compared.
_MOST_OTHERS = 64


def add_findings(parts: Sequence[TextPart], source: str) -> None:
    """Judge each part, and add the findings to it."""
    earlier: dict[tuple[str, str], list[Any]] = defaultdict(list)
    written: dict[str, dict[str, Any]] = defaultdict(dict)  # kind -> writer -> its last value
    for part in parts:
        if isinstance(part.taken, TypedPart) and part.writer:
            written[part.kind][part.writer] = part.taken.value
    for part in parts:
        if not isinstance(part.taken, TypedPart):
            continue
        values = earlier[part.writer, part.kind]
        others = [
            value for writer, value in written[part.kind].items() if part.writer not in ("", writer)
            for _ in range(_hosts_of(writer))
        ]  # fmt: skip
        shown = _judged(part, part.taken, source, tuple(values[-_MOST_EARLIER:]), tuple(others[:_MOST_OTHERS]))
        values.append(part.taken.value)
        once = _once(shown)
        part.unsettled = len(once) < len(shown)
        part.findings += once


def _judged(
    part: TextPart,
    taken: TypedPart,
    source: str,
    earlier: tuple[Any, ...],
    others: tuple[Any, ...],
    files: bool = False,
) -> list[dict[str, Any]]:  # fmt: skip
    """Return the findings about a part, compared with ``others``."""
    key = key_of(part.kind)
    record = {"status": "ok" if taken.complete else "cut", "value": taken.facts, "out": part.text}
    rules = judges.checks_of(part.kind, taken.value, earlier, others, part.read_in_full, _hosts_of(part.writer), files)
    evidence = Evidence(_without_number(part.writer) or _node_of(part) or source, "", {key: record})
    results = findings([evidence], rules) if rules else []
    return [item for item in results if item["status"] in _SHOWN_STATUSES or _unknown_of(item, key)]


def compare_files(sources: Sequence[tuple[str, Sequence[TextPart]]]) -> None:
    """Add what differs between files that each hold one output of a kind.

    Files of one host, by the names in them, are not compared: an output may have been saved before and after a change.
    """
    lone: dict[str, list[tuple[str, str, TextPart, TypedPart]]] = defaultdict(list)
    for source, parts in sources:
        number = Counter(part.kind for part in parts)
        for part in parts:
            if number[part.kind] == 1 and isinstance(part.taken, TypedPart):
                lone[part.kind].append((part.writer or _node_of(part) or source, source, part, part.taken))
    for named in lone.values():
        for host, source, part, taken in named[:_MOST_OTHERS]:
            if others := tuple(other.value for name, *_, other in named[:_MOST_OTHERS] if name != host):
                before = {_of(item) for item in part.findings}
                compared = _judged(part, taken, source, (), others, files=True)
                part.findings += [item for item in compared if item["status"] != "pass" and _of(item) not in before]


def _once(findings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out what is unknown about a value that the same check reports as a fault."""
    faults = {_of(item) for item in findings if item["status"] in ("fail", "warn") and item["subject"]}
    return [item for item in findings if item["status"] != "unknown" or _of(item) not in faults]


def _of(item: Mapping[str, Any]) -> tuple[Any, ...]:
    return item["check"], item["subject"], item["found"]


def _hosts_of(writer: str) -> int:
    """Return the number of hosts that a writer represents, as in `gx[01-04]`."""
    return min(how_many(writer), _MOST_OTHERS) if "[" in writer else 1


def _without_number(writer: str) -> str:
    """Return a writer without the number of its task before the name of its host."""
    number, _, host = writer.partition(" ")
    return host if host and number.isdecimal() else writer


def _node_of(part: TextPart) -> str:
    """Return the node named in the lines of a part; empty if none or several."""
    value = part.taken.value if isinstance(part.taken, TypedPart) else None
    hosts = value.hosts if isinstance(value, KernelText) else ()
    if isinstance(value, DcgmMetrics):
        hosts = value.hosts
    if isinstance(value, tuple) and value and isinstance(value[0], LoggedError):
        hosts = tuple({error.node for error in value})
    if isinstance(value, tuple) and value and isinstance(value[0], TransportMessage):
        hosts = tuple({error.host or "" for error in value})
    return hosts[0] if len(hosts) == 1 else ""


def _unknown_of(finding: Mapping[str, Any], key: str) -> bool:
    return finding["status"] == "unknown" and key in finding["evidence"]
