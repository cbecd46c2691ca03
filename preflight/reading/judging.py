"""Judges what was read: the facts of each writer's output become evidence, and the rules say what is wrong.

What cannot be told from the text is no finding here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from preflight.evidence import Evidence
from preflight.judge import findings
from preflight.reading import rules_gpu, rules_nic
from preflight.reading.parts import Part
from preflight.reading.record import key_of

RULES = (*rules_nic.RULES, *rules_gpu.RULES)

_TOLD = ("fail", "warn", "pass")


def add_findings(parts: Sequence[Part], source: str) -> None:
    """Put to each part the findings that rest on it."""
    for part in parts:
        key = key_of(part.kind)
        status = "ok" if part.taken.complete else "cut"
        records: dict[str, Any] = {key: {"status": status, "value": part.taken.facts, "out": part.text}}
        told = findings([Evidence(part.writer or source, "", records)], RULES)
        part.findings += [finding for finding in told if finding["status"] in _TOLD]
