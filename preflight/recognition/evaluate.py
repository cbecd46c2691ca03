"""Judgement of recognised parts.

The facts of each part become evidence, from which the judges create findings. An unknown finding is included only if
its judge used the part.
"""

from __future__ import annotations

from collections import defaultdict
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
        key = key_of(part.kind)
        status = "ok" if part.taken.complete else "cut"
        records: dict[str, Any] = {key: {"status": status, "value": part.taken.facts, "out": part.text}}
        values = earlier[part.writer, part.kind]
        others = [
            value for writer, value in written[part.kind].items() if part.writer not in ("", writer)
            for _ in range(_hosts_of(writer))
        ]  # fmt: skip
        rules = judges.checks_of(
            part.kind, part.taken.value, tuple(values[-_MOST_EARLIER:]), tuple(others[:_MOST_OTHERS]),
            part.read_in_full, _hosts_of(part.writer),
        )  # fmt: skip
        values.append(part.taken.value)
        node = _without_number(part.writer) or _node_of(part) or source
        results = findings([Evidence(node, "", records)], rules) if rules else []
        shown = [item for item in results if item["status"] in _SHOWN_STATUSES or _unknown_of(item, key)]
        once = _once(shown)
        part.unsettled = len(once) < len(shown)
        part.findings += once


def _once(findings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out what is unknown about a value that the same check reports as a fault."""

    def of(item: Mapping[str, Any]) -> tuple[Any, ...]:
        return item["check"], item["subject"], item["found"]

    faults = {of(item) for item in findings if item["status"] in ("fail", "warn") and item["subject"]}
    return [item for item in findings if item["status"] != "unknown" or of(item) not in faults]


def _hosts_of(writer: str) -> int:
    """Return the number of hosts that a writer stands for, as in `gx[01-04]`."""
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
