"""Judges what was read.

The facts of each writer's output become evidence, and the rules say what is wrong.

A rule is unknown of a part that it read; of a part that it does not read, it has no finding.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from preflight.evidence.document import Evidence, EvidenceError
from preflight.facts.node import NodeFacts
from preflight.judge import findings
from preflight.model import Check
from preflight.parsers.host.kernel_text import KernelText
from preflight.parsers.messages.scan import LoggedError
from preflight.recognition import judges, rules_nic
from preflight.recognition.detector import TextPart
from preflight.recognition.evidence_adapter import key_of
from preflight.recognition.formats.typed import TypedPart

RULES = rules_nic.RULES

_SHOWN_STATUSES = ("fail", "warn", "pass")


def add_findings(parts: Sequence[TextPart], source: str) -> None:
    """Put to each part the findings that rest on it."""
    for part in parts:
        key = key_of(part.kind)
        status = "ok" if part.taken.complete else "cut"
        records: dict[str, Any] = {key: {"status": status, "value": part.taken.facts, "out": part.text}}
        rules = _rules_of(part.kind)
        if isinstance(part.taken, TypedPart):
            rules += judges.checks_of(part.kind, part.taken.value)
        results = findings([Evidence(part.writer or _node_of(part) or source, "", records)], rules)
        part.findings += [one for one in results if one["status"] in _SHOWN_STATUSES or _unknown_of(one, key)]


def _node_of(part: TextPart) -> str:
    """Return the node that the lines of a part name; empty for none or several."""
    value = part.taken.value if isinstance(part.taken, TypedPart) else None
    hosts = value.hosts if isinstance(value, KernelText) else ()
    if isinstance(value, tuple) and value and isinstance(value[0], LoggedError):
        hosts = tuple({error.node for error in value})
    return hosts[0] if len(hosts) == 1 else ""


@functools.cache
def _rules_of(kind: str) -> tuple[Check, ...]:
    """Return the rules that read parts of a kind.

    There may be a thousand parts, and few rules read one.
    """
    return tuple(rule for rule in RULES if key_of(kind) in _keys_of(rule))


class _KeyRecorder(dict[str, Any]):
    """Records of which none is there; it keeps which were looked for."""

    def __init__(self) -> None:
        super().__init__()
        self.wanted: set[object] = set()

    def __contains__(self, key: object) -> bool:
        """Keep the key, and have nothing."""
        self.wanted.add(key)
        return False


@functools.cache
def _keys_of(rule: Check) -> frozenset[object]:
    """Return the records that a rule looks for.

    Where none of them is there, it looks for each and ends.
    """
    records = _KeyRecorder()
    with suppress(EvidenceError):
        list(rule.run(NodeFacts(Evidence("", "", records)), None))
    return frozenset(records.wanted)


def _unknown_of(finding: Mapping[str, Any], key: str) -> bool:
    return finding["status"] == "unknown" and key in finding["evidence"]
