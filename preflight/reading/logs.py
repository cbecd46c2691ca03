"""A job's output: the log of NCCL and the tables of nccl-tests, which stand within each other's lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from preflight.checks import registry
from preflight.evidence import Evidence
from preflight.facts import nccl_log
from preflight.facts.nccl_log.document import document
from preflight.facts.run import RUN
from preflight.judge import judge
from preflight.model import Scope
from preflight.reading.kinds import nccl_tests
from preflight.reading.parts import Cut, Part, Taken
from preflight.reading.sources import Source

NCCL_LOG = "nccl-log"
NCCL_TESTS = nccl_tests.KIND

#: A line that NCCL wrote, or what a launcher and a copy left of it.
_LINE = re.compile(r"\bNCCL (?:INFO|WARN|TRACE|ABORT|VERSION|version)\b")

_TOLD = ("fail", "warn", "pass")


def log_parts(source: Source) -> list[Part]:
    """Return the log of NCCL and the runs of nccl-tests in a source, judged."""
    found = [*_nccl(source), *nccl_tests.read(source.text)]
    if found:
        _judge(found, source)
    return found


def _nccl(source: Source) -> Iterator[Part]:
    if not _LINE.search(source.text) and source.skipped is None:
        return
    try:
        log = nccl_log.read([source.path])
    except (OSError, ValueError):
        return
    numbers = [number for number, line in enumerate(source.text.split("\n"), 1) if _LINE.search(line)]
    first, last = (numbers[0], numbers[-1]) if numbers else (1, source.text.count("\n") + 1)
    facts = document(log)
    taken = Taken(last, facts, _summary(facts), [Cut(last, note) for note in log.notes])
    yield Part(NCCL_LOG, first, last, "", taken, "")


def _summary(facts: Mapping[str, Any]) -> str:
    said = [f"NCCL {facts['nccl_version'] or 'of unknown version'}"]
    if facts["nranks"]:
        said.append(f"{facts['nranks']} ranks on {facts['nnodes'] or len(facts['hosts']) or '?'} nodes")
    between = facts["transports"]["inter_node"]
    if between:
        direct = {True: " with GPUDirect RDMA", False: " without GPUDirect RDMA", None: ""}[facts["gpudirect_rdma"]]
        said.append(f"between nodes {', '.join(between)}{direct}")
    if facts["failures"]:
        said.append(f"first failure on line {facts['failures'][0]['line']}: {facts['failures'][0]['text'][:120]}")
    return "; ".join(said)


def _judge(parts: list[Part], source: Source) -> None:
    """Let the checks of a run's logs speak, each finding with the part that it is about."""
    record = {"status": "ok", "out": source.text}
    run = Evidence(RUN, "", {f"log:{source.name}": record})
    checks = [check for check in registry().checks if check.scope is Scope.RUN]
    by_kind = {kind: [part for part in parts if part.kind == kind] for kind in (NCCL_LOG, NCCL_TESTS)}
    for finding in judge([], checks, run=run)["findings"]:
        kind = NCCL_TESTS if finding["check"].startswith("nccl-tests.") else NCCL_LOG
        if finding["status"] in _TOLD and by_kind[kind]:
            _about(finding["subject"], by_kind[kind]).findings.append(finding)


def _about(subject: str, parts: list[Part]) -> Part:
    """Return the part that a finding speaks of: with several runs in a log its subject names their lines."""
    return next((part for part in parts if f" lines {part.first}-{part.last}: " in subject), parts[0])
