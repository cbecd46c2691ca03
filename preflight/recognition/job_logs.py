"""A job's output: the log of NCCL and the tables of nccl-tests, which stand within each other's lines."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from preflight.checks import registry
from preflight.evidence.document import Evidence
from preflight.facts.job import RUN
from preflight.facts.streamed_log import OnDisk
from preflight.judge import findings
from preflight.model import Check, Scope
from preflight.parsers import nccl_log
from preflight.parsers.nccl_log.line_source import CHUNK
from preflight.parsers.nccl_log.restore_prefix import restore_prefixes
from preflight.parsers.nccl_log.summarize import FRAMEWORK
from preflight.parsers.nccl_log.to_json import document, vars_of
from preflight.parsers.torch import TorchOutput, hang, watchdog
from preflight.recognition.detector import ParsedPart, TextGap, TextPart
from preflight.recognition.formats import nccl_tests
from preflight.recognition.formats.nccl_settings import NCCL_ENV, judged
from preflight.recognition.formats.pytorch import RECORDER, TRACE
from preflight.recognition.input_sources import InputSource
from preflight.textprep.plain_text import numbered

NCCL_LOG = "nccl-log"
NCCL_TESTS = nccl_tests.KIND

#: A line that NCCL wrote, or what a launcher and a copy left of it.
_LINE = re.compile(
    r"(?:\b|\dm)NCCL (?:INFO|WARN|ERROR|TRACE|ABORT|VERSION|version)\b"  # also where a colour ends right before it
    rf"|{FRAMEWORK.pattern}"
)

#: Words one of which stands in every such line: a text is searched for them far sooner than for the pattern.
_WORDS = ("NCCL", "Nccl", "nccl", "Dist", "c10d", "Detected mismatch", "Watchdog caught")

#: Kinds that are a file of their own.
_FILES = (TRACE, RECORDER)

#: Ranks whose watchdog messages are listed one by one.
_MAX_RANKS = 1000

_SHOWN_STATUSES = ("fail", "warn", "pass")

#: Findings that are shown where they are unknown, too: a dump of one rank with calls under way proves nothing sound.
_UNFINISHED = "torch.hang"


def log_parts(source: InputSource) -> list[TextPart]:
    """Return the log of NCCL and the runs of nccl-tests in a source, judged."""
    found = [*_nccl(source), *nccl_tests.read(source.text)]
    if found:
        judge_logs(found, source)
    return found


def _nccl(source: InputSource) -> Iterator[TextPart]:
    lines = list(numbered(source.text))
    if not _has_line(source.text) and source.skipped is None:
        lines = list(enumerate(_restored(source.text.split("\n")), 1)) if len(source.text) <= CHUNK else []
        if not any(_has_line(line) for _, line in lines):
            return
    try:
        log = nccl_log.read([source.path])
    except (OSError, ValueError):
        return
    numbers = [number for number, line in lines if _has_line(line)]
    first, last = (numbers[0], numbers[-1]) if numbers else (1, source.text.count("\n") + 1)
    facts = document(log)
    facts["watchdog"] = _watchdog(source.text, log.nranks)
    taken = ParsedPart(last, facts, _summary(facts), [TextGap(last, note) for note in log.notes])
    yield TextPart(NCCL_LOG, first, last, "", taken, "")


def _has_line(text: str) -> bool:
    return any(word in text for word in _WORDS) and _LINE.search(text) is not None


def _restored(lines: list[str]) -> list[str]:
    """Restore NCCL's name in lines that all lost it."""
    return [
        line.decode("utf-8", "replace") for line in restore_prefixes([one.encode("utf-8", "replace") for one in lines])
    ]


def _watchdog(text: str, nranks: int | None) -> dict[str, Any] | None:
    """Return the facts of PyTorch's watchdog and the ranks that hang; None if none."""
    report = None if watchdog.is_silent(text) else watchdog.parse(text.split("\n"))
    if not report:
        return None
    return {
        "timeouts": [vars_of(one) for one in report.timed_out[:_MAX_RANKS]],
        "progress": [vars_of(one) for one in report.progress[:_MAX_RANKS]],
        "hangs": [_hang_facts(stall) for stall in hang.of_watchdog(report, nranks)],
    }


def _hang_facts(stall: hang.Hang) -> dict[str, Any]:
    """Return a hang with the documented keys: ``complete`` is printed as ``whole``."""
    facts = {"whole" if name == "complete" else name: value for name, value in vars_of(stall).items()}
    return {**facts, "differ": [list(pair) for pair in stall.differ]}


def _summary(facts: Mapping[str, Any]) -> str:
    phrases = [f"NCCL {facts['nccl_version'] or 'of unknown version'}"]
    if facts["nranks"]:
        phrases.append(f"{facts['nranks']} ranks on {facts['nnodes'] or len(facts['hosts']) or '?'} nodes")
    between = facts["transports"]["inter_node"]
    if between:
        direct = {True: " with GPUDirect RDMA", False: " without GPUDirect RDMA", None: ""}[facts["gpudirect_rdma"]]
        phrases.append(f"between nodes {', '.join(between)}{direct}")
    if facts["failures"]:
        phrases.append(f"first failure on line {facts['failures'][0]['line']}: {facts['failures'][0]['text'][:120]}")
    return "; ".join(phrases)


@functools.cache
def _run_checks() -> tuple[Check, ...]:
    return tuple(check for check in registry().checks if check.scope is Scope.RUN)


def judge_logs(parts: list[TextPart], source: InputSource, seen: TorchOutput | None = None) -> None:
    """Let the checks of a run's logs speak, each finding with the part that it is about."""
    record: dict[str, Any] = {"status": "ok", "out": source.text}
    if source.skipped is not None or any(part.kind in _FILES for part in parts):
        record = OnDisk(source.path, "the log is long", seen)
    run = Evidence(RUN, "", {f"log:{source.name}": record})
    checks = _run_checks()
    by_kind = {kind: [part for part in parts if part.kind == kind] for kind in (NCCL_LOG, NCCL_TESTS, *_FILES)}
    for finding in findings([], checks, run=run):
        kind = NCCL_TESTS if finding["check"].startswith("nccl-tests.") else NCCL_LOG
        if any(by_kind[name] for name in _FILES):
            kind = next(name for name in _FILES if by_kind[name])
        shown = finding["status"] in _SHOWN_STATUSES or (finding["check"] == _UNFINISHED and by_kind[RECORDER])
        if shown and by_kind[kind]:
            _about(finding["subject"], by_kind[kind]).findings.append(finding)


def judge_settings(parts: list[TextPart], name: str) -> None:
    """Judge lists of settings as those of a run; each by itself."""
    checks = [check for check in _run_checks() if check.id == "nccl.run-settings"]
    for part in parts:
        if part.kind == NCCL_ENV and part.text:
            out = judged(part.text, part.first)
            run = Evidence(RUN, "", {f"log:{name}": {"status": "ok", "out": out}})
            part.findings += [one for one in findings([], checks, run=run) if one["status"] in _SHOWN_STATUSES]


def _about(subject: str, parts: list[TextPart]) -> TextPart:
    """Return the part that a finding speaks of: with several runs in a log its subject names their lines."""
    return next((part for part in parts if f" lines {part.first}-{part.last}: " in subject), parts[0])
