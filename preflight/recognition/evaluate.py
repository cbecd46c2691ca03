"""Judges what was read: the facts of each writer's output become evidence, and the rules say what is wrong.

A rule is unknown of a part that it read; of a part that it does not read, it has no finding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from preflight.evidence.document import Evidence
from preflight.judge import findings
from preflight.recognition import rules_gpu, rules_kernel, rules_nic
from preflight.recognition.detector import TextPart
from preflight.recognition.evidence_adapter import key_of

RULES = (*rules_nic.RULES, *rules_gpu.RULES, *rules_kernel.RULES)

_SHOWN_STATUSES = ("fail", "warn", "pass")


def add_findings(parts: Sequence[TextPart], source: str) -> None:
    """Put to each part the findings that rest on it."""
    for part in parts:
        key = key_of(part.kind)
        status = "ok" if part.taken.complete else "cut"
        records: dict[str, Any] = {key: {"status": status, "value": part.taken.facts, "out": part.text}}
        results = findings([Evidence(part.writer or source, "", records)], RULES)
        part.findings += [one for one in results if one["status"] in _SHOWN_STATUSES or _unknown_of(one, key)]


def _unknown_of(finding: Mapping[str, Any], key: str) -> bool:
    return finding["status"] == "unknown" and key in finding["evidence"]
